//! Who may ask what over HTTP: no web page, and for changes nobody without the cluster's secret. Not what is answered.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use config::{Config, Secret};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use crate::heartbeat::{self, digits, hexadecimal};

/// The header of requests that change something; its value is the [`CommandToken`].
pub const COMMAND_HEADER: &str = "x-distcache-command";
/// What tells nothing of keys or members: probes and scrapers ask by any name.
const OPEN: [&str; 3] = ["/health", "/ready", "/metrics"];

/// What only those can know who have the cluster's secret. It may be shown to nobody.
#[derive(Clone)]
pub struct CommandToken(Hmac<Sha256>);

impl CommandToken {
    pub fn derive(secret: &Secret) -> CommandToken {
        let mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
        CommandToken(mac.chain_update(b"distcache command 1"))
    }

    /// The header's value.
    pub fn text(&self) -> String {
        hexadecimal(&self.0.clone().finalize().into_bytes())
    }

    /// Takes the same time for every text.
    fn is(&self, text: &str) -> bool {
        digits(text).is_some_and(|bytes| self.0.clone().verify_slice(&bytes).is_ok())
    }
}

impl fmt::Debug for CommandToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandToken(..)")
    }
}

/// What is known of who may ask.
#[derive(Clone, Debug)]
pub struct HttpGuard {
    token: CommandToken,
    /// Names by which this machine is asked, besides `localhost` and addresses.
    names: Vec<String>,
    /// Nobody on the way hears the token.
    secured: bool,
}

impl HttpGuard {
    pub fn new(config: &Config) -> HttpGuard {
        HttpGuard {
            token: CommandToken::derive(config.secret()),
            names: config.security.http_hosts.clone(),
            secured: config.tls.http.is_some(),
        }
    }

    /// Why a request is refused, if it is.
    fn refusal(&self, method: &Method, path: &str, from: SocketAddr, headers: &HeaderMap) -> Option<String> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if path == heartbeat::PATH || reads && OPEN.contains(&path) {
            return None;
        }
        if headers.contains_key(header::ORIGIN) {
            return Some("a web page may not ask this; there is an Origin in the request".to_owned());
        }
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !self.is_known(host) {
            return Some(format!(
                "Host {host:?} is not known here: ask by IP address or localhost, or name it in http_hosts of [security]"
            ));
        }
        if reads {
            return None;
        }
        if !(self.secured || from.ip().is_loopback()) {
            return Some(
                "only taken from this machine without [tls.http]; run this command there".to_owned(),
            );
        }
        let token = headers.get(COMMAND_HEADER).and_then(|value| value.to_str().ok());
        (!token.is_some_and(|token| self.token.is(token))).then(|| {
            format!(
                "a change takes the cluster's secret: add --config FILE or --secret-file FILE; without distcache the header \
                 {COMMAND_HEADER} with what `distcache token --config FILE` prints"
            )
        })
    }

    /// A name that somebody else may have bound to this address says nothing of who is meant.
    fn is_known(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let is_own = |known: &String| known.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(is_own)
    }
}

/// Lets a request pass, or refuses it in words.
pub(super) async fn check(
    State(guard): State<Arc<HttpGuard>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match guard.refusal(request.method(), request.uri().path(), from, request.headers()) {
        None => next.run(request).await,
        Some(what) => (StatusCode::FORBIDDEN, Json(json!({ "error": what }))).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> HttpGuard {
        let mut config = Config::new("t", Secret([1; 16]));
        config.security.http_hosts = vec!["Cache.internal".to_owned()];
        HttpGuard::new(&config)
    }

    fn refused(method: &Method, path: &str, from: &str, fields: &[(&str, &str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = axum::http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.insert(name, value.parse().expect("a value"));
        }
        guard().refusal(method, path, from.parse().expect("an address"), &headers)
    }

    const HERE: &str = "127.0.0.1:5";

    #[test]
    fn web_pages_and_names_that_anybody_may_bind_are_refused() {
        let get = |host| refused(&Method::GET, "/v1/hot", HERE, &[("host", host)]);
        for host in
            ["127.0.0.1:7000", "[::1]:7000", "10.0.0.9", "localhost:7000", "LOCALHOST", "cache.internal:1"]
        {
            assert_eq!(get(host), None, "{host}");
        }
        for host in
            ["::1", "evil.example", "localhost.evil.example", "", "[evil]:1", "127.0.0.1.evil.example"]
        {
            assert!(get(host).is_some_and(|what| what.contains("http_hosts")), "{host}");
        }
        let page = [("host", "localhost"), ("origin", "null")];
        assert!(refused(&Method::GET, "/v1/hot", HERE, &page).is_some_and(|what| what.contains("web page")));
        for path in OPEN {
            assert_eq!(refused(&Method::GET, path, HERE, &[("host", "any.name"), ("origin", "x")]), None);
            assert!(refused(&Method::POST, path, HERE, &[("host", "any.name")]).is_some());
        }
    }

    #[test]
    fn changes_take_the_secret_and_this_machine() {
        let token = CommandToken::derive(&Secret([1; 16])).text();
        assert_eq!(token.len(), 64);
        let post = |from: &str, token: &str| {
            refused(&Method::POST, "/v1/drain", from, &[("host", "localhost"), (COMMAND_HEADER, token)])
        };
        assert_eq!(post(HERE, &token), None);
        assert!(post("10.0.0.1:5", &token).is_some_and(|what| what.contains("only taken from this machine")));
        let secured = HttpGuard { secured: true, ..guard() };
        let post_over_tls = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "10.0.0.9:7000".parse().expect("a value"));
            headers.insert(COMMAND_HEADER, token.parse().expect("a value"));
            let from = "10.0.0.1:5".parse().expect("an address");
            secured.refusal(&Method::POST, "/v1/drain", from, &headers)
        };
        assert_eq!(post_over_tls(&token), None);
        assert!(post_over_tls("1").is_some_and(|what| what.contains("takes the cluster's secret")));
        let other = CommandToken::derive(&Secret([2; 16])).text();
        for wrong in ["1", "", &token[..62], &format!("{token}00"), &other, &"z".repeat(64)] {
            assert!(
                post(HERE, wrong).is_some_and(|what| what.contains("takes the cluster's secret")),
                "{wrong}"
            );
        }
    }
}
