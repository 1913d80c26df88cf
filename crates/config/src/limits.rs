//! `[limits]`: each setting with its default, its range, and what machines are told of it.

use std::time::Duration;

use protocol::node::NodeSettings;
use protocol::router::{ClientLimits, RouterSettings};
use protocol::shim::{ShimConfig, ShimSettings};
use serde::Deserialize;

use super::ByteSize;
use super::memory;
use super::ranges::{A_DAY_MS, HOUR_MS, MEMORY, section};

const DESCRIPTORS: &str = "each is an open file of the process";
const FRAME: &str = "one frame between members takes it";
const TRANSACTION: &str = "one frame between members takes it with the places of its keys";
const NEVER: &str = "0 is for never";
/// A machine that is busy does nothing for a tenth of a second now and then.
const BUSY: &str = "a busy machine answers nothing for less, and for more than an hour nobody waits";
const WAITS: &str =
    "less would refuse what storage can do; to have nothing wait, write overload = \"refuse\"";

section! {
/// `[limits]`: what one instance accepts. Each is a bound of some queue, buffer or table.
pub struct Limits {
    /// Client connections of one router; more are answered with an error and closed, as Redis does.
    clients_max: usize = 10_000, 1 => 1 << 20, DESCRIPTORS;
    /// One command with all its arguments.
    command_bytes_max: ByteSize = ByteSize(64 << 20), 1 << 10 => wire::codec::VALUE_BYTES_MAX, FRAME;
    key_bytes_max: ByteSize = ByteSize(64 << 10), 1 => wire::codec::KEY_BYTES_MAX, FRAME;
    /// Arguments of one command (Redis: 1024 * 1024).
    arguments_max: usize = 1 << 20, 16 => 1 << 24, "common commands have up to 16 arguments";
    /// Unanswered commands of one client, above which the next ones wait.
    pipeline_max: usize = RouterSettings::default().pipeline_max, 1 => 1 << 20, "the clients wait for replies at last";
    /// Bytes of those and of replies that wait for their turn, above which the next ones wait.
    pipeline_bytes_max: ByteSize = ByteSize(RouterSettings::default().pipeline_bytes_max as u64), 1 => 1u64 << 40, MEMORY;
    /// Commands of one transaction between MULTI and EXEC; one more is refused, and with it the transaction.
    transaction_bytes_max: ByteSize = ByteSize(RouterSettings::default().transaction_bytes_max as u64), 1 << 10 => 128u64 << 20, TRANSACTION;
    /// Unwritten replies of one client, above which no more of its commands are carried out while few wait.
    output_bytes_max: ByteSize = ByteSize(1 << 20), 0 => 1u64 << 40, MEMORY;
    /// Commands of one client that wait for those before them, or for it to read its replies; above it no more is read
    /// from it. Many clients read nothing before they have sent everything.
    client_input_bytes_max: ByteSize = ByteSize(256 << 20), 64 << 10 => 1u64 << 40, "a command is taken in pieces of 64 KiB";
    /// What all clients of one router hold together: commands that are unfinished, wait or are unanswered, and unwritten
    /// replies. Above it the clients that hold the most are closed.
    client_buffers_bytes_max: ByteSize = memory::for_clients(), 1 << 20 => 1u64 << 40, MEMORY;
    /// A client that is silent for longer is closed; 0 for never.
    client_idle_ms_max: u64 = 0, 0 => A_DAY_MS, NEVER;
    /// A client that has to show who it is and does not is closed after this; 0 for never.
    authentication_ms_max: u64 = 60_000, 0 => A_DAY_MS, NEVER;
    /// Keys that clients of one router track, and those of one shim that routers do; the oldest are forgotten.
    tracking_keys_max: usize = ShimConfig::default().tracked_max, 0 => 1 << 30, MEMORY;
    /// Replies that another member has not taken from one link; beyond it large ones are dropped, and reads answered elsewhere.
    unread_replies_bytes_max: ByteSize = memory::for_unread_replies(), 1 << 20 => 1u64 << 40, MEMORY;
    /// Authentication of a connection between members takes no longer than this.
    handshake_ms_max: u64 = 5_000, 100 => HOUR_MS, BUSY;
    /// Clients of one router that may be in their TLS handshake; one more, and the oldest gives way.
    handshakes_max: usize = 1024, 1 => 1 << 20, DESCRIPTORS;
    /// Commands that wait at one shim.
    shim_queue_max: usize = ShimSettings::default().operations_max, 1 => 1 << 24, MEMORY;
    /// Commands that wait for one key at a shim.
    key_queue_max: usize = ShimSettings::default().key_queue_max, 1 => 1 << 24, MEMORY;
    /// Blocking commands that run at one shim, each on a storage connection of its own.
    blocking_max: usize = ShimConfig::default().blocking_max, 0 => 65_535, "each is a connection to the storage server";
    /// Large replies under way at one shim, each on a storage connection of its own and with a MiB in memory.
    large_replies_max: usize = memory::for_large_replies(), 1 => 65_535, "each is a connection to the storage server";
    /// Keys that one shim moves to other storage servers in a second, besides those that are asked for; 0 for as many as it can.
    moved_keys_rate_max: u64 = 0, 0 => 10_000_000, "0 is for no limit";
    /// Reads that wait for fills at one node.
    node_queue_max: usize = NodeSettings::default().forwarded_max, 1 => 1 << 24, MEMORY;
    /// Views cached of one key.
    views_max: usize = NodeSettings::default().views_max, 1 => 65_536, "all of them are invalidated with every write of their key";
    /// Copies of one key, however hot it is; 0 for as many as there are nodes. There is always one in each layer.
    copies_max: usize = ShimSettings::default().copies_max, 0 => 65_535, "there are no more nodes";
    /// Keys that one router believes to be cached (learned mode).
    learned_max: usize = RouterSettings::default().learned_max, 1 => 1 << 24, "a router reserves 10 bytes for each at once";
    /// A storage server that answers nothing for this long is taken for lost.
    storage_ms_max: u64 = 5_000, 100 => HOUR_MS, BUSY;
    /// What becomes of commands that are more than a storage server or node can do now.
    overload: Overload = Overload::Wait;
    /// How long a command may wait before it is begun; beyond that it is answered `-BUSY`. Without it the larger of two leases
    /// and `storage_ms_max`.
    queue_ms_max: Option<u64> = None, 100 => HOUR_MS, WAITS;
}
}

