//! Where the servers of HTTP requests are, without a thread to ask. Not the requests.

use std::net::{IpAddr, SocketAddr};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::unversioned::transport::time::Duration;

/// Takes addresses as they are, and looks names up on the thread that asks, for as long as that takes. The default resolver makes
/// a thread for each connection, and panics where there can be none.
#[derive(Debug, Default)]
pub(crate) struct ThreadlessResolver(DefaultResolver);

impl Resolver for ThreadlessResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        match (host.parse::<IpAddr>(), uri.port_u16()) {
            (Ok(ip), Some(port)) => {
                let mut found = self.empty();
                found.push(SocketAddr::new(ip, port));
                Ok(found)
            }
            _ => self.0.resolve(uri, config, NextTimeout { after: Duration::NotHappening, ..timeout }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(uri: &str) -> Result<Vec<SocketAddr>, Error> {
        let timeout = NextTimeout {
            after: Duration::Exact(std::time::Duration::from_secs(1)),
            ..NextTimeout::default()
        };
        let found = ThreadlessResolver::default().resolve(
            &uri.parse().expect("a URI"),
            &Config::default(),
            timeout,
        )?;
        Ok(found.iter().copied().collect())
    }

    #[test]
    fn addresses_are_taken_and_names_looked_up() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(resolved("http://10.1.2.3:7000/v1").expect("found"), [address("10.1.2.3:7000")]);
        assert_eq!(resolved("http://[::1]:7000/v1").expect("found"), [address("[::1]:7000")]);
        let local = resolved("https://localhost/").expect("found");
        assert!(local.iter().all(|found| found.ip().is_loopback() && found.port() == 443), "{local:?}");
    }
}
