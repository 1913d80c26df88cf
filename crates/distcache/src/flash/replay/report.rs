//! What a replay prints: one JSON object, or a table for people.

use serde::Serialize;
use study::what_if::Outcome;

use super::Arguments;
use super::cache::Memory;
use super::measure::Measured;
use crate::commands::print;

#[derive(Serialize)]
pub(super) struct Report {
    hit_ratio: f64,
    byte_hit_ratio: f64,
    /// Hits per hit of the exact policy in as many bytes as were stored: 1 is as faithful as can be, and more is luck.
    fidelity: f64,
    wa_implementation: Option<f64>,
    wa_device: Option<f64>,
    wa_total: Option<f64>,
    requests_per_s: f64,
    cpu_us_per_request: f64,
    dram_bytes: Memory,
    read_p99_us: f64,
    read_p50_us: f64,
    exact_policy: String,
    exact_hit_ratio: f64,
    exact_byte_hit_ratio: f64,
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

impl Report {
    pub(super) fn new(
        arguments: &Arguments,
        capacity_bytes: u64,
        device: String,
        measured: &Measured,
        exact: Outcome,
    ) -> Report {
        let requests = measured.requests as f64;
        let hit_ratio = measured.hits as f64 / requests;
        let exact_hit_ratio = 1.0 - exact.miss_ratio();
        let inserted = measured.inserted_bytes as f64;
        let wa_implementation = (inserted > 0.0).then(|| measured.device.written_bytes as f64 / inserted);
        let wa_device = measured.device.write_amplification();
        let us = |quantile| measured.read_ns.value_at_quantile(quantile) as f64 / 1000.0;
        Report {
            hit_ratio,
            byte_hit_ratio: measured.hit_bytes as f64 / measured.bytes as f64,
            fidelity: if exact_hit_ratio > 0.0 { hit_ratio / exact_hit_ratio } else { 1.0 },
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
            exact_policy: exact.policy.to_string(),
            exact_hit_ratio,
            exact_byte_hit_ratio: 1.0 - exact.byte_miss_ratio(),
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
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let times =
            |factor: Option<f64>| factor.map_or("not known".to_owned(), |factor| format!("{factor:.3}"));
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / 1_048_576.0);
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
            (
                "exact policy",
                format!(
                    "{}: {} of requests, {} of bytes in the {} that were stored; fidelity {:.4}",
                    self.exact_policy,
                    percent(self.exact_hit_ratio),
                    percent(self.exact_byte_hit_ratio),
                    mib(self.stored_bytes as f64),
                    self.fidelity
                ),
            ),
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
}
