//! What members agree on as heartbeats carry it: `[mode, sharding, shims, digest]`, in numbers as in a greeting between members.
//! Not what it is.

use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(super) fn serialize<S: Serializer>(agreement: &Agreement, serializer: S) -> Result<S::Ok, S::Error> {
    let Agreement { mode, sharding, shims, digest, also: _ } = agreement;
    (mode.number(), sharding.number(), shims, digest).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Agreement, D::Error> {
    let (mode, sharding, shims, digest) = <(u8, u8, u16, u64)>::deserialize(deserializer)?;
    let mode = AgreedMode::of_number(mode).ok_or_else(|| de::Error::custom("no such mode"))?;
    let sharding =
        AgreedSharding::of_number(sharding).ok_or_else(|| de::Error::custom("no such way to divide keys"))?;
    Ok(Agreement { mode, sharding, shims, digest, also: None })
}
