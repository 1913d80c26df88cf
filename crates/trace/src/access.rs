//! One access of a trace, the same whatever format it came from. Not how it is stored.

/// Who asked for what, in a trace that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Seconds, counted from wherever the trace counts; 0 where the format has no time.
    pub time: u64,
    pub object: u64,
    /// At least 1, so that nobody divides by nothing: 1 where the format has no sizes or says 0.
    pub bytes: u64,
    pub next: NextAccess,
    pub operation: AccessOperation,
}

/// When the same object is accessed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAccess {
    /// The number of that access; the first of a trace is number 1.
    Known(u64),
    Never,
    /// The format does not say.
    Unknown,
}

/// What the access does. Simulators of reads and writes alike count all of them, as the field's references do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOperation {
    /// Also where the format does not say.
    Read,
    Write,
    Delete,
}

impl AccessOperation {
    /// As the text formats write it, in whatever case: memcached's commands, Meta's, and plain read and write.
    pub(crate) fn from_name(name: &[u8]) -> Option<AccessOperation> {
        const NAMES: [(AccessOperation, &[&str]); 3] = [
            (AccessOperation::Read, &["get", "gets", "read", "get_lease", "gat", "gats", "r"]),
            (
                AccessOperation::Write,
                &[
                    "set",
                    "add",
                    "replace",
                    "cas",
                    "append",
                    "prepend",
                    "incr",
                    "decr",
                    "write",
                    "update",
                    "set_lease",
                    "put",
                    "w",
                ],
            ),
            (AccessOperation::Delete, &["delete", "d"]),
        ];
        let named = |&&(_, names): &&(_, &[&str])| {
            names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        };
        NAMES.iter().find(named).map(|&(operation, _)| operation)
    }

    pub fn name(self) -> &'static str {
        match self {
            AccessOperation::Read => "read",
            AccessOperation::Write => "write",
            AccessOperation::Delete => "delete",
        }
    }
}
