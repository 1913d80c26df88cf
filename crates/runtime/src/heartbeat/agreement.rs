//! What members agree on, as heartbeats carry it. Not what it is.

use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An agreement in its JSON form: `[mode, sharding, shims, digest]`, in numbers as a greeting between members has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreementText(pub Agreement);

impl Serialize for AgreementText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Agreement { mode, sharding, shims, digest } = self.0;
        (mode.number(), sharding.number(), shims, digest).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AgreementText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AgreementText, D::Error> {
        let (mode, sharding, shims, digest) = <(u8, u8, u16, u64)>::deserialize(deserializer)?;
        let mode = AgreedMode::of_number(mode).ok_or_else(|| de::Error::custom("no such mode"))?;
        let sharding = AgreedSharding::of_number(sharding)
            .ok_or_else(|| de::Error::custom("no such way to divide keys"))?;
        Ok(AgreementText(Agreement { mode, sharding, shims, digest }))
    }
}
