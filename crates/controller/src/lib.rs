//! The controller role: runs the controller machine over a store and serves it as HTTP/JSON. Never the data path.

mod command;
mod hot;
mod http;
mod inspect;
mod members;
mod order_requests;
mod orders;
mod service;
mod spawn;
mod storage_requests;
pub mod store;
mod view;

pub use http::{DRAIN_PATH, Drain, NO_SUCH_PATH, PURGE_PATH, RELOAD_PATH, STORAGE_PATH};
pub use inspect::{FurtherPlace, Inspection, KeyPlace, NearPlace};
pub use order_requests::{Purge, PurgeView, Reload, ReloadView};
pub use runtime::status::HotKeyView;
pub use spawn::spawn;
pub use storage_requests::StorageChange;
pub use view::{LayerView, MapView, MemberState, MemberView, NodeView, ShimView};
