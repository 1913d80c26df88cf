//! RESP as Redis clients and servers speak it: framing, reading, writing. Not what a command means.

mod command;
mod error;
mod inline;
mod number;
mod parts;
pub mod reply;
mod scan;
mod take;
pub mod transaction;
mod value;

pub use command::Command;
pub use error::ProtocolError;
pub use parts::PartScanner;
pub use scan::ReplyScanner;
pub use take::{RespLimits, RespTaken, next_command, take_command};
pub use value::Value;
