//! etcd's JSON interface to its version 3 API: the few requests that the store makes. Not when they are made.
//!
//! etcd serves it on the port of its gRPC interface. Numbers of 64 bits are strings there, keys and values base64, and
//! what is zero is left out.

use std::cell::OnceCell;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runtime::tls::{HttpClient, explain_request};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use ureq::RequestBuilder;
use ureq::typestate::WithBody;

use super::EtcdSettings;
use crate::store::StoreError;

/// A request that etcd cannot answer in this time counts as failed. Its own timeouts are longer, but members wait.
const TIMEOUT: Duration = Duration::from_millis(1_000);
/// After this long a watch is asked for anew, from where it was: a connection that died unnoticed costs no more.
const WATCH: Duration = Duration::from_secs(3);
/// Far more than all members and a map; etcd itself refuses values above 1.5 MiB.
const BYTES_MAX: u64 = 64 << 20;

/// One server of etcd.
pub(super) struct EtcdApi {
    endpoint: String,
    http: HttpClient,
    login: Option<(String, String)>,
    /// What shows who this is. After a failure, which may be that etcd knows it no more, everything here is made anew.
    token: OnceCell<String>,
}

type Reply = ureq::http::Response<ureq::Body>;

/// A key as a read or a watch shows it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pair {
    #[serde(deserialize_with = "text")]
    pub(super) key: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) value: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub(super) lease: i64,
}

