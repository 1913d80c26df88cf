//! Has every finished history checked by both checkers while the run goes on. Not the checkers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use linearize::HistoryVerdict;

use super::operation::JepsenHistory;
use super::ours;
use super::porcupine::{Judgement, Porcupine, PorcupineAnswer, PorcupineAnswers};

/// Histories that wait to be checked; beyond it clients wait.
const WAITING_MAX: usize = 512;

/// What both checkers said so far.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) histories: u64,
    pub(super) operations: u64,
    /// Too many commands of unknown outcome for one of the checkers.
    pub(super) undecided: u64,
    pub(super) violations: Vec<JepsenViolation>,
    /// Histories of which the checkers say different things, in words.
    pub(super) disagreements: Vec<String>,
}

pub(super) struct JepsenViolation {
    pub(super) key: String,
    /// The history, for people.
    pub(super) text: String,
    pub(super) picture: Option<PathBuf>,
}

type WaitingKey = Arc<Mutex<HashMap<u64, (JepsenHistory, HistoryVerdict)>>>;

pub(super) struct Judge {
    findings: Arc<Mutex<Findings>>,
    asking: JoinHandle<anyhow::Result<()>>,
    answering: JoinHandle<anyhow::Result<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Judge {
    pub(super) fn start(
        program: &Path,
        pictures: &Path,
    ) -> anyhow::Result<(Judge, SyncSender<JepsenHistory>)> {
        let (porcupine, answers) = Porcupine::start(program, pictures)?;
        let (sender, histories) = sync_channel(WAITING_MAX);
        let (findings, waiting) = (Arc::default(), WaitingKey::default());
        let others = Arc::clone(&waiting);
        let asking = std::thread::spawn(move || ask(&histories, porcupine, &others));
        let shared = Arc::clone(&findings);
        let answering = std::thread::spawn(move || compare(answers, &waiting, &shared));
        Ok((Judge { findings, asking, answering }, sender))
    }

    pub(super) fn findings(&self) -> MutexGuard<'_, Findings> {
        lock(&self.findings)
    }

    /// A verdict that ends the run has been found.
    pub(super) fn has_found(&self) -> bool {
        let findings = self.findings();
        !findings.violations.is_empty() || !findings.disagreements.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.asking.is_finished() || self.answering.is_finished()
    }

    /// After the last sender is gone: waits for the last verdict.
    pub(super) fn finish(self) -> anyhow::Result<Findings> {
        for thread in [self.asking, self.answering] {
            thread.join().ok().context("a checking thread panicked")??;
        }
        Ok(std::mem::take(&mut *lock(&self.findings)))
    }
}

fn ask(
    histories: &Receiver<JepsenHistory>,
    mut porcupine: Porcupine,
    waiting: &WaitingKey,
) -> anyhow::Result<()> {
    for history in histories {
        let verdict = ours::judge(&history);
        // First noted, then asked: the answer may come at once.
        lock(waiting).insert(history.id, (history.clone(), verdict));
        porcupine.ask(&history)?;
    }
    porcupine.finish()
}

fn compare(
    answers: PorcupineAnswers,
    waiting: &WaitingKey,
    findings: &Mutex<Findings>,
) -> anyhow::Result<()> {
    for answer in answers {
        let answer = answer?;
        let Some((history, verdict)) = lock(waiting).remove(&answer.id) else {
            bail!("porcupine answers a question that nobody asked: {answer:?}")
        };
        note(&mut lock(findings), &history, verdict, answer);
    }
    let open = lock(waiting).len();
    anyhow::ensure!(open == 0, "porcupine left {open} histories unanswered");
    Ok(())
}

fn note(findings: &mut Findings, history: &JepsenHistory, verdict: HistoryVerdict, answer: PorcupineAnswer) {
    findings.histories += 1;
    findings.operations += history.operations.len() as u64;
    match (verdict, answer.verdict) {
        (HistoryVerdict::Linearizable, Judgement::Linearizable) => {}
        (HistoryVerdict::Violation(one), Judgement::Violation) => {
            let (key, text) = (history.key.clone(), history.text(&one.explained));
            findings.violations.push(JepsenViolation { key, text, picture: answer.picture });
        }
        (HistoryVerdict::Undecided(_), _) | (_, Judgement::Undecided) => findings.undecided += 1,
        (ours, theirs) => {
            let text = history.text(&[]);
            findings.disagreements.push(format!("ours says {ours:?}, porcupine {theirs:?}:\n{text}"));
        }
    }
}
