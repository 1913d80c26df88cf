//! A process that another one of its members takes the place of, perhaps of another release: the listening sockets pass over, so
//! that nobody is refused, and only they and the clients overlap.
//!
//! ```text
//! the process before                    the next one, its child
//!      start             ──────────▶    reads and checks its configuration
//!                        ◀──────────    prepared
//!      all its sockets   ──────────▶    starts its routers under other numbers
//!                        ◀──────────    serving: new clients are its
//!      takes no new clients; its nodes drop their copies, its shims hand over, its controllers end
//!      yours             ──────────▶    starts its nodes, shims and controllers
//!                        ◀──────────    done
//!      serves the clients that it has until they leave, then ends
//! ```
//!
//! Until `serving` nothing has changed for the process before. A node or a shim is never there twice; routers are, so each process has
//! numbers of its own for them.

mod channel;
pub(crate) mod sockets;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use channel::{UpgradeChannel, UpgradeWord};

/// Tells a process that its standard input is the channel to the one whose place it takes.
const SUCCESSOR: &str = "DISTCACHE_SUCCESSOR";
const PREPARES_MAX: Duration = Duration::from_secs(60);
const LINKS_MAX: Duration = Duration::from_secs(30);
/// A process ends its nodes and shims within this, or they are left to their fate.
const HANDS_OVER_MAX: Duration = Duration::from_secs(60);

/// Whether the routers of this process have the other numbers.
static OTHER_NUMBERS: AtomicBool = AtomicBool::new(false);

/// Whether the routers here use the other one of their two sets of numbers, because a process before had the first when it began.
pub fn has_other_numbers() -> bool {
    OTHER_NUMBERS.load(Ordering::Relaxed)
}

/// Whether the next process goes on with the members of this one.
pub fn is_succeeded() -> bool {
    sockets::are_given()
}

/// The next process, as the one before has it.
#[derive(Debug)]
pub struct Successor {
    child: Child,
    channel: UpgradeChannel,
}

impl Successor {
    /// Starts what stands now where this program was started from, with the same arguments.
    ///
    /// # Errors
    /// There is no such program any more.
    pub fn start() -> io::Result<Successor> {
        let (own, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program()?);
        command.args(std::env::args_os().skip(1)).env(SUCCESSOR, "1");
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        Ok(Successor { child, channel: UpgradeChannel::new(own) })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin to serve new clients beside this process.
    ///
    /// # Errors
    /// It does not come so far; it is ended, and this process goes on as if nothing had been.
    pub fn let_serve(&mut self) -> io::Result<()> {
        let begun = self.begin();
        if begun.is_err() {
            sockets::set_given(false);
            // It may have ended by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        begun
    }

    fn begin(&mut self) -> io::Result<()> {
        self.channel.expect(UpgradeWord::Prepared, PREPARES_MAX)?;
        sockets::set_given(true);
        self.channel.give(&sockets::all()?, !has_other_numbers())?;
        self.channel.expect(UpgradeWord::Serving, LINKS_MAX * 2)
    }

    /// Gives it the nodes, shims and controllers, of which this process has none any more.
    ///
    /// # Errors
    /// It has not brought them up.
    pub fn give_members(&mut self) -> io::Result<()> {
        sockets::release();
        self.channel.say(UpgradeWord::Yours)?;
        self.channel.expect(UpgradeWord::Done, HANDS_OVER_MAX)
    }
}

/// The file that lies now where the one that runs was started from.
fn program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let text = program.to_string_lossy();
    // So Linux calls a file that is gone.
    Ok(text.strip_suffix(" (deleted)").map_or(program.clone(), PathBuf::from))
}

/// The process before, as the next one has it.
#[derive(Debug)]
pub struct Predecessor {
    channel: UpgradeChannel,
}

impl Predecessor {
    /// The process whose place this one takes, if it does.
    ///
    /// # Errors
    /// Standard input is no channel.
    pub fn find() -> io::Result<Option<Predecessor>> {
        if std::env::var_os(SUCCESSOR).is_none() {
            return Ok(None);
        }
        let channel = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Some(Predecessor { channel: UpgradeChannel::new(channel.into()) }))
    }

    /// Takes its sockets. This process could serve, as far as it knows.
    ///
    /// # Errors
    /// It has ended, or is no such process.
    pub fn take_sockets(&mut self) -> io::Result<()> {
        self.channel.say(UpgradeWord::Prepared)?;
        let (given, other_numbers) = self.channel.take(PREPARES_MAX)?;
        OTHER_NUMBERS.store(other_numbers, Ordering::Relaxed);
        sockets::inherit(given);
        Ok(())
    }

    /// So long routers may take to find the other members.
    pub const LINKS_MAX: Duration = LINKS_MAX;

    /// Says that routers serve, and waits until the nodes, shims and controllers are this process's. One that ends instead has none.
    ///
    /// # Errors
    /// It hangs.
    pub fn take_members(&mut self) -> io::Result<()> {
        sockets::hold(false);
        let taken = self
            .channel
            .say(UpgradeWord::Serving)
            .and_then(|()| self.channel.expect(UpgradeWord::Yours, HANDS_OVER_MAX));
        match taken {
            Err(error)
                if [io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe].contains(&error.kind()) =>
            {
                tracing::warn!("the process before has ended before it had handed everything over");
                Ok(())
            }
            taken => taken,
        }
    }

    /// All members serve here.
    pub fn finish(mut self) {
        sockets::close_inherited();
        // One that has ended needs no word.
        let _ = self.channel.say(UpgradeWord::Done);
    }
}
