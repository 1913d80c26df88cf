//! The server under load, as a URL says it. Not a connection to it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use runtime::reactor::Address;

const FORMS: &str = "use redis://HOST:PORT or redis+unix:///PATH";

/// Reads `redis://HOST:PORT` or `redis+unix:///PATH`; a host name is resolved here, once.
pub(crate) fn parse(url: &str) -> Result<Address> {
    let Some((scheme, rest)) = url.split_once("://") else {
        bail!("--target {url}: not a URL; {FORMS}");
    };
    match scheme {
        "redis" => tcp(url, rest.strip_suffix('/').unwrap_or(rest)),
        "redis+unix" => {
            ensure!(rest.starts_with('/'), "--target {url}: the path must be absolute; {FORMS}");
            Ok(Address::Unix(PathBuf::from(rest)))
        }
        "memcached" => bail!("--target {url}: memcached is not in this release; {FORMS}"),
        other => bail!("--target {url}: unknown scheme {other}; {FORMS}"),
    }
}

fn tcp(url: &str, rest: &str) -> Result<Address> {
    ensure!(!rest.contains('@'), "--target {url}: credentials are not in this release; {FORMS}");
    ensure!(!rest.contains('/'), "--target {url}: a database number is not in this release; {FORMS}");
    ensure!(!rest.is_empty(), "--target {url}: the host is missing; {FORMS}");
    let with_port = if has_port(rest) { rest.to_owned() } else { format!("{rest}:6379") };
    let mut addresses: Vec<SocketAddr> = with_port
        .to_socket_addrs()
        .with_context(|| format!("--target {url}: {with_port} is no host and port; {FORMS}"))?
        .collect();
    // Servers on this machine mostly listen on 127.0.0.1 alone, while `localhost` often names ::1 first.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let address = addresses.first().with_context(|| format!("--target {url}: the name has no address"))?;
    Ok(Address::Tcp(*address))
}

fn has_port(authority: &str) -> bool {
    // The colons of [::1] are not in front of a port.
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
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
            assert_eq!(parse(url).expect(url), expected, "{url}");
        }
    }

    #[test]
    fn refusals_say_why() {
        for (url, reason) in [
            ("127.0.0.1:6380", "not a URL"),
            ("memcached://127.0.0.1:11211", "not in this release"),
            ("http://127.0.0.1:80", "unknown scheme http"),
            ("redis+unix://tmp/a", "must be absolute"),
            ("redis://user:secret@127.0.0.1:6379", "credentials"),
            ("redis://127.0.0.1:6379/3", "database number"),
            ("redis://:6379x", "no host and port"),
            ("redis://", "host is missing"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
