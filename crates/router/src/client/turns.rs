//! Who turns the machine of a library: the thread that waits for a reply, and one of its own while none does.
//!
//! A call hands its commands to the machine itself and writes what follows. Whoever has to wait takes the lead: it waits for
//! the kernel, delivers to all, and hands the lead on when its own replies are there; who finds it taken sleeps until it is
//! woken. The keeper, the client's own thread, leads while nobody else does: invalidations are answered while the
//! application has other things to do. It leaves the lead to threads that have come lately, so that a call from one thread
//! wakes nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

use protocol::router::ClientId;
use protocol::time::Time;
use runtime::clock;
use runtime::reactor::{self, Driver, Io, Poller, TICK};
use runtime::stop::Stop;
use wire::resp::Command;

use super::answer::{CallAnswer, CallReplies, own_waker};
use super::calls::{CallWaiter, Woken};
use super::driver::{ClientDriver, StartedCall};

/// For how long after a call the keeper leaves the lead to the application's threads; and invalidations may wait.
const NAP: Duration = Duration::from_micros(500);
/// The same while one thread leads on and on.
const NAP_MAX: Duration = Duration::from_millis(100);
/// From so many calls on at a time, the keeper leads and writes what all of them say together.
const CROWD: usize = 8;
/// That ends when there are fewer than so many.
const CROWD_ENDS: usize = 4;
/// A last word that cannot be sent is given up after this long.
const STOPPING: Duration = Duration::from_secs(10);

pub(crate) struct Turns {
    /// `None` when the client has ended.
    core: Mutex<Option<Core>>,
    /// The lead.
    poller: Mutex<Poller>,
    /// Many calls come at a time. Set by whoever leads.
    crowd: AtomicBool,
    /// Calls that found the machine taken in a crowd; `None` when the client has ended.
    queue: Mutex<Option<Vec<QueuedCall>>>,
    keeper: OnceLock<Thread>,
    waker: reactor::Waker,
    stop: Stop,
}

/// The commands of a thread's call, and where it waits.
type QueuedCall = (Vec<Command>, Arc<CallAnswer>);

struct Core {
    io: Io,
    driver: ClientDriver,
    lead: Lead,
    /// How often a thread of the application has taken the lead.
    led: u64,
    /// The keeper sleeps longer than anybody may wait for it.
    dozes: bool,
}

/// What whoever leads does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// Nobody leads.
    Free,
    /// Waits for the kernel, at most until then.
    Asleep(Time),
    /// Writes what there is before it sleeps.
    Awake,
}

/// A call whose outcome is not there yet.
pub(crate) struct Waiting {
    client: ClientId,
    answer: Arc<CallAnswer>,
}

impl Waiting {
    pub(crate) fn answer(&self) -> &CallAnswer {
        &self.answer
    }
}

impl Turns {
    pub(crate) fn new(mut io: Io, driver: ClientDriver, stop: Stop) -> Turns {
        let poller = Mutex::new(Poller::new(&mut io));
        let waker = io.waker();
        let core = Core { io, driver, lead: Lead::Free, led: 0, dozes: false };
        Turns {
            core: Mutex::new(Some(core)),
            poller,
            crowd: AtomicBool::new(false),
            queue: Mutex::new(Some(Vec::new())),
            keeper: OnceLock::new(),
            waker,
            stop,
        }
    }

