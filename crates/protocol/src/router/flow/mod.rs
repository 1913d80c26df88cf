//! One request's way to nodes and shims, and its reply's way back in order. Not what a client may ask for.

pub(crate) mod answer;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod dispatch;
pub(crate) mod gather;
pub(crate) mod keyless;
pub(crate) mod learned;
pub(crate) mod pause;
pub(crate) mod pending;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod ran;
pub(crate) mod retry;
pub(crate) mod route;
pub(crate) mod send;
pub(crate) mod storage_info;
pub(crate) mod stream;
pub(crate) mod watch;
pub(crate) mod window;
