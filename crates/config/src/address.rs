//! Where something listens: a TCP socket address or a path of a Unix socket. Not the socket itself.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Written `127.0.0.1:7000`, `[::1]:7000` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Why a text is not an address; says how one looks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address: write IP:PORT (127.0.0.1:7000) or unix:///PATH")]
pub struct AddressError(String);

impl Address {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError(text.to_owned());
        match text.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') && path.len() > 1 => Ok(Address::Unix(PathBuf::from(path))),
            Some(_) => Err(error()),
            None => text.parse().map(Address::Tcp).map_err(|_| error()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["127.0.0.1:7000", "[::1]:80", "unix:///run/distcache.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "7000", "localhost:1", "unix://relative", "unix:///", "unix:/x", "1.2.3.4:70000"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
