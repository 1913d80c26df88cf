//! Runs the transcripts of `scripts/router`: input lines, each followed by the effects it must have.
//!
//! `UPDATE_SCRIPTS=1 cargo test -p protocol --test router` rewrites them; the diff is the review.
//!
//! | line | meaning |
//! |------|---------|
//! | `cluster spines=N leaves=N shims=N [routing=on-path] [pipeline=N] [pending=N] [queue_ms=N] [users=storage] [standbys=N]` | a new router, all peers linked |
//! | `user NAME RULE...`, `nobody NAME` | there is such a user, or none any more; before `cluster` or behind it |
//! | `open C`, `close C`, `malformed C` | a client comes, goes, sends nonsense |
//! | `known C ADDRESS LOCAL` | where a client comes from and where it came to |
//! | `C> COMMAND ARGS` | a command of client C, if it is ready |
//! | `rN VALUE [hit] [cached=0,1] [load=NODE:LOAD] [from=PEER]` | the reply to request N; `$text` is a bulk, `nil` a null, `raw ...` as it stands |
//! | `begin rN TEXT`, `more rN TEXT`, `last rN TEXT`, `lost rN` | the reply to request N in parts, with `streams=1` |
//! | `drained C` | client C has taken what it was given |
//! | `window PEER N` | the peer takes so many requests at a time |
//! | `handover PEER` | the shim leaves in order |
//! | `link PEER`, `unlink PEER`, `down NODE`, `wait MS` | the world |
//! | `counted NAME ...` | what the router has counted, by the rows of its table |

use std::path::Path;

use crate::world::World;

#[test]
fn scripts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/router");
    let mut paths: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "the scripts are missing from {}", directory.display());
    let update = std::env::var_os("UPDATE_SCRIPTS").is_some();
    let mut wrong = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let expected = std::fs::read_to_string(path).unwrap();
        let actual = run(&expected);
        if actual == expected {
            continue;
        }
        if update {
            std::fs::write(path, actual).unwrap();
        } else {
            wrong.push(format!("{}:\n{}", path.display(), difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "transcripts differ; UPDATE_SCRIPTS=1 rewrites them\n{}", wrong.join("\n"));
}

/// The script with the effects as they are.
fn run(script: &str) -> String {
    let mut world = World::default();
    let mut out = String::new();
    for line in script.lines().filter(|line| !line.starts_with("    ")) {
        out.push_str(line);
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for effect in world.line(line) {
            out.push_str(&format!("    {effect}\n"));
        }
    }
    out
}

fn difference(expected: &str, actual: &str) -> String {
    let (mut expected, mut actual, mut line) = (expected.lines(), actual.lines(), 0);
    loop {
        line += 1;
        match (expected.next(), actual.next()) {
            (None, None) => return "only line ends differ".to_owned(),
            (one, other) if one == other => {}
            (one, other) => {
                return format!(
                    "line {line}: expected {}\n        got {}",
                    one.unwrap_or("the end"),
                    other.unwrap_or("the end")
                );
            }
        }
    }
}
