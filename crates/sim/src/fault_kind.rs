//! The kinds of faults by name, and sets of them. Not what they do.

use std::fmt;
use std::str::FromStr;

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// One kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind {
            $($kind,)*
        }

        impl FaultKind {
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(FaultKind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    Loss "loss",
    Reset "reset",
    Duplicate "duplicate",
    Reorder "reorder",
    Delay "delay",
    OneWay "one-way",
    Partition "partition",
    CrashNode "crash-node",
    CrashShim "crash-shim",
    CrashRouter "crash-router",
    CrashController "crash-controller",
    Drain "drain",
    PauseNode "pause-node",
    PauseShim "pause-shim",
    PauseRouter "pause-router",
    Replace "replace-shim",
    Clock "clock",
    SlowStorage "slow-storage",
    StorageTimeout "storage-timeout",
    StorageLoss "storage-loss",
    StorageRestart "storage-restart",
    Remap "remap",
    Resize "resize",
    ControllerLost "controller-lost",
    Evict "evict",
    Barrier "barrier",
    Confused "confused",
    FeedLoss "feed-loss",
    FeedHang "feed-hang",
    Reload "reload",
    Purge "purge",
    StoreCut "store-cut",
    StoreEmptied "store-emptied",
    StoreForeign "store-foreign",
    StorageRollback "storage-rollback",
    Heat "heat",
    HandOver "hand-over",
}

impl FaultKind {
    /// Whether it strikes a feature which not every cluster has.
    pub(crate) fn needs_feed(self) -> bool {
        matches!(self, FaultKind::FeedLoss | FaultKind::FeedHang)
    }

    /// Whether it came later: what a seed draws of these is no part of the other draws.
    pub(crate) fn is_of_feature(self) -> bool {
        self.needs_feed() || matches!(self, FaultKind::Reload | FaultKind::Purge)
    }

    /// Whether it is one of the controllers' store, which came later still.
    pub(crate) fn is_of_store(self) -> bool {
        matches!(self, FaultKind::StoreCut | FaultKind::StoreEmptied | FaultKind::StoreForeign)
    }

    /// Whether storage loses what it has acknowledged. That came last.
    pub(crate) fn loses_data(self) -> bool {
        self == FaultKind::StorageRollback
    }

    /// Whether shims are stopped in order. That came after all others.
    pub(crate) fn is_in_order(self) -> bool {
        self == FaultKind::HandOver
    }

    /// Whether it says that keys are hot which are not.
    pub(crate) fn is_of_heat(self) -> bool {
        self == FaultKind::Heat
    }
}

/// A set of kinds, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSet(u64);

/// A name that no kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFault(pub String);

impl FaultSet {
    pub const NONE: FaultSet = FaultSet(0);
    pub const ALL: FaultSet = FaultSet((1 << FaultKind::ALL.len()) - 1);

    pub fn contains(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    #[must_use]
    pub fn with(self, kind: FaultKind) -> FaultSet {
        FaultSet(self.0 | 1 << kind as u64)
    }

    pub(crate) fn without(self, kind: impl Fn(FaultKind) -> bool) -> FaultSet {
        self.kinds().filter(|one| !kind(*one)).fold(FaultSet::NONE, FaultSet::with)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn kinds(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }
}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    /// Names with commas between them; `all`, `none`.
    fn from_str(text: &str) -> Result<FaultSet, UnknownFault> {
        match text {
            "all" => return Ok(FaultSet::ALL),
            "none" => return Ok(FaultSet::NONE),
            _ => {}
        }
        let kind = |name: &str| {
            let found = FaultKind::ALL.iter().find(|kind| kind.name() == name.trim());
            found.copied().ok_or_else(|| UnknownFault(name.to_owned()))
        };
        text.split(',').map(kind).try_fold(FaultSet::NONE, |set, kind| Ok(set.with(kind?)))
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FaultSet::ALL => formatter.write_str("all"),
            FaultSet::NONE => formatter.write_str("none"),
            set => {
                let names: Vec<&str> = set.kinds().map(FaultKind::name).collect();
                formatter.write_str(&names.join(","))
            }
        }
    }
}

impl fmt::Display for UnknownFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        write!(
            formatter,
            "no kind of fault is called {:?}; there are {}, and all and none",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_as_it_is_written() {
        for text in ["all", "none", "loss", "reset,crash-node,confused"] {
            assert_eq!(text.parse::<FaultSet>().unwrap().to_string(), text);
        }
        let wrong = "loss,los".parse::<FaultSet>().unwrap_err().to_string();
        assert!(wrong.contains("\"los\"") && wrong.contains("crash-router"), "{wrong}");
    }
}
