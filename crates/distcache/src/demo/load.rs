//! The load of the demonstration: writes the keys, then reads them by Zipf until stopped. Not what it shows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use runtime::address::Address;
use runtime::stop::Stop;
use trace::{Distribution, Workload};
use wire::resp::Command;

use crate::bench::{Frames, Length, Live, Plan, Requests, Target, drive};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 64;
const EXPONENT: f64 = 0.99;
const SEED: u64 = 1;
/// Clients that each wait for a reply before they ask again: enough of them to keep every server busy, were it not
/// for those that all of them wait for.
const CLIENTS: usize = 256;
/// A server's emulated limit counts commands, so that writing keys in large groups takes no time.
const KEYS_PER_WRITE: u64 = 500;
/// Storage may need a moment to become ready.
const WRITE_AGAIN: Duration = Duration::from_millis(50);
const WRITE_ATTEMPTS_MAX: u32 = 200;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The run ends by the stop flag, not by this.
const TIME_US: u64 = 1 << 40;

pub(crate) struct Load {
    pub(crate) live: Live,
    ready: Arc<AtomicBool>,
    stop: Stop,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl Load {
    pub(crate) fn start(address: &Address) -> Result<Load> {
        let (live, ready, stop) =
            (Live::by_key(KEYS as usize), Arc::new(AtomicBool::new(false)), Stop::new());
        let run = Run {
            address: address.clone(),
            live: live.clone(),
            ready: Arc::clone(&ready),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || run.run())?;
        Ok(Load { live, ready, stop, thread })
    }

    /// Whether all keys are written and the reading has begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// It runs until it is stopped; if it does not, `stop` says why.
    pub(crate) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the load; the texts of the first errors that it met.
    pub(crate) fn stop(self) -> Result<Vec<String>> {
        self.stop.stop();
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => bail!("the load generator crashed; this is a bug"),
        }
    }
}

struct Run {
    address: Address,
    live: Live,
    ready: Arc<AtomicBool>,
    stop: Stop,
}

impl Run {
    fn run(self) -> Result<Vec<String>> {
        write_keys(&self.address, &self.stop).context("cannot write the keys")?;
        self.ready.store(true, Ordering::Release);
        let workload = Workload {
            keys: KEYS,
            distribution: Distribution::Zipf(EXPONENT),
            write_ratio: 0.0,
            value_bytes: VALUE_BYTES,
            seed: SEED,
        };
        let plan = Plan {
            target: Target::plain(self.address),
            connections: CLIENTS,
            pipeline: 1,
            rate: None,
            warmup_us: 0,
            length: Length::Time(TIME_US),
            slice_us: None,
        };
        let requests = Requests::Mix(workload.requests(0)?);
        let frames = Frames::new(VALUE_BYTES, SEED);
        let outcome = drive(&plan, requests, &frames, &self.live, &self.stop, &mut |_| {})?;
        Ok(outcome.tally.texts)
    }
}

fn write_keys(address: &Address, stop: &Stop) -> Result<()> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            write_keys_over(&stream, stream.try_clone()?, stop)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            write_keys_over(&stream, stream.try_clone()?, stop)
        }
    }
}

fn write_keys_over(mut write: impl Write, read: impl Read, stop: &Stop) -> Result<()> {
    let mut read = BufReader::new(read);
    let value = [b'x'; VALUE_BYTES];
    let mut reply = String::new();
    for first in (0..KEYS).step_by(KEYS_PER_WRITE as usize) {
        let names: Vec<[u8; 16]> = (first..(first + KEYS_PER_WRITE).min(KEYS)).map(trace::key_name).collect();
        let mut arguments: Vec<&[u8]> = vec![b"MSET"];
        for name in &names {
            arguments.extend([&name[..], &value[..]]);
        }
        let command = Command::from_args(&arguments);
        for attempt in 1.. {
            write.write_all(command.frame())?;
            reply.clear();
            read.read_line(&mut reply)?;
            if reply.starts_with('+') {
                break;
            }
            if attempt == WRITE_ATTEMPTS_MAX || reply.is_empty() {
                bail!(
                    "{}",
                    if reply.is_empty() { "the router closed the connection" } else { reply.trim_end() }
                );
            }
            if stop.wait_timeout(WRITE_AGAIN) {
                bail!("stopped");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_written_and_a_busy_server_is_asked_again() {
        let mut written = Vec::new();
        let replies = format!("-BUSY wait\r\n{}", "+OK\r\n".repeat((KEYS / KEYS_PER_WRITE) as usize));
        write_keys_over(&mut written, replies.as_bytes(), &Stop::new()).expect("all are accepted in the end");
        let text = String::from_utf8(written).expect("keys and values are text");
        assert_eq!(text.matches("MSET").count() as u64, KEYS / KEYS_PER_WRITE + 1);
        assert_eq!(text.matches("key:000000099999").count(), 1);
        assert_eq!(text.matches("key:000000000000").count(), 2);
    }

    #[test]
    fn a_router_that_goes_away_is_an_error() {
        let error = write_keys_over(Vec::new(), &b""[..], &Stop::new()).expect_err("no reply");
        assert!(error.to_string().contains("closed"), "{error}");
    }
}
