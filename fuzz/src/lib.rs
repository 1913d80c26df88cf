//! Fuzz targets: every decoder of bytes from outside and every machine behind one, each as a function of some bytes.
//! Not the fuzzer: that is the binary; the tests only replay the corpora.

mod target;
mod targets;

pub use target::{TARGETS, Target, find};
