//! Connections to the controller's HTTP that say nothing, or a little, for as long as they are let.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::one_key::POLL;
use crate::cluster::{Folder, Layout, ProcessCluster, ask};
use crate::show::Stage;
use crate::show::finding::Finding;
use crate::show::load::{DoneLoad, LoadSlice, ShownLoad};

const SILENT: usize = 10_000;
const CONTROLLER_MIB_MAX: f64 = 64.0;
const LOAD_SECONDS: u64 = 12;

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, Layout::default(), 1)?;
    let router = cluster.router(0);
    let folder = Folder::new("safety")?;
    let seconds = LOAD_SECONDS.to_string();
    let flags = [
        "--keys",
        "10000",
        "--dist",
        "zipf:0.99",
        "--rate",
        "5000",
        "--pipeline",
        "16",
        "--seconds",
        &seconds,
    ];
    let load = |name: &str| ShownLoad::start(stage.binary, router, folder.path(), name, &flags)?.finish();
    let calm = load("calm")?;
    let controller = cluster.member("controller-0")?.listen;
    let process = cluster.process("controller-0")?;
    let before = process.resident_bytes()?;
    let (opened, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (loud, most, lost) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let attackers: Vec<_> = (0..4)
            .map(|index| {
                scope.spawn({
                    let (opened, done) = (&opened, &done);
                    move || attack(controller, index, opened, done)
                })
            })
            .collect();
        let running = scope.spawn(|| load("loud"));
        let (mut most, mut lost) = (before, 0);
        while !running.is_finished() {
            most = most.max(process.resident_bytes()?);
            let members: serde_json::Value = ask::json(controller, "/v1/members").unwrap_or_default();
            let entries = members.as_array().map_or(&[][..], Vec::as_slice);
            lost += entries.iter().filter(|member| member["state"] == "lost").count();
            std::thread::sleep(POLL * 5);
        }
        done.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.join().map_err(|_| anyhow::anyhow!("an attacker ended badly"))?;
        }
        let loud = running.join().map_err(|_| anyhow::anyhow!("the load ended badly"))??;
        Ok((loud, most, lost))
    })?;
    let failed = |load: &DoneLoad| load.slices.iter().map(LoadSlice::failed).sum::<u64>();
    let (opened, mib) = (opened.into_inner(), most as f64 / f64::from(1 << 20));
    finding.bound(
        opened >= SILENT && mib <= CONTROLLER_MIB_MAX && failed(&loud) == 0 && lost == 0,
        format!(
            "{opened} connections to the controller that say nothing or half a request (at least {SILENT}): {mib:.0} MiB at most \
             ({:.0} before), at most {CONTROLLER_MIB_MAX:.0}; {} requests failed ({} without them), {lost} times a member was lost",
            before as f64 / f64::from(1 << 20),
            failed(&loud),
            failed(&calm)
        ),
    );
    finding.figure(
        "silence",
        json!({ "connections": opened, "controller_mib": mib, "failed": failed(&loud), "lost": lost }),
    );
    Ok(())
}

/// Keeps a few hundred open and opens further ones as fast as it can.
fn attack(controller: SocketAddr, index: usize, opened: &AtomicUsize, done: &AtomicBool) {
    let mut held = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&controller, Duration::from_secs(1)) else {
            continue;
        };
        let words: &[u8] = match index {
            0 => b"",
            1 => b"POST /v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000000\r\n\r\n",
            2 => b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
            _ => b"POST /v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\nxxxx",
        };
        // It may have been closed at once.
        let _ = stream.write_all(words);
        opened.fetch_add(1, Ordering::Relaxed);
        held.push(stream);
        if held.len() > 200 {
            held.remove(0);
        }
    }
}
