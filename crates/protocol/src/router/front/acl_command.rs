//! The ACL command, answered from the users that this router knows. Changing them is not up to it.

use bytes::Bytes;
use wire::resp::{Command, reply};

use commands::acl::{Denied, User, UserRules, Users};

use crate::router::config::UserSource;
use crate::router::flow::plan::names_fences;
use crate::router::front::Front;
use crate::router::front::acl_log::{AclEntry, AclLog, ENTRIES_MAX};
use crate::router::front::desk::Desk;
use crate::router::front::whole::ThreadShare;
use crate::router::{replies, words};
use crate::time::Time;
use commands::integer;

/// Entries of ACL LOG that are shown where no number is given.
const ENTRIES_SHOWN: i64 = 10;
const CONFIGURED: &str = "ERR DistCache: this router's users stand in its configuration; change the [[user]] sections, or \
                          write users = \"storage\" under [security] to have those of storage";

/// Everything but what storage is asked for.
pub(crate) fn answer(front: &mut Front, desk: &Desk<'_>, client: u32, command: &Command) -> Option<Bytes> {
    let resp3 = front.sessions.get(client)?.resp3;
    let sub = words::upper(command.get(1).unwrap_or_default());
    let users = front.permissions.users();
    let mut out = Vec::new();
    match (sub.as_slice(), command.len()) {
        (b"WHOAMI", 2) => reply::bulk(&front.sessions.get(client)?.identity.user.name, &mut out),
        (b"USERS", 2) => {
            reply::array_header(users.all().len(), &mut out);
            users.all().for_each(|user| reply::bulk(&user.name, &mut out));
        }
        (b"LIST", 2) => {
            reply::array_header(users.all().len(), &mut out);
            users.all().for_each(|user| reply::bulk(&user.line(), &mut out));
        }
        (b"GETUSER", 3) => match users.get(command.arg(2)) {
            Some(user) => describe(user, resp3, &mut out),
            None => reply::null(resp3, &mut out),
        },
        (b"CAT", 2) => strings(Users::categories(), &mut out),
        (b"CAT", 3) => match Users::commands_of(command.arg(2)) {
            Some(names) => strings(names.collect::<Vec<_>>().into_iter(), &mut out),
            None => {
                let name = &command.arg(2)[..command.arg(2).len().min(128)];
                let name = String::from_utf8_lossy(name);
                return Some(replies::error(&format!("ERR Unknown category '{name}'")));
            }
        },
        (b"DRYRUN", 4..) => return Some(dry_run(users, command)),
        (b"SETUSER" | b"DELUSER" | b"LOAD" | b"SAVE", _) => {
            return Some(match desk.step.config.users {
                UserSource::Given(_) => replies::error(CONFIGURED),
                UserSource::Storage if names_fences(command) => replies::error(
                    "ERR DistCache: users whose names begin with 'distcache:' fence the storage connections of shims; \
                     choose another name",
                ),
                UserSource::Storage => replies::error(
                    "ERR DistCache: users cannot be changed inside a transaction; send ACL outside of MULTI",
                ),
            });
        }
        _ => {
            let sub = String::from_utf8_lossy(command.get(1).unwrap_or_default()).into_owned();
            return Some(replies::error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try ACL HELP."
            )));
        }
    }
    Some(out.into())
}

fn strings(names: impl ExactSizeIterator<Item = &'static str>, out: &mut Vec<u8>) {
    reply::array_header(names.len(), out);
    names.for_each(|name| reply::bulk(name.as_bytes(), out));
}

