//! Why this release does not carry a command that Redis has. Not what else can be wrong with a command.

/// Why this release refuses a command that Redis has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    #[error("it would look like one server of a Redis Cluster, which it is not")]
    Cluster,
    #[error("administrative commands go to the storage server itself")]
    Administration,
    #[error(
        "the parameter concerns how the storage server serves DistCache; set it at the storage server itself"
    )]
    Configuration,
    #[error(
        "replication belongs to the storage servers, and no reply says how many of them have which write"
    )]
    Replication,
    #[error("the key would move to a server that is not behind DistCache")]
    OtherServer,
    #[error("it writes to a database other than the connection's")]
    OtherDatabase,
    #[error("hits never reach storage, so that it would show some commands only")]
    Monitor,
    #[error(
        "it stops a storage server or changes data without DistCache's knowledge; use it at the storage server itself"
    )]
    DebugCommand,
    #[error("storage connections are shared, and it would stop one of them")]
    Debugging,
}
