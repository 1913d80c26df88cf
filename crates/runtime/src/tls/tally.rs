//! What is counted of one `[tls]` table, and when its certificate ends. Not how it is shown.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::files::now_s;

#[derive(Debug)]
pub(crate) struct HandshakeTally {
    table: &'static str,
    succeeded: AtomicU64,
    failed: AtomicU64,
    reloads: AtomicU64,
    reloads_failed: AtomicU64,
    not_after_s: AtomicI64,
    /// When a failure was told last.
    told_s: AtomicI64,
}

/// One `[tls]` table at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    pub table: &'static str,
    pub handshakes_total: u64,
    pub handshakes_failed_total: u64,
    pub reloads_total: u64,
    pub reloads_failed_total: u64,
    /// Until the certificate ends; below zero afterwards. `None` if the table has no certificate.
    pub expires_in_s: Option<i64>,
}

const NO_CERTIFICATE: i64 = i64::MAX;

impl HandshakeTally {
    pub(super) fn new(table: &'static str) -> HandshakeTally {
        HandshakeTally {
            table,
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            not_after_s: AtomicI64::new(NO_CERTIFICATE),
            told_s: AtomicI64::new(0),
        }
    }

    pub(crate) fn table(&self) -> &'static str {
        self.table
    }

    pub(crate) fn succeeded(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a failure may be told: one a second may.
    pub(crate) fn tells(&self) -> bool {
        let now_s = now_s();
        self.told_s.swap(now_s, Ordering::Relaxed) != now_s
    }

    pub(super) fn reloaded(&self, well: bool) {
        let counter = if well { &self.reloads } else { &self.reloads_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_not_after(&self, not_after_s: Option<i64>) {
        self.not_after_s.store(not_after_s.unwrap_or(NO_CERTIFICATE), Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> TlsStatus {
        let not_after_s = self.not_after_s.load(Ordering::Relaxed);
        TlsStatus {
            table: self.table,
            handshakes_total: self.succeeded.load(Ordering::Relaxed),
            handshakes_failed_total: self.failed.load(Ordering::Relaxed),
            reloads_total: self.reloads.load(Ordering::Relaxed),
            reloads_failed_total: self.reloads_failed.load(Ordering::Relaxed),
            expires_in_s: (not_after_s != NO_CERTIFICATE).then(|| not_after_s - now_s()),
        }
    }
}
