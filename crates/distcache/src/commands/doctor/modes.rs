//! Which modes a Redis server lets a cluster have, and what it refuses of the others. Not how it is asked.

use config::{Config, Mode};
use protocol::storage::redis::server::Greeting;
use wire::resp::Value;

use super::finding::DoctorFindings;
use super::redis::text;

/// What a server has refused of what modes need, each with its error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusals {
    /// How it is allowed.
    pub(super) grant: String,
    /// What nothing works without.
    pub(super) always: Vec<String>,
    /// What fences off earlier processes and lost connections.
    pub(super) fence: Vec<String>,
    /// What tells of changes.
    pub(super) feed: Vec<String>,
}

/// Why a server has refused a command, if it has.
pub(super) fn refusal(name: &str, reply: &Value) -> Option<String> {
    let Value::Error(error) = reply else { return None };
    let error = String::from_utf8_lossy(error);
    // There is no such client, and that is what it says.
    let answered = error.contains("No such client");
    // Of what it does not know it shows what it was told.
    let error = match error.starts_with("NOPERM") {
        true => "NOPERM",
        false => error.split(", with args").next().unwrap_or_default(),
    };
    (!answered).then(|| format!("{name} ({error})"))
}

impl Refusals {
    /// The replies to what a shim does first on a connection and on its feed.
    pub(super) fn hear_feed(&mut self, hello: &Value, tracking: &Value) {
        match Greeting::read(hello) {
            Some(_) => self.feed.extend(refusal("CLIENT TRACKING", tracking)),
            None => self.always.push(refusal("HELLO 3", hello).unwrap_or_else(|| "HELLO 3".to_owned())),
        }
    }

    fn strongest(&self) -> Option<Mode> {
        match (self.always.is_empty(), self.fence.is_empty(), self.feed.is_empty()) {
            (false, ..) => None,
            (true, true, _) => Some(Mode::Strict),
            (true, false, true) => Some(Mode::Bounded),
            (true, false, false) => None,
        }
    }

    /// Says whether the mode of the configuration works at this server, and which is the strongest that does.
    pub(super) fn judge(&self, config: &Config, subject: &str, findings: &mut DoctorFindings) {
        let grant = &self.grant;
        let list = |refused: &[&Vec<String>]| {
            refused.iter().flat_map(|list| list.iter().cloned()).collect::<Vec<_>>().join(", ")
        };
        let stands_by = !config.standbys.is_empty();
        match (config.cluster.mode, self.strongest()) {
            (_, None) => {
                let what = format!(
                    "no mode works as it should: the server refuses {}",
                    list(&[&self.always, &self.feed, &self.fence])
                );
                findings.wrong(subject, &what, &format!("{grant}, or use another server"));
            }
            (Mode::Strict, Some(Mode::Strict)) => {
                findings.good(subject, "mode strict works, and is the strongest there is");
            }
            (Mode::Strict, Some(Mode::Bounded)) => findings.wrong(
                subject,
                &format!(
                    "mode strict does not work: the server refuses {}; the strongest mode that works is bounded",
                    list(&[&self.fence])
                ),
                &format!("{grant}; where that cannot be, mode = \"bounded\" in [cluster] (docs/operating/managed.md)"),
            ),
            (Mode::Bounded, _) if !self.feed.is_empty() => findings.wrong(
                subject,
                &format!("mode bounded would cache nothing: the server refuses {}", list(&[&self.feed])),
                &format!("{grant}; if nobody else writes to it, mode = \"strict\" in [cluster]"),
            ),
            (Mode::Bounded, Some(Mode::Strict)) => {
                findings.good(subject, "mode bounded works; if nobody else writes to it, so would strict");
            }
            (Mode::Bounded, Some(Mode::Bounded)) if stands_by => findings.wrong(
                subject,
                &format!("standbys do not work: the server refuses {}", list(&[&self.fence])),
                &format!("{grant}, or take [[standby]] out"),
            ),
            (Mode::Bounded, Some(Mode::Bounded)) => findings.good(
                subject,
                &format!(
                    "mode bounded works, and is the strongest that does; without a fence, because the server refuses {}: what an \
                     earlier process or a lost connection writes late is followed like what others write",
                    list(&[&self.fence])
                ),
            ),
        }
    }
}

