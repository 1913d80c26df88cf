//! The server under load, as a URL says it: where it is, with TLS or not, and as whom. Not a connection to it.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use config::{RedisServers, StorageConfig};
use runtime::reactor::Address;
use runtime::tls::Dialer;

const FORMS: &str = "use redis://[USER:PASSWORD@]HOST:PORT (rediss:// with TLS) or redis+unix:///PATH";

#[derive(Clone, Debug)]
pub(crate) struct BenchTarget {
    pub(crate) address: Address,
    pub(crate) tls: Option<Dialer>,
    /// What each connection says first.
    pub(crate) login: Option<Bytes>,
}

impl BenchTarget {
    /// Without TLS, as the `default` user.
    pub(crate) fn plain(address: Address) -> BenchTarget {
        BenchTarget { address, tls: None, login: None }
    }
}

impl fmt::Display for BenchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Reads the URL; a host name is resolved here, once. Errors never repeat it, because it may hold a password.
pub(crate) fn parse(url: &str, ca_file: Option<&Path>) -> Result<BenchTarget> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        Some("redis" | "rediss" | "redis+unix") => {}
        Some("memcached") => bail!("--target: memcached:// is not in this release; {FORMS}"),
        Some(other) => bail!("--target: unknown scheme {other}; {FORMS}"),
        None => bail!("--target: not a URL; {FORMS}"),
    }
    // Its own list of forms has some that cannot be loaded.
    let short = |error: String| match error.split_once(": write embedded") {
        Some((what, _)) => what.to_owned(),
        None => error,
    };
    let parsed = url.parse::<StorageConfig>();
    let parsed = parsed.map_err(|error| anyhow::anyhow!("--target: {}; {FORMS}", short(error)))?;
    let StorageConfig::Redis(redis) = parsed else {
        bail!("--target: {FORMS}");
    };
    let RedisServers::One { address, host } = redis.servers else {
        bail!("--target: {FORMS}");
    };
    ensure!(
        redis.tls || ca_file.is_none(),
        "--ca-file is for TLS, and the target has none: write rediss:// or leave it away"
    );
    let tls = redis.tls.then(|| {
        let ca_file =
            ca_file.context("--target rediss://: give the authority's certificate with --ca-file")?;
        Dialer::trusting(ca_file, &host).map_err(anyhow::Error::msg).context("--ca-file")
    });
    let login = redis.login.command().map(|command| command.frame().clone());
    Ok(BenchTarget { address, tls: tls.transpose()?, login })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_addresses() {
        let tcp = |text: &str| Address::Tcp(text.parse().expect("an address"));
        for (url, expected) in [
            ("redis://127.0.0.1:6380", tcp("127.0.0.1:6380")),
            ("redis://127.0.0.1", tcp("127.0.0.1:6379")),
            ("redis://127.0.0.1:6380/", tcp("127.0.0.1:6380")),
            ("redis://[::1]:7000", tcp("[::1]:7000")),
            ("redis://[::1]", tcp("[::1]:6379")),
            ("redis+unix:///tmp/a.sock", Address::Unix("/tmp/a.sock".into())),
        ] {
            let target = parse(url, None).expect(url);
            assert_eq!(target.address, expected, "{url}");
            assert!(target.tls.is_none() && target.login.is_none(), "{url}");
        }
    }

    #[test]
    fn logins_are_sent_as_redis_wants_them() {
        let login = |url: &str| parse(url, None).expect(url).login.expect("a login");
        assert_eq!(login("redis://me:s%40fe@127.0.0.1"), "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\ns@fe\r\n");
        assert_eq!(login("redis://:x@127.0.0.1"), "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
    }

    #[test]
    fn refusals_say_why_and_keep_the_password() {
        for (url, ca_file, reason) in [
            ("127.0.0.1:6380", None, "not a URL"),
            ("memcached://127.0.0.1:11211", None, "not in this release"),
            ("http://127.0.0.1:80", None, "unknown scheme http"),
            ("redis+unix://tmp/a", None, "path must start with a slash"),
            ("redis://me:secret@127.0.0.1:6379/3", None, "database"),
            ("redis://:secret@:6379x", None, "is not a port"),
            ("redis://", None, "host is missing"),
            ("rediss://me:secret@127.0.0.1", None, "give the authority's certificate with --ca-file"),
            ("rediss://127.0.0.1", Some("/nonexistent/ca.crt"), "/nonexistent/ca.crt"),
            ("redis://127.0.0.1", Some("ca.crt"), "the target has none"),
        ] {
            let error = parse(url, ca_file.map(Path::new)).expect_err(url);
            let error = format!("{error:#}");
            assert!(error.contains(reason) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
