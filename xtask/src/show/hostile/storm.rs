//! Attackers that make work: connections, nonsense, guesses. Not those that only hold on to what they have.

use std::io::{Read, Write};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use super::attack::Field;

pub(super) fn connections(field: &Field<'_>) -> u64 {
    let mut opened = 0;
    while field.goes_on() {
        if let Some(mut stream) = field.connect() {
            let _ = stream.write_all(b"*1\r\n$4\r\nPI");
            // What was sent is unread at the other end, so that closing now resets the connection there.
            drop(stream);
            opened += 1;
        }
        field.pause(Duration::from_millis(1));
    }
    opened
}

/// What it sends has to be answered with an error and the end of the connection.
pub(super) fn nonsense(field: &Field<'_>) -> u64 {
    let mut random = SmallRng::seed_from_u64(1);
    let mut sent = 0;
    while field.goes_on() {
        let bytes = nonsense_number(sent as usize, &mut random);
        let Some(mut stream) = field.connect() else { continue };
        let said = field.ask(&mut stream, &bytes, 1 << 16);
        if !said.starts_with(b"-ERR ") {
            let (sent, said) = (String::from_utf8_lossy(&bytes[..bytes.len().min(40)]), said.len());
            field.wrong(format!("{sent:?}... got {said} bytes that are no error"));
        }
        sent += 1;
        field.pause(Duration::from_millis(2));
    }
    sent
}

fn nonsense_number(number: usize, random: &mut SmallRng) -> Vec<u8> {
    match number % 10 {
        0 => b"*1\r\n*1\r\n*1\r\n*1\r\n$4\r\nPING\r\n".to_vec(),
        1 => b"*2147483648\r\n".to_vec(),
        2 => b"*2\r\n$3\r\nGET\r\n$-2\r\n".to_vec(),
        3 => b"*2\r\n$3\r\nGET\r\n$99999999999999999999\r\n".to_vec(),
        4 => [b"GET ".as_slice(), &vec![b'x'; 80 << 10]].concat(),
        5 => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n:5\r\n".to_vec(),
        6 => b"SET \"unbalanced\r\n".to_vec(),
        7 => b"*1048577\r\n$1\r\n".to_vec(),
        8 => [b"*1\r\n$".as_slice(), &vec![b'1'; 70 << 10]].concat(),
        _ => {
            let mut bytes = vec![0; random.random_range(8..4096)];
            random.fill_bytes(&mut bytes);
            bytes[0] = b'*';
            // A line of nonsense ends, or more would have to be waited for.
            bytes.extend_from_slice(b"\r\n");
            bytes
        }
    }
}

pub(super) fn passwords(field: &Field<'_>) -> u64 {
    let mut random = SmallRng::seed_from_u64(1);
    let mut guesses = 0;
    while field.goes_on() {
        let Some(mut stream) = field.connect() else { continue };
        for _ in 0..50 {
            let guess = format!("AUTH somebody {:016x}\r\n", random.random::<u64>());
            let mut said = [0; 64];
            let count = stream.write_all(guess.as_bytes()).and_then(|()| stream.read(&mut said)).unwrap_or(0);
            if !said[..count].starts_with(b"-WRONGPASS ") {
                field.wrong(format!("a guess got {:?}", String::from_utf8_lossy(&said[..count])));
            }
            guesses += 1;
            field.pause(Duration::from_millis(2));
        }
    }
    guesses
}

/// Each has to be refused for its size, whatever else it says.
pub(super) fn strangers(field: &Field<'_>) -> u64 {
    let floods: [&[u8]; 3] = [
        b"*11\r\n$4\r\nAUTH\r\n",
        b"*3\r\n$4\r\nAUTH\r\n$3\r\nbad\r\n$1000000\r\n",
        b"*2\r\n$3\r\nGET\r\n$16385\r\n",
    ];
    let tail = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while field.goes_on() {
        let Some(mut stream) = field.connect() else { continue };
        let flood = [floods[sent as usize % floods.len()], &tail].concat();
        let said = field.ask(&mut stream, &flood, 38);
        if !said.starts_with(b"-ERR Protocol error: unauthenticated ") && !said.is_empty() {
            field.wrong(format!("a stranger got {:?}", String::from_utf8_lossy(&said)));
        }
        sent += 1;
        field.pause(Duration::from_millis(5));
    }
    sent
}

/// Writes and reads back, in one pipeline.
pub(super) fn binary(field: &Field<'_>) -> u64 {
    let mut random = SmallRng::seed_from_u64(1);
    let Some(mut stream) = field.log_in() else { return 0 };
    let mut rounds = 0;
    while field.goes_on() {
        let mut draw = |bytes_max: usize| {
            let mut bytes = vec![0; random.random_range(1..bytes_max)];
            random.fill_bytes(&mut bytes);
            bytes
        };
        let (key, value) = ([b"hostile:".as_slice(), &draw(200)].concat(), draw(3000));
        let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let set = [b"*3\r\n$3\r\nSET\r\n".as_slice(), &bulk(&key), &bulk(&value)].concat();
        let get = [b"*2\r\n$3\r\nGET\r\n".as_slice(), &bulk(&key)].concat();
        let del = [b"*2\r\n$3\r\nDEL\r\n".as_slice(), &bulk(&key)].concat();
        let expected = [b"+OK\r\n".as_slice(), &bulk(&value), b":1\r\n"].concat();
        let said = field.ask(&mut stream, &[set, get, del].concat(), expected.len());
        if said != expected {
            field.wrong(format!(
                "a key of {} bytes got {} bytes, not {}",
                key.len(),
                said.len(),
                expected.len()
            ));
            return rounds;
        }
        rounds += 1;
        field.pause(Duration::from_millis(2));
    }
    rounds
}

/// One command, many parts: it must not stop the others for long.
pub(super) fn many_arguments(field: &Field<'_>) -> u64 {
    const ARGUMENTS: usize = 10_000;
    let mut command = format!("*{}\r\n$6\r\nEXISTS\r\n", ARGUMENTS + 1).into_bytes();
    (0..ARGUMENTS).for_each(|_| command.extend_from_slice(b"$12\r\nhostile:many\r\n"));
    let mut sent = 0;
    let Some(mut stream) = field.log_in() else { return 0 };
    let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
    while field.goes_on() {
        let said = field.ask(&mut stream, &command, 4);
        if said != b":0\r\n" {
            field.wrong(format!("EXISTS of {ARGUMENTS} keys got {:?}", String::from_utf8_lossy(&said)));
        }
        sent += 1;
        field.pause(Duration::from_millis(500));
    }
    sent
}
