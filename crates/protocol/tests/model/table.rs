//! The explorations and what each is for.

use super::config::{Budget, Config, Scale, Start, Ticks, UNLIMITED, Write};
use super::coverage::Event::{self, *};

const SET: &[Write] = &[Write::Set(10)];
const SETS: &[Write] = &[Write::Set(10), Write::Set(20)];
const MIXED: &[Write] = &[Write::Set(10), Write::Increment];

pub(crate) fn configs() -> Vec<Config> {
    [
        leases(),
        sessions(),
        fills(),
        faults(),
        crashes(),
        doubles(),
        lives(),
        handovers(),
        divisions(),
        two_nodes(),
        elastic(),
        near(),
        every_fault(),
        deep(),
        deep_crashes(),
        deep_two_nodes(),
    ]
    .concat()
}

/// One node that holds a copy under a lease of two ticks, one write, and nothing that goes wrong.
fn base(name: &'static str, writes: &'static [Write], budget: Budget, expected: &'static [Event]) -> Config {
    Config {
        name,
        scale: Scale::Ci,
        nodes: 1,
        elastic: false,
        near: false,
        divides: false,
        lease_ticks: 2,
        later_lease_ticks: None,
        guard_ticks: 0,
        patience_ticks: 0,
        drift: 0,
        ticks: Ticks::Clocked,
        start: Start::Warm,
        writes,
        budget,
        hellos_max: 3,
        storage_slots: 1,
        proofs_queue: false,
        expected,
    }
}

/// Time passes: leases lapse, are renewed, and are waited for.
fn leases() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            scale: Scale::Small,
            ..base(
                "writes",
                SETS,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, Repeated, WriteWaits],
            )
        },
        Config {
            scale: Scale::Small,
            ticks: Ticks::Free,
            ..base(
                "pauses",
                SET,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, Repeated, WriteWaits],
            )
        },
        Config {
            lease_ticks: 3,
            guard_ticks: 1,
            drift: 1,
            ..base(
                "drift",
                SET,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, WriteWaits],
            )
        },
        base(
            "reads",
            SET,
            Budget { time: UNLIMITED, reads: 1, ..none() },
            &[Hit, Poisoned, EarlyCommit, LeaseLost, LeaseLapsed, Ungranted],
        ),
        Config {
            patience_ticks: 1,
            ..base(
                "waiting",
                MIXED,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, Repeated, WriteWaits, Expired],
            )
        },
        Config {
            lease_ticks: 1,
            ticks: Ticks::Free,
            ..base(
                "paused-reads",
                SET,
                Budget { time: 1, reads: 1, ..none() },
                &[Hit, Poisoned, EarlyCommit, LeaseLost, LeaseLapsed],
            )
        },
    ]
}

/// Sessions open, and are refused and rejected.
fn sessions() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            lease_ticks: 1,
            ticks: Ticks::Free,
            start: Start::Opened,
            ..base(
                "late-renew",
                SET,
                Budget { time: 1, ..none() },
                &[Poisoned, EarlyCommit, LeaseLapsed, SessionRefused],
            )
        },
        Config {
            lease_ticks: 1,
            ..base(
                "sessions",
                SET,
                Budget { time: 1, offers: 1, ..none() },
                &[Poisoned, EarlyCommit, LeaseLost, LeaseLapsed, NumberRejected],
            )
        },
    ]
}

