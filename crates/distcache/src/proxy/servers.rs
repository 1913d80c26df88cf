//! The storage servers of `--storage`: a list of URLs, checked and put in an order of their own. Not what is at them.

use config::StorageConfig;
use protocol::placement::{Functions, Secret};

use lab::terminal::BadInput;

/// What makes the names of state folders; no secret.
const FOLDERS: Secret = Secret(*b"distcache state\0");

#[derive(Clone, Debug)]
pub(crate) struct ProxyServer {
    /// As a configuration has it, login included.
    pub(crate) url: String,
    pub(crate) storage: StorageConfig,
    /// The URL without the login.
    pub(crate) name: String,
}

/// The servers in the order of their names, so that it makes no difference in which order they were given.
#[derive(Clone, Debug)]
pub(crate) struct ProxyServers(pub(crate) Vec<ProxyServer>);

impl ProxyServers {
    /// `flag` is what to name in errors.
    pub(crate) fn parse(flag: &str, values: &[String]) -> anyhow::Result<ProxyServers> {
        let mut servers = Vec::new();
        for url in values.iter().flat_map(|value| urls(value)) {
            let name = without_login(url);
            if let Some(scheme) =
                ["redis", "rediss", "memcached"].iter().find(|scheme| lists_hosts(&name, scheme))
            {
                return Err(BadInput::of(format!(
                    "{flag} {name}: each server has a URL of its own: {scheme}://HOST:PORT,{scheme}://HOST:PORT"
                )));
            }
            let storage: StorageConfig = url.parse().map_err(|error| {
                // The rest of the URL may be a password.
                let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
                BadInput::of(format!(
                    "{flag} {scheme}{}: {error}",
                    if scheme.is_empty() { "" } else { "://..." }
                ))
            })?;
            if storage == StorageConfig::Embedded {
                return Err(BadInput::of(format!(
                    "{flag} embedded: gone with the process; name the servers that you have, or try `distcache demo`"
                )));
            }
            servers.push(ProxyServer { url: url.to_owned(), storage, name });
        }
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = servers.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(BadInput::of(format!(
                "{flag}: {} is there twice; name each server once",
                pair[0].name
            )));
        }
        if servers.is_empty() {
            return Err(BadInput::of(format!(
                "{flag} is empty: write redis://HOST:PORT, more of them after commas"
            )));
        }
        let clustered = |server: &ProxyServer| server.storage.is_redis_cluster();
        if servers.len() > 1 && servers.iter().any(clustered) {
            return Err(BadInput::of(format!(
                "{flag}: a Redis Cluster goes alone: write redis-cluster://HOST:PORT,HOST:PORT with some of its servers"
            )));
        }
        let memcached = servers.iter().filter(|server| is_memcached(server)).count();
        if memcached > 0 && memcached < servers.len() {
            return Err(BadInput::of(format!("{flag}: memcached:// beside others; give all of one kind")));
        }
        Ok(ProxyServers(servers))
    }

    pub(crate) fn is_memcached(&self) -> bool {
        self.0.iter().any(is_memcached)
    }

    pub(crate) fn wants_tls(&self) -> bool {
        self.0.iter().any(|server| server.url.starts_with("rediss"))
    }

    /// Whether each key may lie at one server only, which is for DistCache to choose.
    pub(crate) fn is_divided(&self) -> bool {
        self.0.len() > 1 && !self.is_memcached()
    }

    pub(crate) fn names(&self) -> String {
        self.0.iter().map(|server| server.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether all of them are stores of the shims' own.
    pub(crate) fn are_folders(&self) -> bool {
        self.0.iter().all(|server| server.storage.folder().is_some())
    }

    /// A name for what is kept for exactly these servers.
    pub(crate) fn folder(&self) -> String {
        format!("{:016x}", (Functions::new(FOLDERS, 0).digest(0, self.names().as_bytes()).0 >> 64) as u64)
    }
}

fn is_memcached(server: &ProxyServer) -> bool {
    server.storage.is_memcached()
}

/// A comma begins the next URL where a scheme follows it; the others are the URL's own.
fn urls(list: &str) -> Vec<&str> {
    let mut urls = Vec::new();
    let mut start = 0;
    for (comma, _) in list.match_indices(',') {
        let next = &list[comma + 1..];
        let scheme = next.split_once("://").map_or("", |(scheme, _)| scheme.trim_start());
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.chars().all(|c| c.is_ascii_lowercase() || "+-".contains(c));
        if is_scheme || scheme.is_empty() && next.trim_start().starts_with("embedded:") {
            urls.push(&list[start..comma]);
            start = comma + 1;
        }
    }
    urls.push(&list[start..]);
    let urls = urls.into_iter().map(|url| url.trim_matches([',', ' ']));
    urls.filter(|url| !url.is_empty()).collect()
}

fn lists_hosts(name: &str, scheme: &str) -> bool {
    name.strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"))
        .is_some_and(|hosts| hosts.contains(','))
}

/// The same for all ways to write a URL that differ in nothing else.
fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest =
        if rest.starts_with('/') { rest } else { rest.rsplit_once('@').map_or(rest, |(_, place)| place) };
    // Options of sentinels are logins, too.
    let rest = rest.split('?').next().unwrap_or(rest);
    let (hosts, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let path = if matches!(path, "/" | "/0") { "" } else { path };
    let mut hosts = hosts.to_ascii_lowercase();
    let has_port = hosts.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match scheme {
        "redis" | "rediss" if !has_port => hosts.push_str(":6379"),
        "memcached" if !has_port => hosts.push_str(":11211"),
        _ => {}
    }
    format!("{scheme}://{hosts}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> anyhow::Result<ProxyServers> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        ProxyServers::parse("--storage", &values)
    }

    #[test]
    fn lists_are_split_between_urls_and_not_within_them() {
        let names = |values: &[&str]| parse(values).expect("good URLs").names();
        let two = "redis://127.0.0.1:6391, redis://127.0.0.1:6392";
        assert_eq!(names(&["redis://127.0.0.1:6391,redis://127.0.0.1:6392"]), two);
        assert_eq!(names(&["redis://127.0.0.1:6392", "redis://u:p@127.0.0.1:6391/0"]), two);
        let cluster = "redis-cluster://127.0.0.1:7001,127.0.0.1:7002";
        assert_eq!(names(&[cluster]), cluster);
        let sentinels = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/main";
        assert_eq!(parse(&[&format!("{sentinels},{sentinels}2")]).expect("two").0.len(), 2);
        assert_eq!(names(&[&format!("{sentinels}?sentinel_password=hunter2")]), sentinels);
        assert_eq!(names(&["redis+unix:///Run/R@1.sock"]), "redis+unix:///Run/R@1.sock");
    }

    #[test]
    fn the_folder_is_that_of_the_set() {
        let folder = |values: &[&str]| parse(values).expect("good URLs").folder();
        let of_two = folder(&["redis://127.0.0.1:1,redis://127.0.0.1:2"]);
        assert_eq!(of_two, folder(&["redis://:p@127.0.0.1:2", "redis://127.0.0.1:1/"]));
        assert_eq!(folder(&["redis://LOCALHOST"]), folder(&["redis://localhost:6379/0"]));
        assert_ne!(of_two, folder(&["redis://127.0.0.1:1"]));
        assert_eq!(of_two.len(), 16);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let check = |values: &[&str], expected: &str| {
            let error = parse(values).expect_err(expected);
            let text = error.to_string();
            assert!(text.contains(expected) && !text.contains("hunter2"), "{text}");
            assert!(error.is::<BadInput>());
        };
        check(&["redis://127.0.0.1:1,redis://:hunter2@127.0.0.1:1"], "is there twice");
        check(
            &["redis://:hunter2@127.0.0.1:1,127.0.0.1:2"],
            "redis://127.0.0.1:1,127.0.0.1:2: each server has a URL",
        );
        check(&["redis-cluster://127.0.0.1:1,redis://127.0.0.1:2"], "a Redis Cluster goes alone");
        check(&["memcached://127.0.0.1:1,redis://127.0.0.1:2"], "give all of one kind");
        check(&["embedded:"], "gone with the process");
        check(&["127.0.0.1:6379"], "this is no storage URL");
        check(&["http://:hunter2@x"], "unknown storage scheme");
        check(&[" , "], "--storage is empty");
    }
}
