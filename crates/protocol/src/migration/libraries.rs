//! Functions that clients have loaded at the old home, for commands of the keys that leave. Not keys.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::Value;

use super::servers::MigrationPlace;
use super::transfer::frame;
use super::{Migration, MigrationStep, MoveQuestion};
use crate::time::Time;

/// The library that says whose keys a server holds: each has its own.
const MARK: &[u8] = b"distcache";
/// After a destination has taken one of them not.
const REST: Duration = Duration::from_secs(1);

/// How far they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Libraries {
    #[default]
    Unasked,
    Asked,
    /// So many are on their way to destinations.
    Loading(usize),
    Refused(Time),
}

impl Migration {
    /// Whether destinations have what the home has. Before that no key leaves, unless some have left already.
    pub(super) fn has_loaded(&mut self, step: &mut MigrationStep<'_>) -> bool {
        match self.libraries {
            Libraries::Unasked => {
                self.libraries = Libraries::Asked;
                let question = SmallVec::from_elem(frame(&[b"FUNCTION", b"LIST", b"WITHCODE"]), 1);
                self.ask(step, MigrationPlace::Home, MoveQuestion::Libraries, question);
                false
            }
            Libraries::Asked => false,
            Libraries::Loading(left) => left == 0,
            Libraries::Refused(at) => {
                if step.now.since(at) >= REST {
                    self.libraries = Libraries::Unasked;
                }
                self.again
            }
        }
    }

    /// Where there are no functions, or nobody may list them, nobody calls any.
    pub(super) fn listed(&mut self, step: &mut MigrationStep<'_>, replies: &[Bytes]) {
        let reply = replies.first().and_then(|reply| Value::parse(reply).ok());
        let libraries = reply.as_ref().and_then(Value::elements).unwrap_or_default();
        let codes: Vec<Bytes> = libraries.iter().filter_map(code).collect();
        let destinations: Vec<_> = self.destinations.keys().copied().collect();
        self.libraries = Libraries::Loading(codes.len() * destinations.len());
        for shim in destinations {
            for code in &codes {
                let command = SmallVec::from_elem(frame(&[b"FUNCTION", b"LOAD", code]), 1);
                self.ask(step, MigrationPlace::Destination(shim), MoveQuestion::Load, command);
            }
        }
    }

    /// One that is there already is as good: they are loaded at all servers.
    pub(super) fn loaded(&mut self, now: Time, replies: &[Bytes]) {
        let Libraries::Loading(left) = self.libraries else { return };
        let reply = String::from_utf8_lossy(replies.first().map_or(b"", |reply| reply)).into_owned();
        if reply.starts_with('-') && !reply.contains("already exists") {
            self.progress.reason =
                Some(format!("FUNCTION LOAD at the new server: {}", reply[1..].trim_end()));
            self.libraries = Libraries::Refused(now);
        } else {
            self.libraries = Libraries::Loading(left - 1);
        }
    }
}

/// What loads a library, as FUNCTION LIST shows it; none of the mark.
fn code(library: &Value) -> Option<Bytes> {
    let fields = library.elements()?;
    let field = |name: &str| {
        let at = fields.iter().position(|field| field.bytes().is_some_and(|bytes| bytes == name))?;
        fields.get(at + 1)?.bytes().cloned()
    };
    field("library_code").filter(|_| field("library_name").is_some_and(|name| name != MARK))
}
