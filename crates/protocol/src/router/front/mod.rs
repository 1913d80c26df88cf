//! A client's session, as a Redis or memcached server has it. Not where its commands go.

pub(crate) mod acl_command;
pub(crate) mod acl_log;
pub(crate) mod client;
pub(crate) mod client_command;
pub(crate) mod client_filter;
pub(crate) mod client_tracking;
pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod identity;
pub(crate) mod info;
pub(crate) mod memcached;
pub(crate) mod own_command;
pub(crate) mod pubsub;
pub(crate) mod slow_log;
pub(crate) mod spans;
pub(crate) mod storage_users;
pub(crate) mod tracking;
pub(crate) mod transaction;
pub(crate) mod unblock;