/// What becomes of commands that cannot be begun at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overload {
    /// Requests wait for as long as `queue_ms_max`, dealt fairly over clients.
    #[default]
    Wait,
    /// Requests are answered `-BUSY` at once if they would be late.
    Refuse,
}

impl Limits {
    pub(super) fn set_node(&self, settings: &mut NodeSettings) {
        settings.views_max = self.views_max;
        settings.forwarded_max = self.node_queue_max;
        settings.requests.queue_max = self.node_queue_max;
    }

    pub(super) fn set_shim(&self, settings: &mut ShimSettings) {
        settings.operations_max = self.shim_queue_max;
        settings.key_queue_max = self.key_queue_max;
        settings.copies_max = self.copies_max;
        settings.requests.queue_max = self.shim_queue_max;
        // Routers may have half of the room here, and nodes the other half.
        settings.requests.window_max = u32::try_from(self.shim_queue_max / 2).unwrap_or(u32::MAX);
    }

    pub(super) fn set_router(&self, settings: &mut RouterSettings) {
        let unless_zero = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        settings.pipeline_max = self.pipeline_max;
        settings.pipeline_bytes_max = self.pipeline_bytes_max.0 as usize;
        settings.transaction_bytes_max = self.transaction_bytes_max.0 as usize;
        settings.key_bytes_max = (self.key_bytes_max.0 as usize).min(wire::codec::KEY_BYTES_MAX);
        settings.learned_max = self.learned_max;
        settings.client_limits = ClientLimits {
            held_bytes_max: self.client_buffers_bytes_max.0,
            idle_max: unless_zero(self.client_idle_ms_max),
            unauthenticated_max: unless_zero(self.authentication_ms_max),
        };
    }
}
