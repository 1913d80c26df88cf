//! An application with the router inside it: no hop between it and the cache.
//!
//! Start a cluster with `distcache up --config FILE`, then run this with the same file:
//! `cargo run -p router --example embedded_client -- FILE`

use std::error::Error;
use std::io::Write;
use std::path::Path;

use config::Config;
use router::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(file) = std::env::args().nth(1) else {
        return Err("usage: embedded_client FILE, the configuration of a running cluster".into());
    };
    let client = Client::connect(&Config::load(Path::new(&file))?)?;
    let mut out = std::io::stdout().lock();

    client.set("greeting", "hello")?;
    writeln!(out, "greeting is {:?}", client.get("greeting")?)?;

    // A counter that several threads share; the client is cheap to clone.
    client.set("visits", "0")?;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                (0..250).try_for_each(|_| client.command(&["INCR", "visits"]).map(drop))
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread has panicked")??;
    }
    writeln!(out, "visits are {:?}", client.get("visits")?)?;

    let replies = client
        .pipeline()
        .command(&["SET", "a", "1"])
        .command(&["INCR", "a"])
        .command(&["MGET", "a", "greeting", "nothing"])
        .run()?;
    for reply in replies {
        writeln!(out, "pipelined: {:?}", reply?)?;
    }
    client.del("greeting")?;
    writeln!(out, "greeting is {:?} after DEL", client.get("greeting")?)?;
    Ok(())
}
