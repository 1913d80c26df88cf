//! The controller: what it decides of members that live and members that do not. Not where that is kept, nor who asks.

pub mod partitions;
