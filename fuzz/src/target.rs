//! The list of targets and what holds for all of them: no panic, and memory bounded by the size of the input.

use crate::targets;

/// One thing that is fuzzed.
pub struct Target {
    /// Name of the target, and of its corpus folder.
    pub name: &'static str,
    /// Longest input worth trying: beyond it inputs only get slower.
    input_bytes_max: usize,
    run: fn(&[u8]),
    memory: Memory,
}

/// How much an input may make the product hold at one time: what a decoder needs for any input, and for each byte.
/// Far above what is needed, far below what a length that is believed unread would take.
struct Memory {
    fixed: u64,
    per_byte: u64,
}

const DECODER: Memory = Memory { fixed: 64 << 10, per_byte: 256 };
/// TOML that goes wrong at every byte collects an error for each; the operator wrote it.
const DOCUMENT: Memory = Memory { fixed: 256 << 10, per_byte: 4096 };
/// Files are read in large pieces, and decompressors have windows.
const BUFFERED: Memory = Memory { fixed: 16 << 20, per_byte: 4096 };
/// The rings and tables of a small cluster, made anew for each input.
const MACHINE: Memory = Memory { fixed: 4 << 20, per_byte: 4096 };
/// A device of 256 KiB in memory, more than once, and the buffers of a cache on it.
const DEVICE: Memory = Memory { fixed: 12 << 20, per_byte: 4096 };

pub static TARGETS: [Target; 19] = [
    decoder("resp_commands", targets::resp_commands::run),
    decoder("resp_replies", targets::resp_replies::run),
    decoder("memcached", targets::memcached::run),
    decoder("wire", targets::wire::run),
    decoder("handshake", targets::handshake::run),
    Target { memory: DOCUMENT, ..decoder("config", targets::config::run) },
    decoder("heartbeats", targets::heartbeats::run),
    decoder("commands", targets::commands::run),
    Target { memory: DOCUMENT, ..decoder("users", targets::users::run) },
    Target { memory: BUFFERED, input_bytes_max: 9000, ..decoder("traces", targets::traces::run) },
    machine("cluster_map", targets::cluster_map::run),
    machine("embedded", targets::embedded::run),
    machine("node", targets::node::run),
    machine("shim", targets::shim::run),
    machine("router", targets::router::run),
    machine("controller", targets::controller::run),
    machine("shards", targets::shards::run),
    machine("stored_map", targets::stored_map::run),
    Target { memory: DEVICE, ..machine("flash", targets::flash::run) },
];

const fn decoder(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, input_bytes_max: 4096, run, memory: DECODER }
}

const fn machine(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, input_bytes_max: 2048, run, memory: MACHINE }
}

/// Must fail: not among the others.
static PLANTED: Target = decoder("planted", targets::planted::run);

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().chain([&PLANTED]).find(|target| target.name == name)
}

impl Target {
    /// Runs one input.
    ///
    /// # Panics
    /// When the product does something that it must not do for any input.
    pub fn check(&self, data: &[u8]) {
        let data = &data[..data.len().min(self.input_bytes_max)];
        let held = allocation_counter::measure(|| (self.run)(data)).bytes_max;
        let bound = self.memory.fixed + self.memory.per_byte * data.len() as u64;
        assert!(held <= bound, "{} bytes of input made {} hold {held} bytes", data.len(), self.name);
    }
}