    /// Runs the commands of one call, and waits for all replies.
    pub(crate) fn call(&self, commands: Vec<Command>) -> CallReplies {
        let answer = match self.start_thread(commands) {
            Ok(outcome) => return outcome,
            Err(answer) => answer,
        };
        loop {
            if let Some(outcome) = answer.take() {
                return outcome;
            }
            // In a crowd the keeper serves everybody; and at the end it needs the lead to say so.
            if self.is_crowded() || self.stop.is_set() {
                std::thread::park();
                continue;
            }
            match self.poller.try_lock() {
                Ok(poller) => {
                    self.lead(poller, &answer);
                    self.hand_on();
                }
                Err(TryLockError::WouldBlock) => std::thread::park(),
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
    }

    /// The same for a thread, which where there is a crowd does not wait for its turn to do so.
    fn start_thread(&self, commands: Vec<Command>) -> Result<CallReplies, Arc<CallAnswer>> {
        if !self.is_crowded() || self.core.try_lock().is_ok() {
            return self.start(commands, true, own_waker).map_err(|waiting| waiting.answer);
        }
        let answer = CallAnswer::new(own_waker());
        match &mut *self.queue() {
            Some(queue) => {
                queue.push((commands, Arc::clone(&answer)));
                if queue.len() == 1 {
                    self.waker.wake();
                }
                Err(answer)
            }
            None => Ok(None),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Option<Vec<QueuedCall>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands what is queued to the machine.
    fn take_queue(&self, core: &mut Core, now: Time) {
        let Some(queued) = self.queue().as_mut().map(std::mem::take) else { return };
        for (commands, answer) in queued {
            match core.driver.start(&mut core.io, now, commands) {
                StartedCall::Over(outcome) => core.driver.calls.tell(&answer, outcome),
                StartedCall::Waits(client) => {
                    core.driver.calls.wait(client, CallWaiter { answer, is_thread: true })
                }
            }
        }
    }

    /// Hands the commands of one call to the machine: their outcome, or what to wait for. `waker` is called when that is there.
    pub(crate) fn start(
        &self,
        commands: Vec<Command>,
        is_thread: bool,
        waker: impl FnOnce() -> Waker,
    ) -> Result<CallReplies, Waiting> {
        let mut guard = self.core();
        let Some(core) = guard.as_mut().filter(|_| !self.stop.is_set()) else { return Ok(None) };
        let now = clock::now();
        let waiting = match core.driver.start(&mut core.io, now, commands) {
            StartedCall::Over(outcome) => Ok(outcome),
            StartedCall::Waits(client) => {
                let answer = CallAnswer::new(waker());
                core.driver.calls.wait(client, CallWaiter { answer: Arc::clone(&answer), is_thread });
                Err(Waiting { client, answer })
            }
        };
        let woken = self.say(core, now, !is_thread && waiting.is_err());
        drop(guard);
        woken.wake();
        waiting
    }

    /// Nobody wants the outcome any more: what waits for ever ends.
    pub(crate) fn abandon(&self, waiting: &Waiting) {
        let mut guard = self.core();
        let Some(core) = guard.as_mut() else { return };
        // It may have come to its end, and its number may be another's.
        if core.driver.calls.answer(waiting.client).is_some_and(|answer| Arc::ptr_eq(answer, &waiting.answer))
        {
            core.driver.abandon(&mut core.io, waiting.client);
        }
        let woken = self.say(core, clock::now(), false);
        drop(guard);
        woken.wake();
    }

    /// Writes what the machine has to say after something was handed to it outside a turn, unless whoever leads is about to;
    /// and sees to it that somebody leads in time. `keep`: no thread is there to take the lead.
    fn say(&self, core: &mut Core, now: Time, keep: bool) -> Woken {
        core.io.retime(&mut core.driver, now);
        let crowd = self.is_crowded();
        if core.lead != Lead::Awake && !crowd {
            core.io.flush();
        }
        match core.lead {
            Lead::Free if keep => self.wake_keeper(),
            Lead::Asleep(until) if crowd || core.io.due() < until => {
                core.lead = Lead::Awake;
                self.waker.wake();
            }
            _ => {}
        }
        core.driver.calls.take_woken()
    }

    /// Why members refuse this client, in words.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.core().as_ref().map_or_else(Vec::new, |core| core.driver.refusals(&core.io))
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }

    fn is_crowded(&self) -> bool {
        self.crowd.load(Ordering::Relaxed)
    }

    /// Turns until the outcome is there, or there are so many that the keeper does it.
    fn lead(&self, mut poller: MutexGuard<'_, Poller>, own: &CallAnswer) {
        if let Some(core) = self.core().as_mut() {
            core.led += 1;
        }
        while self.turn(&mut poller, |_| own.is_there() || self.is_crowded()) == Some(false) {}
    }

    /// One turn. `leaves`: whether whoever leads gives the lead up after it, by whether threads have got outcomes; given back.
    /// `None` if the client has ended.
    fn turn(&self, poller: &mut Poller, leaves: impl FnOnce(bool) -> bool) -> Option<bool> {
        let patience = {
            let mut guard = self.core();
            let core = guard.as_mut()?;
            let now = clock::now();
            self.take_queue(core, now);
            core.io.retime(&mut core.driver, now);
            let patience = core.io.patience(None);
            core.lead = Lead::Asleep(patience.end());
            patience
        };
        let waited = poller.wait(patience);
        let (woken, leaves) = {
            let mut guard = self.core();
            let core = guard.as_mut()?;
            if let Err(error) = waited {
                tracing::error!(%error, "the client cannot wait for its sockets and ends");
                self.stop.stop();
            }
            poller.deliver(&mut core.io, &mut core.driver, patience);
            let woken = core.driver.calls.take_woken();
            self.count(core.driver.calls.count() + woken.count());
            let leaves = leaves(woken.thread);
            // In a crowd the keeper has the lead, or is called to it: it writes.
            core.lead = match leaves && !self.is_crowded() || self.stop.is_set() {
                true => Lead::Free,
                false => Lead::Awake,
            };
            (woken, leaves)
        };
        woken.wake();
        (!self.stop.is_set()).then_some(leaves)
    }

    /// So many calls were under way at once.
    fn count(&self, calls: usize) {
        match calls {
            0 => {}
            1..CROWD_ENDS => self.crowd.store(false, Ordering::Relaxed),
            CROWD.. => self.crowd.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// After the lead was given up: to a thread that waits, or to the keeper if that is needed now.
    fn hand_on(&self) {
        let mut guard = self.core();
        let Some(core) = guard.as_mut() else { return };
        let crowd = self.is_crowded();
        let heir = core.driver.calls.waiting_thread().filter(|_| !crowd).map(|answer| answer.waker());
        let keeps = crowd || heir.is_none() && (core.dozes || core.driver.calls.futures() > 0);
        core.dozes &= !keeps;
        drop(guard);
        match heir {
            Some(heir) => heir.wake(),
            None if keeps => self.wake_keeper(),
            None => {}
        }
    }

    /// What the client's own thread does, until the client ends.
    pub(crate) fn keep(&self) {
        // It comes once.
        let _ = self.keeper.set(std::thread::current());
        let _ending = KeeperEnd(self);
        let (mut led, mut nap) = (0, NAP);
        while !self.stop.is_set() {
            let Some(came) = self.led_since(&mut led) else { return };
            if came {
                nap = NAP;
                std::thread::park_timeout(nap);
                continue;
            }
            match self.poller.try_lock() {
                Ok(mut poller) => {
                    nap = NAP;
                    while self.turn(&mut poller, |thread| thread && !self.is_crowded()) == Some(false) {}
                    drop(poller);
                    self.hand_on();
                }
                Err(TryLockError::WouldBlock) => {
                    nap = (nap * 2).min(NAP_MAX);
                    if let Some(core) = self.core().as_mut() {
                        core.dozes = true;
                    }
                }
                Err(TryLockError::Poisoned(_)) => return,
            }
            if !self.stop.is_set() {
                std::thread::park_timeout(nap);
            }
        }
    }

    /// Whether a thread has taken the lead since this was asked, and no future waits for the keeper to do.
    fn led_since(&self, before: &mut u64) -> Option<bool> {
        let mut guard = self.core();
        let core = guard.as_mut()?;
        core.dozes = false;
        let led = std::mem::replace(before, core.led);
        Some(led != core.led && core.driver.calls.futures() == 0 && !self.is_crowded())
    }

    /// `None` when the client has ended. A panic of a thread within the machine, which would be a mistake of ours, ends it.
    fn core(&self) -> MutexGuard<'_, Option<Core>> {
        self.core.lock().unwrap_or_else(|poisoned| {
            self.core.clear_poison();
            let mut guard = poisoned.into_inner();
            let woken = guard.take().map(|mut core| {
                core.driver.leave_all();
                core.driver.calls.take_woken()
            });
            self.stop.stop();
            drop(guard);
            woken.into_iter().for_each(Woken::wake);
            self.core()
        })
    }

    /// Tells whoever waits that the client has ended, and says what is to be said yet.
    fn end(&self) {
        self.stop.stop();
        let mut poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.queue().take();
        for (_, answer) in queued.into_iter().flatten() {
            answer.put(None).wake();
        }
        let woken = self.core().as_mut().map(|core| {
            core.driver.stopping(&mut core.io);
            core.driver.calls.take_woken()
        });
        woken.into_iter().for_each(Woken::wake);
        let deadline = clock::now().after(STOPPING);
        while clock::now() < deadline && self.core().as_mut().is_some_and(|core| !core.io.is_flushed()) {
            let Some(patience) = self.core().as_mut().map(|core| core.io.patience(Some(TICK))) else { break };
            if poller.wait(patience).is_err() {
                break;
            }
            if let Some(core) = self.core().as_mut() {
                poller.deliver(&mut core.io, &mut core.driver, patience);
            }
        }
        *self.core() = None;
    }
}

/// Ends the client with the keeper, however that ends.
struct KeeperEnd<'a>(&'a Turns);

impl Drop for KeeperEnd<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
