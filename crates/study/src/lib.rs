//! The papers' analyses as tools. No sockets, and no second copy of placement, routing or policies.

pub mod capacity;
pub mod flash;
pub mod flow;
pub mod hot_keys;
pub mod matching;
pub mod plan;
pub mod popularity;
pub mod reproduce;
pub mod seeds;
pub mod small_cache;
pub mod stability;
pub mod what_if;

pub use popularity::{Popularity, PopularityError, PopularitySpec};
