//! The thread that takes the members' spans to an OTLP collector over HTTP. Whatever it meets, the members go on.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ureq::unversioned::transport::DefaultConnector;

use super::{Span, SpanQueue, count, otlp};
use crate::clock;
use crate::resolver::ThreadlessResolver;
use crate::stop::Stop;
use crate::threads;
use config::TracingConfig;

/// How long spans are collected before they are sent.
const PERIOD: Duration = Duration::from_secs(1);
/// Spans wait, and then are dropped, while a collector takes longer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// With the process about to end, nobody waits long for what is left.
const TIMEOUT_LAST: Duration = Duration::from_millis(500);
/// Commands of one request.
const BATCH_MAX: usize = 512;
/// How often the log says that a collector takes nothing.
const TOLD_EVERY: Duration = Duration::from_secs(60);

struct Exporter {
    url: String,
    service: String,
    headers: Vec<(String, String)>,
    http: ureq::Agent,
    members: Vec<(String, SpanQueue)>,
    told: Option<Instant>,
    refused: u64,
}

/// Exports what `members`, by their ids, have until `stop`; `None` if no collector is configured.
///
/// # Errors
/// A system without threads.
pub fn start(
    config: &TracingConfig,
    members: Vec<(String, SpanQueue)>,
    stop: &Stop,
) -> io::Result<Option<JoinHandle<()>>> {
    let Some(url) = config.url() else { return Ok(None) };
    let http = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).max_redirects(0).build();
    let mut exporter = Exporter {
        url,
        service: config.service_name.clone(),
        headers: config.headers.as_ref().clone(),
        http: ureq::Agent::with_parts(http, DefaultConnector::default(), ThreadlessResolver::default()),
        members,
        told: None,
        refused: 0,
    };
    let stop = stop.clone();
    let run = move || {
        while !stop.wait_timeout(PERIOD) {
            exporter.export(TIMEOUT);
        }
        exporter.export(TIMEOUT_LAST);
    };
    threads::spawn("spans", run).map(Some)
}

impl Exporter {
    fn export(&mut self, timeout: Duration) {
        let epoch = clock::epoch();
        for (member, queue) in self.members.clone() {
            let mut spans = queue.take();
            while !spans.is_empty() {
                let rest = spans.split_off(spans.len().min(BATCH_MAX));
                let mut batch = std::mem::replace(&mut spans, rest);
                match self.post(otlp::request(&self.service, &member, epoch, batch.clone()), timeout) {
                    Ok(()) => queue.note_exported(count(&batch)),
                    Err(error) => {
                        // The rest of them would meet the same.
                        batch.append(&mut spans);
                        self.refused(&queue, &mut batch, &error);
                    }
                }
            }
        }
    }

    fn post(&self, body: Vec<u8>, timeout: Duration) -> Result<(), String> {
        let request = self.http.post(&self.url).config().timeout_global(Some(timeout)).build();
        let request = request.header("content-type", "application/x-protobuf");
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let reply = request.send(&body[..]).map_err(|error| error.to_string())?;
        match reply.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answers {status}")),
        }
    }

    fn refused(&mut self, queue: &SpanQueue, batch: &mut Vec<Span>, error: &str) {
        self.refused += count(batch);
        queue.drop_all(batch);
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            let (collector, dropped) = (&self.url, self.refused);
            tracing::warn!(collector, error, dropped, "the collector takes no spans; they are dropped");
        }
    }
}