/// No lease ends: copies come and go, and writes meet fills.
fn fills() -> Vec<Config> {
    let none = Budget::default;
    vec![
        base(
            "fills",
            SET,
            Budget { offers: 1, reads: 1, evictions: 1, ..none() },
            &[Hit, Joined, Poisoned, EarlyCommit, Evicted, Ungranted],
        ),
        Config {
            storage_slots: 2,
            ..base(
                "stamps",
                SET,
                Budget { offers: 2, evictions: 2, ..none() },
                &[Poisoned, EarlyCommit, Evicted, Ungranted],
            )
        },
        base("queue", SETS, Budget { reads: 1, ..none() }, &[Hit, Poisoned, EarlyCommit, Ungranted]),
        base(
            "ordered",
            SET,
            Budget { reads: 1, ordered_reads: 2, ..none() },
            &[Hit, Held, Poisoned, EarlyCommit, Ungranted],
        ),
        base("queue-mixed", MIXED, Budget { reads: 1, ..none() }, &[Hit, Poisoned, EarlyCommit, Ungranted]),
        Config {
            storage_slots: 2,
            ..base("joins", SET, Budget { reads: 2, ..none() }, &[Hit, Joined, Poisoned, Ungranted])
        },
        base(
            "views",
            SET,
            Budget { reads: 1, offers_second: 1, ..none() },
            &[Hit, Joined, Poisoned, EarlyCommit, Ungranted],
        ),
        base(
            "two-lanes",
            &[Write::Set(10), Write::Set3(20)],
            Budget { reads: 1, ..none() },
            &[Hit, Poisoned, EarlyCommit, Ungranted],
        ),
        base(
            "barriers",
            &[Write::Flush, Write::Flush],
            Budget { offers: 1, ..none() },
            &[Revoked, Ungranted, WriteWaits, CopyServable],
        ),
        base(
            "blocking",
            &[Write::Block, Write::Set(10)],
            Budget { reads: 1, ..none() },
            &[Hit, Poisoned, EarlyCommit, Ungranted],
        ),
    ]
}

/// Something breaks, leaves, or moves.
fn faults() -> Vec<Config> {
    let none = Budget::default;
    vec![
        base(
            "loss",
            SET,
            Budget { reads: 1, losses: 1, ..none() },
            &[Hit, Poisoned, EarlyCommit, CommandLost, LateWrite],
        ),
        base(
            "storage-restart",
            SET,
            Budget { time: 4, reads: 1, storage_restarts: 1, ..none() },
            &[Hit, EarlyCommit, LeaseLost, CommandLost, WriteHeld, ReadHeld],
        ),
        Config {
            nodes: 2,
            ..base(
                "two-storage-restart",
                &[],
                Budget { time: 2, offers: 1, evictions: 1, storage_restarts: 1, ..none() },
                &[Evicted, LeaseLost, Ungranted, CommandLost, ReadHeld, CopyServable],
            )
        },
        base(
            "relink",
            SET,
            Budget { reads: 1, relinks: 1, ..none() },
            &[Hit, Poisoned, EarlyCommit, Repeated],
        ),
        base(
            "remap",
            SET,
            Budget { reads: 1, remaps: 2, ..none() },
            &[Hit, Poisoned, EarlyCommit, SessionRefused],
        ),
        Config {
            lease_ticks: 1,
            ..base(
                "drain",
                SET,
                Budget { time: 1, offers: 1, drains: 1, ..none() },
                &[EarlyCommit, LeaseLapsed, SessionRefused],
            )
        },
    ]
}

/// Two processes with the id of one node.
fn doubles() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            lease_ticks: 1,
            hellos_max: 2,
            ..base(
                "node-double",
                SET,
                Budget { time: 1, offers: 1, doubles: 1, ..none() },
                &[LeaseLost, LeaseLapsed, NumberRejected, CopyServable, WriteWaits],
            )
        },
        Config {
            lease_ticks: 1,
            hellos_max: 2,
            ..base(
                "node-double-barrier",
                &[Write::Flush],
                Budget { time: 1, offers: 1, doubles: 1, ..none() },
                &[LeaseLost, NumberRejected, CopyServable],
            )
        },
    ]
}

