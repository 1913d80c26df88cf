//! The laboratory: commands that measure, simulate, plan and reproduce, each with its arguments and its `run`. Never a member
//! that serves others, and no rule of the protocol.

pub mod bench;
pub mod demo;
pub mod flash;
pub mod plan;
pub mod policies;
pub mod reproduce;
pub mod sim;
pub mod study;
pub mod terminal;
pub mod trace;
