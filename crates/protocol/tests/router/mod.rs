//! What the router's tests share: a small world around one router. Not a simulator.

pub(crate) mod world;
