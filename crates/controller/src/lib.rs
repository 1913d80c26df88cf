//! The controller role: runs the controller machine over a store and serves it as HTTP/JSON. Never the data path.

mod hot;
mod http;
mod inspect;
mod service;
mod spawn;
pub mod store;
mod view;

pub use hot::HotKeyView;
pub use http::{COMMAND_HEADER, DRAIN_PATH, Drain, RELOAD_PATH};
pub use inspect::{Inspection, Place};
pub use spawn::spawn;
pub use view::{LayerView, MapView, MemberState, MemberView, NodeView, ShimView};
