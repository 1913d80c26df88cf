//! What can go wrong for an application that links the router.

use std::time::Duration;

use config::ConfigError;
use wire::resp::{ProtocolError, Value};

/// For how long a new client waits for storage.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the configuration has no usable cluster map: {0}")]
    Map(String),
    #[error("{0}")]
    Certificates(#[from] ConfigError),
    #[error("cannot open sockets or start a thread: {0}")]
    System(std::io::Error),
    #[error("not every shim of the configuration answered within {seconds} s; is the cluster running?")]
    Unreachable { seconds: u64 },
    #[error("members of the cluster refuse this client: {}", .0.join("; "))]
    Refused(Vec<String>),
}

impl ConnectError {
    /// The error of a client that could not link in time, by what members say of it.
    pub(crate) fn late(refusals: Vec<String>) -> ConnectError {
        match refusals.is_empty() {
            true => ConnectError::Unreachable { seconds: CONNECT_TIMEOUT.as_secs() },
            false => ConnectError::Refused(refusals),
        }
    }
}

/// Why a command has no value.
///
/// ```
/// use router::Error;
///
/// /// Whether the same command may do better later.
/// fn is_passing(error: &Error) -> bool {
///     matches!(error, Error::Reply(text) if text.starts_with("BUSY"))
/// }
///
/// assert!(is_passing(&Error::Reply("BUSY DistCache: too much to do".to_owned())));
/// assert!(!is_passing(&Error::Closed));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error reply, such as `WRONGTYPE ...`.
    #[error("{0}")]
    Reply(String),
    /// The reply has another type than this method gives.
    #[error("the reply is of another type: {0:?}")]
    Unexpected(Box<Value>),
    #[error("the reply is malformed: {0}")]
    Malformed(#[from] ProtocolError),
    #[error("the client has ended")]
    Closed,
}
