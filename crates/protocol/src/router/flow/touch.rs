//! Which keys one operation of a client is about, and which an answer has freed. Not what operations demand of each other.

use smallvec::SmallVec;
use wire::Key;

use crate::router::flow::request::{low, runs_alone};
use commands::Classified;

/// The keys whose order an operation takes part in, each as the low half of its digest. Two keys that share
/// it are kept in order without need, nothing worse.
#[derive(Debug)]
pub(crate) enum Touch {
    Nothing,
    One(u64),
    Many(Box<[u64]>),
    /// Runs alone: after everything earlier, before everything later.
    All,
}

impl Touch {
    pub(crate) fn of(classified: &Classified, keys: &[Key]) -> Touch {
        match keys {
            _ if runs_alone(classified) => Touch::All,
            [key] => Touch::One(low(key)),
            several => Touch::Many(several.iter().map(low).collect()),
        }
    }

    /// The keys that it names; none if it is about all.
    pub(crate) fn digests(&self) -> &[u64] {
        match self {
            Touch::Nothing | Touch::All => &[],
            Touch::One(digest) => std::slice::from_ref(digest),
            Touch::Many(digests) => digests,
        }
    }

    pub(crate) fn contains(&self, digest: u64) -> bool {
        match self {
            Touch::Nothing => false,
            Touch::One(own) => *own == digest,
            Touch::Many(own) => own.contains(&digest),
            Touch::All => true,
        }
    }
}

/// What an answer may let go on.
#[derive(Debug)]
pub(crate) enum Freed {
    Nothing,
    Keys(SmallVec<[u64; 4]>),
    All,
}

impl Freed {
    pub(crate) fn of(touch: &Touch) -> Freed {
        match touch {
            Touch::Nothing => Freed::Nothing,
            Touch::One(digest) => Freed::Keys(SmallVec::from_slice(&[*digest])),
            Touch::Many(digests) => Freed::Keys(SmallVec::from_slice(digests)),
            Touch::All => Freed::All,
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Freed::Nothing => true,
            Freed::Keys(digests) => digests.is_empty(),
            Freed::All => false,
        }
    }

    /// Whether an operation on this may go on.
    pub(crate) fn concerns(&self, touch: &Touch) -> bool {
        match self {
            Freed::Nothing => false,
            Freed::Keys(digests) => digests.iter().any(|digest| touch.contains(*digest)),
            Freed::All => true,
        }
    }

    /// Something on these keys has gone: what comes behind it may follow it.
    pub(crate) fn add(&mut self, touch: &Touch) {
        if let Freed::Keys(freed) = self {
            let more = touch.digests().iter().filter(|digest| !freed.contains(digest));
            let more: SmallVec<[u64; 16]> = more.copied().collect();
            freed.extend(more);
        }
    }

    /// Something on these keys stays: what comes behind it waits for it.
    pub(crate) fn take_away(&mut self, touch: &Touch) {
        if let Freed::Keys(freed) = self {
            freed.retain(|digest| !touch.contains(*digest));
        }
    }
}
