//! Message types, codecs and the packet header's layout. Never sockets, clocks or policy.

pub mod codec;
pub mod foreign;
pub mod header;
pub mod key;
pub mod level;
pub mod map;
pub mod member;
pub mod memcached;
pub mod message;
pub mod resp;

pub use codec::{DecodeError, decode, encode};
pub use key::{Digest, Key, View};
pub use level::{LEVELS, Levels, RELEASE};
pub use map::{
    ClusterMap, Distribution, HashTag, LayerMap, NodeMember, Partition, PoolHash, PoolServer, RackId,
    Relocation, SHARE_WHOLE, Sharding, ShimMember, ShimState, StoragePool, WideHash,
};
pub use member::{NodeId, Peer, RouterId, ShimId};
pub use message::{Degree, LayerSet, LoadStamp, Loads, Message, Status, TopicKind};
