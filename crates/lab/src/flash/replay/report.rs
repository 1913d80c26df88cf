//! What a replay prints: one JSON object, or a table for people.

use serde::Serialize;
use study::what_if::GridOutcome;

use super::ReplayArguments;
use super::cache::CacheMemory;
use super::measure::ReplayFigures;
use crate::terminal::print;

#[derive(Serialize)]
pub(super) struct ReplayReport {
    hit_ratio: f64,
    byte_hit_ratio: f64,
    /// Hits per hit of the exact policy in as many bytes as were stored: 1 is as faithful as can be, and more is luck.
    /// None after --reopen, as are the exact policy's: a warm cache is not comparable with a cold one.
    fidelity: Option<f64>,
    wa_implementation: Option<f64>,
    wa_device: Option<f64>,
    wa_total: Option<f64>,
    requests_per_s: f64,
    cpu_us_per_request: f64,
    dram_bytes: CacheMemory,
    read_p99_us: f64,
    read_p50_us: f64,
    exact_policy: Option<String>,
    exact_hit_ratio: Option<f64>,
    exact_byte_hit_ratio: Option<f64>,
    /// Hit ratio of SLRU with segments of equal size from the first request on; `None` for one segment and other policies.
    strict_hit_ratio: Option<f64>,
    requests: u64,
    inserted_bytes: u64,
    written_bytes: u64,
    refused: u64,
    capacity_bytes: u64,
    stored_bytes: u64,
    engine: String,
    policy: String,
    device: String,
}

/// What the policy does without a device.
pub(super) struct Exact {
    pub(super) policy: GridOutcome,
    pub(super) strict: Option<GridOutcome>,
}

impl ReplayReport {
    pub(super) fn new(
        arguments: &ReplayArguments,
        capacity_bytes: u64,
        device: String,
        measured: &ReplayFigures,
        exact: Option<&Exact>,
    ) -> ReplayReport {
        let requests = measured.requests as f64;
        let hit_ratio = measured.hits as f64 / requests;
        let exact_hit_ratio = exact.map(|exact| 1.0 - exact.policy.miss_ratio());
        let fidelity = |exact: f64| if exact > 0.0 { hit_ratio / exact } else { 1.0 };
        let inserted = measured.inserted_bytes as f64;
        let wa_implementation = (inserted > 0.0).then(|| measured.device.written_bytes as f64 / inserted);
        let wa_device = measured.device.write_amplification();
        let us = |quantile| measured.read_ns.value_at_quantile(quantile) as f64 / 1000.0;
        ReplayReport {
            hit_ratio,
            byte_hit_ratio: measured.hit_bytes as f64 / measured.bytes as f64,
            fidelity: exact_hit_ratio.map(fidelity),
            wa_implementation,
            wa_device,
            wa_total: wa_implementation
                .zip(wa_device)
                .map(|(implementation, device)| implementation * device),
            requests_per_s: requests / measured.seconds,
            cpu_us_per_request: measured.cpu_seconds / requests * 1e6,
            dram_bytes: measured.memory,
            read_p99_us: us(0.99),
            read_p50_us: us(0.5),
            exact_policy: exact.map(|exact| exact.policy.policy.to_string()),
            exact_hit_ratio,
            exact_byte_hit_ratio: exact.map(|exact| 1.0 - exact.policy.byte_miss_ratio()),
            strict_hit_ratio: exact.and_then(|exact| Some(1.0 - exact.strict?.miss_ratio())),
            requests: measured.requests,
            inserted_bytes: measured.inserted_bytes,
            written_bytes: measured.device.written_bytes,
            refused: measured.refused,
            capacity_bytes,
            stored_bytes: measured.stored_bytes,
            engine: arguments.engine_name(),
            policy: arguments.policy().to_string(),
            device,
        }
    }

    pub(super) fn print(&self) {
        let times =
            |factor: Option<f64>| factor.map_or("not known".to_owned(), |factor| format!("{factor:.3}"));
        let lines = [
            (
                "cache",
                format!(
                    "{} {} of {} on {}",
                    self.engine,
                    self.policy,
                    mib(self.capacity_bytes as f64),
                    self.device
                ),
            ),
            ("requests", format!("{}, {} objects refused as too large", self.requests, self.refused)),
            (
                "hit ratio",
                format!("{} of requests, {} of bytes", percent(self.hit_ratio), percent(self.byte_hit_ratio)),
            ),
            ("exact policy", self.exact().unwrap_or_else(|| "not comparable: the cache was warm".to_owned())),
            (
                "write amplification",
                format!(
                    "{} by the cache, {} by the device, {} in all",
                    times(self.wa_implementation),
                    times(self.wa_device),
                    times(self.wa_total)
                ),
            ),
            (
                "speed",
                format!(
                    "{:.0} requests/s, {:.2} us of CPU each; a hit is read in {:.1} us (median), {:.1} us (p99)",
                    self.requests_per_s, self.cpu_us_per_request, self.read_p50_us, self.read_p99_us
                ),
            ),
            (
                "memory",
                format!(
                    "{} index, {} buffers, {} queue",
                    mib(self.dram_bytes.index as f64),
                    mib(self.dram_bytes.buffers as f64),
                    mib(self.dram_bytes.queue as f64)
                ),
            ),
        ];
        lines.iter().for_each(|(name, text)| print(&format!("{name:<20} {text}")));
    }

    /// What the exact policy reaches beside this one; `None` where nothing can be compared.
    fn exact(&self) -> Option<String> {
        let strict = self
            .strict_hit_ratio
            .map(|ratio| format!("; with segments of equal size from the start {}", percent(ratio)));
        Some(format!(
            "{}: {} of requests, {} of bytes in the {} that were stored; fidelity {:.4}{}",
            self.exact_policy.as_deref()?,
            percent(self.exact_hit_ratio?),
            percent(self.exact_byte_hit_ratio?),
            mib(self.stored_bytes as f64),
            self.fidelity?,
            strict.unwrap_or_default()
        ))
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1_048_576.0)
}
