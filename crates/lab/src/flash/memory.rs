//! How much memory there is for what a subcommand simulates, so that it is refused before it is taken. It takes none.

use config::ByteSize;
use config::memory::in_meminfo;
use rustix::process::{Resource, getrlimit};

use crate::terminal::BadInput;

/// Refuses what needs more than there is; `flag` is what asks for so much.
pub(super) fn check(flag: &str, bytes: u64) -> Result<(), BadInput> {
    match available() {
        Some(available) if bytes > available => Err(BadInput(format!(
            "{flag}: takes {} of memory, and {} are available; make it smaller, or give --device a PATH",
            mib(bytes),
            mib(available)
        ))),
        _ => Ok(()),
    }
}

fn mib(bytes: u64) -> ByteSize {
    ByteSize(bytes.div_ceil(1 << 20).saturating_mul(1 << 20))
}

/// What the machine can give without swapping, or what this process may have if that is less. None where nobody tells.
fn available() -> Option<u64> {
    let machine =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_meminfo(&text, "MemAvailable"));
    let limit = getrlimit(Resource::As).current;
    machine.into_iter().chain(limit).min()
}

#[cfg(test)]
mod tests {
    use super::in_meminfo;

    #[test]
    fn what_is_available_is_read() {
        let meminfo =
            "MemTotal:       24606412 kB\nMemFree: 1 kB\nMemAvailable:   22130032 kB\nBuffers: 3 kB\n";
        assert_eq!(in_meminfo(meminfo, "MemAvailable"), Some(22_130_032 << 10));
        assert_eq!(in_meminfo("MemTotal: 1 kB\n", "MemAvailable"), None);
    }
}