/// Everything under a prefix.
#[derive(Debug, Deserialize)]
pub(super) struct EtcdListing {
    pub(super) header: EtcdHeader,
    #[serde(default)]
    pub(super) kvs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EtcdHeader {
    #[serde(deserialize_with = "number")]
    pub(super) revision: i64,
}

#[derive(Debug, Deserialize)]
struct Lease {
    #[serde(default, rename = "ID", deserialize_with = "number")]
    id: i64,
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    ttl: i64,
}

#[derive(Debug, Deserialize)]
struct Streamed<T> {
    result: Option<T>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Transacted {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct Response {
    response_range: Option<Range>,
}

#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

/// How a conditional write ended.
#[derive(Debug)]
pub(super) enum EtcdWritten {
    Done,
    /// The key has another version, whose value and lease are these.
    Other(Option<Pair>),
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Watched {
    #[serde(default)]
    pub(super) created: bool,
    /// The watch has ended, perhaps because what it asked for is compacted away.
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WatchEvent {
    /// `DELETE`, or nothing for a value.
    #[serde(default, rename = "type")]
    kind: String,
    pub(super) kv: Pair,
}

impl WatchEvent {
    pub(super) fn is_deletion(&self) -> bool {
        self.kind == "DELETE"
    }
}

impl EtcdApi {
    /// The server with this number.
    pub(super) fn new(settings: &EtcdSettings, endpoint: usize) -> EtcdApi {
        EtcdApi {
            endpoint: settings.endpoints[endpoint].clone(),
            http: HttpClient::new(TIMEOUT, settings.tls.as_ref()),
            login: settings.login.clone(),
            token: OnceCell::new(),
        }
    }

    /// A request to `path` by who this is.
    fn request(&self, path: &str) -> Result<RequestBuilder<WithBody>, Failure> {
        let request = self.open(path);
        let Some((name, password)) = &self.login else { return Ok(request) };
        let token = match self.token.get() {
            Some(token) => token,
            None => {
                let who = json!({ "name": name, "password": password });
                let known: EtcdToken = self.answer(self.open("auth/authenticate").send(who.to_string()))?;
                self.token.get_or_init(|| known.token)
            }
        };
        Ok(request.header("Authorization", token))
    }

    /// A request to `path` by nobody.
    fn open(&self, path: &str) -> RequestBuilder<WithBody> {
        self.http.agent().post(format!("{}://{}/v3/{path}", self.http.scheme(), self.endpoint))
    }

    /// Everything under `prefix`, as the majority of etcd has it.
    pub(super) fn list(&self, prefix: &str) -> Result<EtcdListing, StoreError> {
        self.call("kv/range", &json!({ "key": encode(prefix), "range_end": encode_end(prefix) }))
    }

    /// Asks for the map's number only, to see whether the majority answers.
    pub(super) fn probe(&self, key: &str) -> Result<(), StoreError> {
        self.call::<EtcdListing>("kv/range", &json!({ "key": encode(key), "keys_only": true })).map(drop)
    }

    pub(super) fn grant(&self, seconds: u64) -> Result<i64, StoreError> {
        self.call::<Lease>("lease/grant", &json!({ "TTL": seconds })).map(|lease| lease.id)
    }

    /// Whether the lease was still there to be kept.
    pub(super) fn keep_alive(&self, lease: i64) -> Result<bool, StoreError> {
        let kept: Streamed<Lease> = self.call("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        match kept {
            Streamed { result: Some(lease), .. } => Ok(lease.ttl > 0),
            Streamed { error, .. } => Err(self.error(&format!("{error:?}"))),
        }
    }

    /// Ends the lease, and the keys that belong to it.
    pub(super) fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        match self.ask::<Value>("lease/revoke", &json!({ "ID": lease.to_string() })) {
            // Ended already.
            Err(Failure { code: Some(NOT_FOUND), .. }) => Ok(()),
            other => other.map(drop).map_err(|failure| failure.error),
        }
    }

    /// Writes `key` if its version is `version`; 0 says that it must not exist.
    pub(super) fn put_if(
        &self,
        key: &str,
        version: u64,
        value: &str,
        lease: i64,
    ) -> Result<EtcdWritten, StoreError> {
        let key = encode(key);
        let put =
            json!({ "request_put": { "key": key, "value": encode(value), "lease": lease.to_string() } });
        let transaction = json!({
            "compare": [{
                "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version.to_string(),
            }],
            "success": [put],
            "failure": [{ "request_range": { "key": key } }],
        });
        let done: Transacted = self.call("kv/txn", &transaction)?;
        if done.succeeded {
            return Ok(EtcdWritten::Done);
        }
        let ranges = done.responses.into_iter().filter_map(|response| response.response_range);
        Ok(EtcdWritten::Other(ranges.flat_map(|range| range.kvs).next()))
    }

    /// What happens under `prefix` from `revision` on, for as long as [`WATCH`]; `see` says whether to go on.
    pub(super) fn watch(
        &self,
        prefix: &str,
        revision: i64,
        mut see: impl FnMut(Watched) -> bool,
    ) -> Result<(), StoreError> {
        let create = json!({ "create_request": {
            "key": encode(prefix), "range_end": encode_end(prefix), "start_revision": revision.to_string(),
        } });
        let request = self.request("watch").map_err(|failure| failure.error)?.config().timeout_global(None);
        let request = request
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_recv_body(Some(WATCH))
            .build();
        let reply = request.send(create.to_string()).map_err(|error| self.error(&self.unanswered(&error)))?;
        if !reply.status().is_success() {
            return self.answer::<Value>(Ok(reply)).map(drop).map_err(|failure| failure.error);
        }
        let body = reply.into_body().into_reader().take(BYTES_MAX);
        for line in BufReader::new(body).lines() {
            let line = match line {
                Ok(line) => line,
                Err(error) if is_timeout(&error) => return Ok(()),
                Err(error) => return Err(self.error(&error)),
            };
            let streamed: Streamed<Watched> =
                serde_json::from_str(&line).map_err(|error| self.error(&error))?;
            let Some(watched) = streamed.result else {
                return Err(self.error(&format!("{:?}", streamed.error)));
            };
            if !see(watched) {
                return Ok(());
            }
        }
        Err(self.error(&"it has ended the watch"))
    }

    fn unanswered(&self, error: &ureq::Error) -> String {
        let closes = matches!(error, ureq::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof);
        match closes && self.http.scheme() == "http" {
            true => "it closes the connection; if it speaks TLS, write etcds:// in `store`".to_owned(),
            false => explain_request(error),
        }
    }

    fn error(&self, what: &dyn std::fmt::Display) -> StoreError {
        StoreError(format!("etcd at {}: {what}", self.endpoint))
    }

    fn call<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, StoreError> {
        self.ask(path, body).map_err(|failure| failure.error)
    }

    fn ask<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.answer(self.request(path)?.send(body.to_string()))
    }

    fn answer<T: DeserializeOwned>(&self, reply: Result<Reply, ureq::Error>) -> Result<T, Failure> {
        let failed = |what: &dyn std::fmt::Display| Failure { code: None, error: self.error(what) };
        let mut reply = reply.map_err(|error| failed(&self.unanswered(&error)))?;
        let text = reply.body_mut().with_config().limit(BYTES_MAX).read_to_string();
        let text = text.map_err(|error| failed(&error))?;
        if reply.status().is_success() {
            return serde_json::from_str(&text).map_err(|error| failed(&error));
        }
        match serde_json::from_str(&text) {
            Ok(EtcdRefusal { code, message }) => {
                Err(Failure { code: Some(code), error: self.error(&message) })
            }
            Err(_) if reply.status().as_u16() == 404 => {
                Err(failed(&"it has no JSON interface; start it with --enable-grpc-gateway"))
            }
            Err(_) if text.contains("CommonName") => Err(failed(
                &"with users its JSON interface takes no certificate that has a CommonName: make one without",
            )),
            Err(_) => Err(failed(&text.trim())),
        }
    }
}

#[derive(Debug, Deserialize)]
struct EtcdToken {
    token: String,
}

/// What etcd says instead of an answer.
#[derive(Debug, Deserialize)]
struct EtcdRefusal {
    /// As gRPC numbers them.
    code: u32,
    #[serde(default)]
    message: String,
}

/// gRPC's number for what is not there.
const NOT_FOUND: u32 = 5;

/// Why a request came to nothing. `code`: etcd's reason, if it gave one.
#[derive(Debug)]
struct Failure {
    code: Option<u32>,
    error: StoreError,
}

/// Whether a body ended because nothing more came in time, and not because anything failed.
fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// The end of the range of keys that begin with `prefix`, which is not empty and ends in ASCII.
fn encode_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let bytes = STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
    String::from_utf8(bytes).map_err(D::Error::custom)
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(i64),
    }
    match Either::deserialize(deserializer)? {
        Either::Text(text) => text.parse().map_err(D::Error::custom),
        Either::Number(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::{EtcdListing, Streamed, Watched, encode, encode_end};

    #[test]
    fn what_etcd_says_is_understood() {
        let listing = r#"{"header":{"cluster_id":"1","revision":"12","raft_term":"2"},"kvs":[{"key":"L2E=",
            "create_revision":"3","mod_revision":"9","version":"2","value":"Yg==","lease":"77"}],"count":"1"}"#;
        let listing: EtcdListing = serde_json::from_str(listing).unwrap();
        let pair = &listing.kvs[0];
        assert_eq!((listing.header.revision, pair.key.as_str(), pair.value.as_str()), (12, "/a", "b"));
        assert_eq!((pair.mod_revision, pair.lease), (9, 77));

        let event = r#"{"result":{"header":{"revision":"13"},"events":[{"type":"DELETE","kv":{"key":"L2E=",
            "mod_revision":"13"}},{"kv":{"key":"L2E=","value":"Yg=="}}]}}"#;
        let watched: Streamed<Watched> = serde_json::from_str(event).unwrap();
        let events = watched.result.unwrap().events;
        assert_eq!(events.iter().map(|event| event.is_deletion()).collect::<Vec<_>>(), [true, false]);

        for bad in [
            r#"{"kvs":[]}"#,
            r#"{"header":{"revision":"x"}}"#,
            r#"{"header":{"revision":"1"},"kvs":[{"key":"!"}]}"#,
        ] {
            assert!(serde_json::from_str::<EtcdListing>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_name() {
        assert_eq!((encode("/a/"), encode_end("/a/")), ("L2Ev".to_owned(), "L2Ew".to_owned()));
    }
}