/// A process ends, and another one takes its place.
fn crashes() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            lease_ticks: 1,
            start: Start::Quiet,
            hellos_max: 2,
            storage_slots: 0,
            ..base(
                "node-crash",
                &[],
                Budget { time: 1, offers: 2, node_crashes: 1, ..none() },
                &[SessionRefused, NumberRejected],
            )
        },
        Config {
            lease_ticks: 1,
            ..base(
                "node-crash-warm",
                SET,
                Budget { offers: 1, node_crashes: 1, ..none() },
                &[Poisoned, EarlyCommit, Ungranted, NumberRejected, CopyServable],
            )
        },
        Config {
            start: Start::Quiet,
            hellos_max: 1,
            ..base(
                "restart",
                SET,
                Budget { offers: 2, node_crashes: 1, ..none() },
                &[Poisoned, EarlyCommit, Ungranted, CopyServable],
            )
        },
        Config {
            start: Start::Opened,
            hellos_max: 2,
            ..base(
                "restart-fills",
                SET,
                Budget { offers: 1, node_crashes: 1, ..none() },
                &[Poisoned, EarlyCommit, Ungranted, NumberRejected, CopyServable],
            )
        },
        base(
            "shim-crash",
            SETS,
            Budget { time: 4, shim_crashes: 1, ..none() },
            &[EarlyCommit, LeaseLost, LateWrite, WriteHeld, WriteWaits],
        ),
        base(
            "takeover",
            SETS,
            Budget { time: 5, takeovers: 1, ..none() },
            &[EarlyCommit, LeaseLost, WriteHeld, ReplacedShimGranted, WriteWaits],
        ),
        Config {
            lease_ticks: 1,
            proofs_queue: true,
            ..base(
                "takeover-proofs",
                SET,
                Budget { time: 2, takeovers: 1, ..none() },
                &[EarlyCommit, LeaseLost, WriteHeld, WriteWaits],
            )
        },
    ]
}

/// A later shim is configured for shorter leases, and what earlier ones have left at storage may be lost.
fn lives() -> Vec<Config> {
    let none = Budget::default;
    let shorter = |config| Config { lease_ticks: 3, later_lease_ticks: Some(1), ..config };
    vec![
        shorter(base(
            "lives-crash",
            SET,
            Budget { time: 4, shim_crashes: 1, ..none() },
            &[EarlyCommit, LeaseLost, LateWrite, WriteHeld, WriteWaits],
        )),
        shorter(base(
            "lives-takeover",
            SET,
            Budget { time: 3, takeovers: 1, ..none() },
            &[EarlyCommit, LeaseLost, WriteHeld, ReplacedShimGranted, WriteWaits],
        )),
        shorter(base(
            "lives-crash-twice",
            SET,
            Budget { time: 4, shim_crashes: 2, ..none() },
            &[EarlyCommit, LeaseLost, LateWrite, WriteHeld, WriteWaits],
        )),
        shorter(base(
            "lives-unrecorded",
            SET,
            Budget { time: 4, shim_crashes: 1, storage_restarts: 1, ..none() },
            &[EarlyCommit, LeaseLost, LateWrite, WriteHeld, WriteWaits],
        )),
    ]
}

/// A shim leaves, and its successor waits for nobody.
fn handovers() -> Vec<Config> {
    let none = Budget::default;
    let recorded = |config| Config { later_lease_ticks: Some(2), ..config };
    vec![
        recorded(base(
            "handover",
            SETS,
            Budget { time: 2, handovers: 1, ..none() },
            &[EarlyCommit, LeaseLost, HandedOver, WriteWaits, Revoked],
        )),
        recorded(base(
            "handover-fills",
            SET,
            Budget { offers: 1, handovers: 1, ..none() },
            &[Poisoned, EarlyCommit, Ungranted, HandedOver],
        )),
        recorded(base(
            "handover-twice",
            SET,
            Budget { time: 1, handovers: 2, ..none() },
            &[EarlyCommit, HandedOver, WriteWaits],
        )),
        recorded(base(
            "handover-inherited",
            SET,
            Budget { time: 2, takeovers: 1, handovers: 1, ..none() },
            &[EarlyCommit, LeaseLost, HandedOver, WriteHeld, ReplacedShimGranted, WriteWaits],
        )),
        recorded(Config {
            nodes: 2,
            ..base(
                "handover-of-two",
                SET,
                Budget { handovers: 1, evictions: 1, ..none() },
                &[EarlyCommit, HandedOver, Evicted],
            )
        }),
    ]
}

