//! Attackers that take memory or connections and keep them. Not those that make work.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::attack::{Field, LARGE_KEY};

const HALF_OPEN: usize = 10_000;
const HERD: usize = 10;
const HERD_PAUSE: Duration = Duration::from_millis(9);
const SLOW_WRITERS: usize = 500;
const GIANTS: usize = 1_000;
const SLOW_READERS: usize = 50;
const ANNOUNCED: &[u8] = b"*3\r\n$3\r\nSET\r\n$12\r\nhostile:held\r\n$62914560\r\n";

/// Opens some 1,000 connections per second, so that connecting is no flood; fewer if the attack is over before.
fn open(field: &Field<'_>, count: usize, known: bool, first: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::with_capacity(count);
    while held.len() < count && field.goes_on() {
        for _ in 0..HERD {
            if let Some(mut stream) = if known { field.log_in() } else { field.connect() } {
                let _ = stream.write_all(first);
                held.push(stream);
            }
        }
        field.pause(HERD_PAUSE);
    }
    held
}

pub(super) fn half_open(field: &Field<'_>) -> u64 {
    let held = open(field, HALF_OPEN, false, b"*2\r\n$3\r\nGET\r\n$12\r\nhostile");
    if held.len() < HALF_OPEN {
        field.wrong(format!("only {} connections were taken", held.len()));
    }
    field.wait();
    held.len() as u64
}

pub(super) fn slow_writers(field: &Field<'_>) -> u64 {
    let command = b"*3\r\n$3\r\nSET\r\n$12\r\nhostile:slow\r\n$4\r\nabcd\r\n";
    let mut held = open(field, SLOW_WRITERS, true, b"");
    let mut sent = 0u64;
    while field.goes_on() {
        let byte = [command[(sent as usize) % command.len()]];
        for stream in &mut held {
            if stream.write_all(&byte).is_err() {
                field.wrong("a slow writer was closed".to_owned());
            }
        }
        sent += 1;
        field.pause(Duration::from_millis(200));
    }
    sent * held.len() as u64
}

pub(super) fn giant_headers(field: &Field<'_>) -> u64 {
    let held = open(field, GIANTS, true, &[ANNOUNCED, &[b'v'; 1024]].concat());
    field.wait();
    held.len() as u64
}

/// Each sends more than its share; those that were closed come again.
pub(super) fn hoarders(field: &Field<'_>) -> u64 {
    let part = vec![b'v'; 64 << 10];
    let mut held: Vec<TcpStream> = Vec::new();
    let mut begun = 0;
    while field.goes_on() {
        let Some(mut stream) = field.log_in() else { continue };
        begun += 1;
        let _ = stream.write_all(ANNOUNCED);
        for _ in 0..128 {
            if stream.write_all(&part).is_err() || !field.goes_on() {
                break;
            }
            field.pause(Duration::from_micros(500));
        }
        held.push(stream);
        if held.len() > 64 {
            held.remove(0);
        }
    }
    begun
}

pub(super) fn slow_readers(field: &Field<'_>) -> u64 {
    let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{LARGE_KEY}\r\n", LARGE_KEY.len());
    let held = open(field, SLOW_READERS, true, get.repeat(64).as_bytes());
    field.wait();
    held.len() as u64
}
