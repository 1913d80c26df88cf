//! Whether clients of other threads run scripts: while one runs for long, its server answers nobody, and who asks through any
//! thread is to hear it from the server. Not what the server says.

use std::time::Duration;

use smallvec::SmallVec;

use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::siblings::SiblingMessage;
use crate::time::Time;

/// Redis says that a script runs for too long after five seconds. Shorter ones are no news: there are many.
const LONG: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct LongScripts {
    /// Since when there have been scripts of clients here at every tick.
    since: Option<Time>,
    told: bool,
    /// Threads whose clients run one for long.
    elsewhere: SmallVec<[u16; 4]>,
}

impl LongScripts {
    pub(crate) fn run_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// What another thread says of its own.
    pub(crate) fn heard(&mut self, thread: u16, runs: bool) {
        self.elsewhere.retain(|known| *known != thread);
        if runs {
            self.elsewhere.push(thread);
        }
    }
}

impl Front {
    /// Tells the other threads when a script of a client here runs for long, and when that is over.
    pub(crate) fn tell_of_scripts(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        self.scripts.since = desk.flow.runs_scripts().then(|| self.scripts.since.unwrap_or(now));
        let runs = self.scripts.since.is_some_and(|since| now.since(since) >= LONG);
        if std::mem::replace(&mut self.scripts.told, runs) != runs {
            for thread in desk.step.config.place.others() {
                desk.step.tell(thread, SiblingMessage::RunsScript(runs));
            }
        }
    }
}
