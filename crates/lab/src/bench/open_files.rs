//! The process' limit of open files, which many connections exceed. Not a limit of our own.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For everything that is not a connection under load.
const OTHERS: u64 = 64;

/// Raises the soft limit as far as `connections` need it, which the hard limit mostly allows.
pub(crate) fn allow(connections: usize) -> Result<()> {
    let needed = connections as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum
        && maximum < needed
    {
        bail!(
            "{connections} connections need {needed} open files, but {maximum} are allowed; raise `ulimit -Hn`"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("cannot raise the limit of open files; raise `ulimit -n`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_or_the_refusal_says_how() {
        let limit = getrlimit(Resource::Nofile);
        let current = limit.current.unwrap_or(u64::MAX);
        allow(1).expect("every test process may open so few");
        assert!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) >= current);
        if let Some(maximum) = limit.maximum {
            let error = allow(maximum as usize).expect_err("more than the hard limit");
            assert!(error.to_string().contains("ulimit"), "{error}");
        }
    }
}
