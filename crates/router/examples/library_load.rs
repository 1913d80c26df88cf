//! Hot reads from the threads of one application, or from as many futures on two threads, for as long as asked: how many, and what they cost this process. It says
//! when the cluster is warm and begins with a line on its input.
//!
//! `cargo run --release -p router --example library_load -- FILE threads|futures COUNT BATCH SECONDS`

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use router::{AsyncClient, Client};
use rustix::time::{ClockId, clock_gettime};

/// As many as `cargo xtask bench cost` reads where it reads hot keys.
const KEYS: usize = 16;
const VALUE: [u8; 64] = [b'v'; 64];
/// Heat is known and copies are made after this long.
const WARM: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [file, kind @ ("threads" | "futures"), count, batch, seconds] = arguments.as_slice() else {
        return Err("usage: library_load FILE threads|futures COUNT BATCH SECONDS".into());
    };
    let client = Client::connect(&Config::load(Path::new(file))?)?;
    let load = Arc::new(Load { count: count.parse()?, batch: batch.parse()?, keys: keys() });
    let run = |time| match *kind {
        "threads" => load.run(&client, time),
        _ => Load::run_futures(&load, &client, time),
    };
    for key in &load.keys {
        client.set(key, VALUE)?;
    }
    run(WARM)?;
    writeln!(std::io::stdout(), "warm")?;
    std::io::stdin().read_line(&mut String::new())?;
    let (begun, before) = (Instant::now(), cpu());
    let reads = run(Duration::from_secs(seconds.parse()?))?;
    let (passed, used) = (begun.elapsed(), cpu() - before);
    let us = used.as_secs_f64() * 1e6 / reads as f64;
    let rate = reads as f64 / passed.as_secs_f64();
    writeln!(std::io::stdout(), "{{\"requests\":{reads},\"own_us\":{us:.3},\"rate\":{rate:.0}}}")?;
    Ok(())
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|index| format!("key-{index}")).collect()
}

/// CPU time of this process.
fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

struct Load {
    count: usize,
    batch: usize,
    keys: Vec<String>,
}

impl Load {
    /// How many reads all threads have done in this time.
    fn run(&self, client: &Client, time: Duration) -> Result<u64, Box<dyn Error>> {
        let deadline = Instant::now() + time;
        let counts: Vec<Result<u64, router::Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.count).map(|own| scope.spawn(move || self.read(client, own, deadline))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        Ok(counts.into_iter().sum::<Result<u64, router::Error>>()?)
    }

    /// The same of all futures.
    fn run_futures(load: &Arc<Load>, client: &Client, time: Duration) -> Result<u64, Box<dyn Error>> {
        let deadline = Instant::now() + time;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
        let futures: Vec<_> = (0..load.count)
            .map(|own| {
                let (load, client) = (Arc::clone(load), AsyncClient::from(client.clone()));
                runtime.spawn(async move { load.read_async(&client, own, deadline).await })
            })
            .collect();
        let mut reads = 0;
        for future in futures {
            reads += runtime.block_on(future)??;
        }
        Ok(reads)
    }

    async fn read_async(
        &self,
        client: &AsyncClient,
        own: usize,
        deadline: Instant,
    ) -> Result<u64, router::Error> {
        let mut keys = self.keys.iter().cycle().skip(own % KEYS);
        let mut reads = 0;
        while Instant::now() < deadline {
            let mut batch = keys.by_ref().take(self.batch);
            if self.batch == 1 {
                let value = client.get(batch.next().expect("they never end")).await?;
                assert!(value.is_some_and(|value| value == VALUE[..]), "another value");
            } else {
                let pipeline = batch.fold(client.pipeline(), |pipeline, key| pipeline.command(&["GET", key]));
                for value in pipeline.run().await? {
                    value?;
                }
            }
            reads += self.batch as u64;
        }
        Ok(reads)
    }

    fn read(&self, client: &Client, own: usize, deadline: Instant) -> Result<u64, router::Error> {
        let mut keys = self.keys.iter().cycle().skip(own % KEYS);
        let mut reads = 0;
        while Instant::now() < deadline {
            let mut batch = keys.by_ref().take(self.batch);
            if self.batch == 1 {
                let value = client.get(batch.next().expect("they never end"))?;
                assert!(value.is_some_and(|value| value == VALUE[..]), "another value");
            } else {
                let pipeline = batch.fold(client.pipeline(), |pipeline, key| pipeline.command(&["GET", key]));
                for value in pipeline.run()? {
                    value?;
                }
            }
            reads += self.batch as u64;
        }
        Ok(reads)
    }
}