/// Whether fences have all that they need; `info` has to say which run of which server it is.
pub(super) fn fence_refusals(info: &Value, asked: &[(&str, &Value)]) -> Vec<String> {
    let run = text(info).lines().any(|line| line.starts_with("run_id:"));
    let untold = (!run).then(|| refusal("INFO", info).unwrap_or_else(|| "run_id in INFO server".to_owned()));
    untold.into_iter().chain(asked.iter().filter_map(|(name, reply)| refusal(name, reply))).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use config::Secret;

    use super::*;
    use crate::commands::doctor::finding::Level;

    fn error(text: &'static str) -> Value {
        Value::Error(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn each_mode_is_judged_by_what_it_needs() {
        let check = |mode, fence: &str, feed: &str, always: &str, level, part: &str| {
            let mut config = Config::new("c", Secret([1; 16]));
            config.cluster.mode = mode;
            let list =
                |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
            let refusals = Refusals {
                always: list(always),
                fence: list(fence),
                feed: list(feed),
                grant: "grant it".to_owned(),
            };
            let mut findings = DoctorFindings::default();
            refusals.judge(&config, "s", &mut findings);
            let found = &findings.0[0];
            assert_eq!(found.level, level, "{found:?}");
            assert!(found.what.contains(part), "{found:?}");
        };
        use Level::{Ok, Wrong};
        use Mode::{Bounded, Strict};
        check(Strict, "", "", "", Ok, "mode strict works");
        check(Strict, "", "CLIENT TRACKING (no)", "", Ok, "mode strict works");
        check(
            Strict,
            "ACL SETUSER (no)",
            "",
            "",
            Wrong,
            "refuses ACL SETUSER (no); the strongest mode that works is bounded",
        );
        check(
            Strict,
            "ACL SETUSER (no)",
            "CLIENT TRACKING (no)",
            "",
            Wrong,
            "no mode works as it should: the server refuses CLIENT TRACKING",
        );
        check(Bounded, "", "", "", Ok, "so would strict");
        check(
            Bounded,
            "CLIENT KILL (no)",
            "",
            "",
            Ok,
            "without a fence, because the server refuses CLIENT KILL (no)",
        );
        check(Bounded, "", "CLIENT TRACKING (no)", "", Wrong, "would cache nothing");
        check(
            Bounded,
            "",
            "",
            "HELLO 3 (no)",
            Wrong,
            "no mode works as it should: the server refuses HELLO 3 (no)",
        );
    }

    #[test]
    fn a_refusal_is_told_in_the_server_s_words_but_not_in_ours() {
        let unknown = error("ERR unknown command 'ACL', with args beginning with: 'DELUSER' 'x'");
        assert_eq!(
            refusal("ACL DELUSER", &unknown).as_deref(),
            Some("ACL DELUSER (ERR unknown command 'ACL')")
        );
        assert_eq!(refusal("CLIENT KILL", &error("ERR No such client")), None);
        assert_eq!(refusal("CLIENT KILL", &Value::Integer(0)), None);
        let info = Value::Bulk(Bytes::from_static(b"redis_version:7.0.15\r\nrun_id:ab\r\n"));
        assert_eq!(fence_refusals(&info, &[("ACL USERS", &Value::Array(Vec::new()))]), [""; 0]);
        let told = fence_refusals(&error("NOPERM no"), &[("ACL USERS", &error("NOPERM no"))]);
        assert_eq!(told, ["INFO (NOPERM)", "ACL USERS (NOPERM)"]);
    }
}