/// The key goes to another shim while it is written and read; the server that has it is one all the time.
fn divisions() -> Vec<Config> {
    let none = Budget::default;
    let divides = |config| Config { divides: true, lease_ticks: 1, ..config };
    vec![
        divides(base(
            "divided",
            SET,
            Budget { time: 2, ..none() },
            &[EarlyCommit, LeaseLost, Divided, NextWrites, WriteWaits],
        )),
        Config {
            scale: Scale::Deep,
            ticks: Ticks::Free,
            ..divides(base(
                "deep-divided-reads",
                SET,
                Budget { reads: 1, ..none() },
                &[Hit, Poisoned, EarlyCommit, Ungranted, Divided, NextWrites],
            ))
        },
    ]
}

/// The key has one place, and another one while it is hot.
fn elastic() -> Vec<Config> {
    let none = Budget::default;
    let two = |config| Config { nodes: 2, elastic: true, ..config };
    vec![
        two(base(
            "elastic",
            SET,
            Budget { heats: 1, elastic_reads: 1, evictions: 1, ..none() },
            &[Raised, FurtherServable, Poisoned, EarlyCommit, Evicted, Ungranted],
        )),
        two(base(
            "elastic-told",
            SET,
            Budget { heats: 1, elastic_reads: 1, degrees: 2, ..none() },
            &[Raised, FurtherServable, ToldToLeave, Poisoned, Ungranted],
        )),
        Config {
            ticks: Ticks::Free,
            ..two(base(
                "elastic-remap",
                SET,
                Budget { heats: 1, elastic_reads: 1, remaps: 1, ..none() },
                &[Raised, FurtherServable, Poisoned, EarlyCommit],
            ))
        },
        Config {
            scale: Scale::Deep,
            ..two(base(
                "elastic-reads",
                SET,
                Budget { heats: 1, elastic_reads: 1, reads: 1, ..none() },
                &[Hit, Raised, FurtherServable, Poisoned, EarlyCommit, Ungranted],
            ))
        },
        Config {
            lease_ticks: 1,
            hellos_max: 1,
            ..two(base(
                "elastic-leases",
                SET,
                Budget { time: 1, heats: 1, elastic_reads: 1, ..none() },
                &[Raised, FurtherServable, LeaseLost, LeaseLapsed, WriteWaits],
            ))
        },
    ]
}

/// Two nodes, one in each layer.
fn two_nodes() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            nodes: 2,
            ..base(
                "two-nodes",
                SET,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, WriteWaits],
            )
        },
        Config {
            nodes: 2,
            ..base("two-queue", SETS, Budget { reads: 1, ..none() }, &[Hit, Poisoned, EarlyCommit, Ungranted])
        },
        Config {
            nodes: 2,
            ..base(
                "two-fills",
                SET,
                Budget { offers: 1, evictions: 1, ..none() },
                &[Poisoned, EarlyCommit, Evicted, Ungranted],
            )
        },
    ]
}

/// The last node is a router's: the shim comes to know it by its first message, and hears of it when its link breaks.
fn near() -> Vec<Config> {
    let none = Budget::default;
    let near = |config| Config { near: true, ..config };
    vec![
        near(base(
            "near",
            SETS,
            Budget { time: UNLIMITED, relinks: 1, ..none() },
            &[EarlyCommit, LeaseLost, LeaseLapsed, Repeated, WriteWaits],
        )),
        near(Config {
            start: Start::Quiet,
            hellos_max: 1,
            ..base(
                "near-sessions",
                SET,
                Budget { offers: 1, relinks: 1, ..none() },
                &[Poisoned, EarlyCommit, Ungranted, CopyServable],
            )
        }),
        near(base(
            "near-crash",
            SET,
            Budget { time: 1, offers: 1, node_crashes: 1, ..none() },
            &[WriteWaits],
        )),
        near(Config {
            nodes: 2,
            ..base(
                "near-beside-a-node",
                SET,
                Budget { offers: 1, evictions: 1, relinks: 1, ..none() },
                &[Poisoned, EarlyCommit, Evicted, Ungranted],
            )
        }),
    ]
}