/// One user as ACL GETUSER shows it.
fn describe(user: &User, resp3: bool, out: &mut Vec<u8>) {
    let rules: &UserRules = user.rules();
    reply::map_header(6, resp3, out);
    reply::bulk(b"flags", out);
    let flags = rules.flags();
    reply::set_header(flags.len(), resp3, out);
    flags.iter().for_each(|flag| reply::bulk(flag.as_bytes(), out));
    reply::bulk(b"passwords", out);
    let passwords = rules.passwords();
    reply::array_header(passwords.len(), out);
    passwords.for_each(|hash| reply::bulk(hash.as_bytes(), out));
    let mut selectors = rules.descriptions();
    if let Some(own) = selectors.next() {
        describe_selector(&own, out);
    }
    reply::bulk(b"selectors", out);
    reply::array_header(selectors.len(), out);
    for selector in selectors {
        reply::map_header(3, resp3, out);
        describe_selector(&selector, out);
    }
}

fn describe_selector(parts: &[Vec<u8>; 3], out: &mut Vec<u8>) {
    for (name, part) in ["commands", "keys", "channels"].iter().zip(parts) {
        reply::bulk(name.as_bytes(), out);
        reply::bulk(part, out);
    }
}

/// `ACL DRYRUN user command [argument]...`
fn dry_run(users: &Users, command: &Command) -> Bytes {
    let text = |index: usize| String::from_utf8_lossy(command.arg(index)).into_owned();
    let Some(user) = users.get(command.arg(2)) else {
        return replies::error(&format!("ERR User '{}' not found", text(2)));
    };
    let tried = Command::from_args(&command.args().skip(3).collect::<Vec<_>>());
    let Ok(spec) = commands::resolve(&tried) else {
        return replies::error(&format!("ERR Command '{}' not found", text(3)));
    };
    if !spec.accepts(tried.len()) {
        let name = spec.name;
        return replies::error(&format!("ERR wrong number of arguments for '{name}' command"));
    }
    let what = match user.check(spec, &tried) {
        Ok(()) => return replies::OK,
        Err(Denied::Command) => format!("run the '{}' command", spec.name),
        Err(Denied::Key(index)) => format!("access the '{}' key", text(3 + index)),
        Err(Denied::Channel(index)) => format!("access the '{}' channel", text(3 + index)),
    };
    replies::bulk_string(format!("This user has no permissions to {what}").as_bytes())
}

/// What a thread says to ACL LOG [count | RESET].
pub(crate) fn share(log: &mut AclLog, command: &Command) -> Result<ThreadShare, Bytes> {
    if words::is(command, 2, "RESET") {
        log.clear();
        return Ok(ThreadShare::Done);
    }
    let count = entries_wanted(command);
    let count = count.ok_or_else(|| replies::error("ERR value is not an integer or out of range"))?;
    Ok(ThreadShare::Denials(log.newest(count).cloned().collect()))
}

fn entries_wanted(command: &Command) -> Option<usize> {
    let count = command.get(2).map_or(Some(ENTRIES_SHOWN), integer)?;
    Some(usize::try_from(count.max(0)).unwrap_or(usize::MAX))
}

/// The entries of all threads, the newest first.
pub(crate) fn shown(entries: &[AclEntry], now: Time, command: &Command, resp3: bool) -> Bytes {
    // Each thread has as many as the log may have.
    let count = entries_wanted(command).unwrap_or(0).min(entries.len()).min(ENTRIES_MAX);
    let mut out = Vec::new();
    reply::array_header(count, &mut out);
    entries[..count].iter().for_each(|entry| describe_entry(entry, now, resp3, &mut out));
    out.into()
}

fn describe_entry(entry: &AclEntry, now: Time, resp3: bool, out: &mut Vec<u8>) {
    reply::map_header(7, resp3, out);
    reply::bulk(b"count", out);
    reply::integer(entry.count as i64, out);
    let texts: [(&str, &[u8]); 4] = [
        ("reason", entry.reason.word().as_bytes()),
        ("context", entry.place.word().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ];
    for (name, value) in texts {
        reply::bulk(name.as_bytes(), out);
        reply::bulk(value, out);
    }
    reply::bulk(b"age-seconds", out);
    reply::double(now.since(entry.at).as_millis() as f64 / 1000.0, resp3, out);
    reply::bulk(b"client-info", out);
    reply::bulk(entry.client.as_bytes(), out);
}
