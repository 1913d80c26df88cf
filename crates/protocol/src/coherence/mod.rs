//! The rules of coherence as small states without maps: sessions, leases, copies, directory entries.
//!
//! Node and shim are composed of these; the model checker runs them. Order is part of the contract: no write
//! reaches storage before every servable copy is invalidated or its lease has run out.

pub mod copy;
pub mod directory;
pub mod lease;
