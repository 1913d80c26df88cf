//! Commands for storage that is a memcached: a meta command as a frame of arguments, its name with a dot before it. The
//! flags about the reply's shape stay with the router.

use wire::memcached::Meta;
use wire::resp::Command;

/// Flags that only shape what the client gets.
const ROUTERS_FLAGS: &[u8] = b"kOqb";

/// `name key [value] flag...`
pub(super) fn command(name: &str, key: &[u8], value: Option<&[u8]>, flags: &[&[u8]]) -> Command {
    let mut args: Vec<&[u8]> = vec![name.as_bytes(), key];
    args.extend(value);
    args.extend_from_slice(flags);
    Command::from_args(&args)
}

/// A client's meta command with what concerns storage.
pub(super) fn forward(name: &str, meta: &Meta) -> Command {
    let flags = meta.flags.iter().map(|flag| &flag[..]).filter(|flag| !ROUTERS_FLAGS.contains(&flag[0]));
    command(name, &meta.key, meta.value.as_deref(), &flags.collect::<Vec<_>>())
}
