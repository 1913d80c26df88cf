//! What part of the memory that this process may have its clients, their large replies and its links get, unless the file says so.
//! It takes none.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::ByteSize;

/// More is of no use to clients that read their replies.
const CLIENTS_MIB_MAX: u64 = 1024;
/// More would only be more connections to storage.
const LARGE_REPLIES_MAX: u64 = 128;
/// A member with more unread is better asked elsewhere.
const UNREAD_MIB_MAX: u64 = 64;
/// Buffers are moved when they grow, copies and tables take the rest.
const PART: u64 = 8;

/// The default of `client_buffers_bytes_max`: a whole number of MiB.
pub(super) fn for_clients() -> ByteSize {
    ByteSize(part_mib().min(CLIENTS_MIB_MAX) << 20)
}

/// The default of `large_replies_max`. Each has a MiB on its way.
pub(super) fn for_large_replies() -> usize {
    part_mib().min(LARGE_REPLIES_MAX) as usize
}

/// The default of `unread_replies_bytes_max`.
pub(super) fn for_unread_replies() -> ByteSize {
    ByteSize(part_mib().min(UNREAD_MIB_MAX) << 20)
}

/// What one kind of buffers may take, at least one MiB.
fn part_mib() -> u64 {
    static PART_MIB: OnceLock<u64> = OnceLock::new();
    *PART_MIB.get_or_init(|| part(limits(Path::new("/")).min()))
}

fn part(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| ((limit / PART) >> 20).max(1))
}

/// What the process may have at most, by whoever says so below `root`.
fn limits(root: &Path) -> impl Iterator<Item = u64> {
    let own = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    // Threads reserve addresses that they never use.
    let addresses = limit(&own, "Max address space").map(|addresses| addresses / 4);
    let processes = [addresses, limit(&own, "Max data size")];
    let machine =
        fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| in_meminfo(&text, "MemTotal"));
    processes.into_iter().flatten().chain(machine).chain(groups(root))
}

/// The soft limit of that name, from /proc/self/limits.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The bytes of a line of /proc/meminfo.
pub fn in_meminfo(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limits of the control group and of all above it, in both versions of cgroup.
fn groups(root: &Path) -> Vec<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, file) = match kinds {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if kinds.split(',').any(|kind| kind == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = PathBuf::from(path.trim_start_matches('/'));
        let files = path.ancestors().map(|group| root.join(base).join(group).join(file));
        limits.extend(files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_a_part_of_what_there_is() {
        let mib = |limit_mib: u64| part(Some(limit_mib << 20));
        assert_eq!([mib(4), mib(256), mib(1000), mib(1 << 20)], [1, 32, 125, 1 << 17]);
        assert_eq!(part(None), u64::MAX);
        assert!((1..=1 << 30).contains(&for_clients().0) && (1..=128).contains(&for_large_replies()));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax data size  unlimited  unlimited  bytes\n\
                      Max address space  536870912  unlimited  bytes\n";
        let found = ["Max address space", "Max data size", "Max nothing"].map(|name| limit(limits, name));
        assert_eq!(found, [Some(512 << 20), None, None]);
        let meminfo = "MemTotal:       24606412 kB\nMemFree: 1 kB\n";
        assert_eq!(in_meminfo(meminfo, "MemTotal"), Some(24_606_412 << 10));
        assert_eq!(in_meminfo("MemFree: 1 kB\n", "MemTotal"), None);
    }

    #[test]
    fn groups_are_limited_by_those_above_them() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        assert_eq!(groups(root.path()), []);
        write("proc/self/cgroup", "3:cpu,memory:/a\n1:name=systemd:/x\n0::/b/c\nnonsense\n");
        write("sys/fs/cgroup/b/c/memory.max", "max\n");
        write("sys/fs/cgroup/b/memory.max", "2000\n");
        write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000\n");
        let mut found = groups(root.path());
        found.sort_unstable();
        assert_eq!(found, [2000, 3000]);
    }
}
