//! Changes that a memcached has carried out, against those that were asked of it: what is over is somebody else's. No sockets.
//!
//! memcached tells of no change, but counts them. Every request of a shim raises the sum of the counters by one at most, and by none
//! before it was sent nor after it was answered. So from one look at the counters to the next the others' share is known but for
//! what was under way; where a request is counted that has changed nothing, the bounds close at the next quiet look.

/// Statistics of the general kind that changes raise.
const COUNTERS: [&str; 6] = ["cmd_set", "cmd_flush", "delete_hits", "incr_hits", "decr_hits", "touch_hits"];

/// Requests for changes over one connection or several, each of which the server may have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Answered, and not with a word that nothing was changed.
    pub(super) done: i64,
    /// Requests in `done`, and what is not answered yet.
    pub(super) sent: i64,
}

#[derive(Debug, Default)]
pub(super) struct Census {
    /// Changes over the watch, and over connections for commands that are gone.
    own: Changes,
    /// What had been done on the connection for commands when the counters were asked for.
    asked: i64,
    /// The counters as far as they have come.
    sum: i64,
    /// At the last look, and how many of them others have made at most.
    last: i64,
    others: Option<i64>,
}

impl Census {
    /// The counters are asked for.
    pub(super) fn ask(&mut self, line: Changes) {
        (self.asked, self.sum) = (line.done, 0);
    }

    /// A change over the watch itself was answered before the counters.
    pub(super) fn changed(&mut self) {
        self.own.done += 1;
        self.own.sent += 1;
    }

    /// The connection for commands is gone, and with it answers.
    pub(super) fn lose(&mut self, line: Changes) {
        self.own.done += line.done;
        self.own.sent += line.sent;
        self.asked -= line.done;
    }

    /// One line of the statistics.
    pub(super) fn hear(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut words = text.split(' ').skip(1);
        if words.next().is_some_and(|name| COUNTERS.contains(&name)) {
            self.sum += words.next().and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
        }
    }

    /// All counters have come: changes that others have certainly made since the last look. The first one finds none. `is_fenced`:
    /// what was lost has been carried out, or never will be.
    pub(super) fn close(&mut self, line: Changes, is_fenced: bool) -> u64 {
        let most = self.sum - self.own.done - self.asked;
        let least = self.sum - self.own.sent - line.sent;
        // Somebody has put the counters to zero.
        let is_reset = std::mem::replace(&mut self.last, self.sum) > self.sum;
        let known = self.others.filter(|_| !is_reset).unwrap_or(most);
        self.others = Some(known.max(least).min(most));
        if is_fenced && line.sent == self.asked {
            // What was lost and is not counted by now never will be, and what is counted is taken for others' from here on.
            (self.own.sent, self.others) = (self.own.done, Some(most));
        }
        u64::try_from(least - known).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::{Census, Changes};

    #[test]
    fn the_counters_of_changes_are_summed() {
        let mut census = Census::default();
        census.ask(Changes::default());
        for line in [
            "STAT pid 7",
            "STAT cmd_set 3",
            "STAT cmd_get 100",
            "STAT delete_hits 2",
            "STAT cmd_flush 1",
            "STAT x",
        ] {
            census.hear(line.as_bytes());
        }
        assert_eq!(census.sum, 6);
    }

    /// A server whose connections overtake each other, requests that change nothing or get lost, and others.
    #[test]
    fn others_are_never_suspected_and_found_when_it_is_quiet() {
        for case in cases::seeds(300) {
            let mut random = SmallRng::seed_from_u64(case.seed);
            let mut census = Census::default();
            let (mut counters, mut line, mut waiting) =
                (random.random_range(0..1000i64), Changes::default(), 0);
            let look = |census: &mut Census, line, counters: i64| {
                census.sum = counters;
                census.close(line, true)
            };
            census.ask(line);
            assert_eq!(look(&mut census, line, counters), 0);
            let (mut foreign, mut found) = (0, 0);
            // Sent, of which some are carried out, and of those some answered.
            let mut carried = 0;
            for _ in 0..200 {
                match random.random_range(0..9) {
                    0..3 => (line.sent, waiting) = (line.sent + 1, waiting + 1),
                    3 if waiting > 0 => {
                        (waiting, carried, counters) = (waiting - 1, carried + 1, counters + 1)
                    }
                    // One that changes nothing, although it is taken for one that did.
                    4 if waiting > 0 => (waiting, carried) = (waiting - 1, carried + 1),
                    5 if carried > 0 => (carried, line.done) = (carried - 1, line.done + 1),
                    6 => (foreign, counters) = (foreign + 1, counters + 1),
                    7 => {
                        census.ask(line);
                        let told = counters;
                        // More is sent meanwhile, and some of that was counted.
                        let late = i64::from(random.random_bool(0.3));
                        line.sent += late;
                        line.done += late;
                        counters += late;
                        found += look(&mut census, line, told + late * i64::from(random.random_bool(0.5)));
                    }
                    8 if random.random_bool(0.1) => {
                        census.lose(line);
                        counters += random.random_range(0..=waiting);
                        (line, waiting, carried) = (Changes::default(), 0, 0);
                    }
                    _ => {}
                }
                assert!(found <= foreign, "seed {}: {found} of {foreign}", case.seed);
            }
            // All is answered: a look closes the bounds, and what comes then is found.
            counters += waiting;
            line.done = line.sent;
            for _ in 0..2 {
                census.ask(line);
                found += look(&mut census, line, counters);
            }
            assert!(found <= foreign, "seed {}", case.seed);
            census.changed();
            census.ask(line);
            assert_eq!(look(&mut census, line, counters + 1 + 3), 3, "seed {}", case.seed);
        }
    }
}