/// Every kind of fault in one exploration: any one of them around two writes, any two around one.
fn every_fault() -> Vec<Config> {
    let any = |faults| Budget {
        time: UNLIMITED,
        evictions: 1,
        node_crashes: 1,
        shim_crashes: 1,
        takeovers: 1,
        losses: 1,
        relinks: 1,
        remaps: 1,
        drains: 1,
        faults: Some(faults),
        ..Budget::default()
    };
    let expected = &[EarlyCommit, LeaseLost, LeaseLapsed, LateWrite, WriteHeld, ReplacedShimGranted];
    vec![
        base("any-fault", SETS, any(1), expected),
        base("any-two-faults", SET, any(2), expected),
        Config { scale: Scale::Deep, ..base("deep-any-three-faults", SET, any(3), expected) },
    ]
}

/// Larger ones, for a machine with time: of sessions, fills and views.
fn deep() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            scale: Scale::Deep,
            ..base(
                "deep-sessions",
                SET,
                Budget { time: 3, offers: 1, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, NumberRejected],
            )
        },
        Config {
            scale: Scale::Deep,
            storage_slots: 2,
            ..base(
                "deep-fills",
                SET,
                Budget { offers: 1, reads: 1, evictions: 1, ..none() },
                &[Hit, Joined, Poisoned, EarlyCommit, Evicted],
            )
        },
        Config {
            scale: Scale::Deep,
            ..base(
                "deep-views",
                SET,
                Budget { offers: 1, offers_second: 1, reads: 1, ..none() },
                &[Hit, Joined, Poisoned, EarlyCommit, Ungranted],
            )
        },
    ]
}

/// Larger ones of processes that end.
fn deep_crashes() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            scale: Scale::Deep,
            lease_ticks: 1,
            hellos_max: 2,
            ..base(
                "deep-node-double",
                SET,
                Budget { offers: 1, time: 2, doubles: 1, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed, NumberRejected],
            )
        },
        Config {
            scale: Scale::Deep,
            lease_ticks: 1,
            hellos_max: 2,
            ..base(
                "deep-node-crash",
                SET,
                Budget { offers: 1, time: 1, node_crashes: 1, ..none() },
                &[Poisoned, EarlyCommit, LeaseLost, NumberRejected],
            )
        },
        Config {
            scale: Scale::Deep,
            lease_ticks: 1,
            hellos_max: 2,
            ..base(
                "deep-shim-crash",
                SET,
                Budget { time: 2, offers: 1, shim_crashes: 1, ..none() },
                &[EarlyCommit, LateWrite, WriteHeld],
            )
        },
        Config {
            scale: Scale::Deep,
            proofs_queue: true,
            ..base(
                "deep-takeover",
                SETS,
                Budget { time: 5, takeovers: 1, ..none() },
                &[EarlyCommit, LeaseLost, WriteHeld, ReplacedShimGranted],
            )
        },
    ]
}

/// Larger ones of two nodes.
fn deep_two_nodes() -> Vec<Config> {
    let none = Budget::default;
    vec![
        Config {
            scale: Scale::Deep,
            nodes: 2,
            ..base(
                "deep-two-writes",
                SETS,
                Budget { time: UNLIMITED, ..none() },
                &[EarlyCommit, LeaseLost, LeaseLapsed],
            )
        },
        Config {
            scale: Scale::Deep,
            nodes: 2,
            ..base(
                "deep-two-takeover",
                SET,
                Budget { time: 2, takeovers: 1, ..none() },
                &[EarlyCommit, LeaseLost, WriteHeld, ReplacedShimGranted],
            )
        },
    ]
}
