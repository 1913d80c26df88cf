//! What no tracked text file may hold: outside hosts, paths of one machine, loose scripts. Not Rust's own rules.

use super::Violation;

/// Hosts that may be named: local ones, documentation, and the sources that `Cargo.lock` and licences name.
const HOSTS: [&str; 9] = [
    "github.com",
    "www.apache.org",
    "localhost",
    "redis.io",
    "valkey.io",
    "docs.rs",
    "doc.rust-lang.org",
    "prometheus.io",
    "www.w3.org",
];
/// Paths that exist on one machine only. Written in two parts so that this file passes.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/wo", "rk/")];
/// Registries are the business of whoever builds. Crates.io appears in `Cargo.lock` as a repository's name.
const REGISTRIES: [&str; 5] = [
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("py", "pi.org"),
    concat!("python", "hosted"),
    concat!("deb.deb", "ian.org"),
];

/// Where every dependency comes from; forks and mirrors need a decision first.
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(crate) fn check(path: &str, text: &str, found: &mut Vec<Violation>) {
    let mut report = |line: usize, rule: &'static str, message: String| {
        found.push(Violation { path: path.to_owned(), line, rule, message });
    };
    // Bytes made up to break decoders.
    if path.starts_with("fuzz/corpus/") {
        return;
    }
    if path.ends_with(".sh") {
        report(1, "script", "automation belongs in xtask".to_owned());
    }
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        if path == "Cargo.lock" && content.starts_with("source = ") && content != LOCK_SOURCE {
            report(line, "source", format!("a dependency from elsewhere: {content}"));
        }
        for part in MACHINE_PATHS.iter().filter(|part| names_path(content, part)) {
            report(line, "machine-path", format!("`{part}` exists on one machine only"));
        }
        for part in REGISTRIES.iter().filter(|part| content.contains(*part)) {
            report(line, "registry", format!("`{part}`: which registry is used is not this tree's business"));
        }
        for host in hosts(content).filter(|host| !is_allowed(host)) {
            report(line, "host", format!("`{host}` is not among the hosts that may be named"));
        }
    }
}

/// Whether the text holds `part` at the beginning of a path, not in its middle.
fn names_path(content: &str, part: &str) -> bool {
    content.match_indices(part).any(|(at, _)| {
        let before = content[..at].chars().next_back();
        before
            .is_none_or(|before| !before.is_alphanumeric() && !matches!(before, '_' | '-' | '.' | '}' | '$'))
    })
}

/// The host of every `http://` and `https://` address.
fn hosts(content: &str) -> impl Iterator<Item = &str> {
    content
        .match_indices("://")
        .filter(|(at, _)| content[..*at].ends_with("http") || content[..*at].ends_with("https"))
        .map(|(at, separator)| {
            let rest = &content[at + separator.len()..];
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '{' | '[' | '$' | '<')));
            &rest[..end.unwrap_or(rest.len())]
        })
}

/// Addresses in digits, placeholders and the list.
fn is_allowed(host: &str) -> bool {
    let named = host.contains('.') && host.chars().any(char::is_alphabetic);
    !named || host.starts_with(['{', '[', '$', '<']) || HOSTS.contains(&host)
}

#[cfg(test)]
mod tests {
    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        super::check(path, text, &mut found);
        found.into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        for start in super::MACHINE_PATHS {
            assert_eq!(rules("README.md", &format!("cd {start}me/distcache")), ["machine-path"]);
        }
        assert!(rules("README.md", "redis+unix:///tmp/redis.sock /run/redis.sock $HOME/x").is_empty());
        assert!(rules("README.md", concat!("target/wo", "rk/x and a.ho", "me/y")).is_empty());
    }

    #[test]
    fn registries_and_strange_hosts_are_refused() {
        for registry in super::REGISTRIES {
            assert_eq!(rules("Makefile", &format!("curl {registry}")), ["registry"]);
        }
        assert_eq!(rules("README.md", concat!("https", "://mirror.corp.example/x")), ["host"]);
        assert!(
            rules("README.md", "http://127.0.0.1:7000 https://github.com/x http://{address} http://H:P")
                .is_empty()
        );
    }

    #[test]
    fn dependencies_come_from_one_place() {
        assert!(rules("Cargo.lock", super::LOCK_SOURCE).is_empty());
        assert_eq!(rules("Cargo.lock", "source = \"git+https://github.com/a/b#c\""), ["source"]);
    }

    #[test]
    fn loose_scripts_are_refused() {
        assert_eq!(rules("deploy/install.sh", "set -eu\n"), ["script"]);
        assert!(rules(".ci/run", "set -eu\n").is_empty());
    }
}
