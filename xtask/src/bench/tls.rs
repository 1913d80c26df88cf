//! CPU time per GET with TLS at the front door, and with TLS between members too, against none at all.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use super::cost::{median, microseconds, processes};
use super::load::load_target;
use crate::cluster::{Folder, Layer, Layout, ProcessCluster, free_address};

/// Each figure is the median of so many runs, the clusters taking turns.
const ROUNDS: usize = 5;

struct Candidate {
    name: &'static str,
    cluster: ProcessCluster,
    /// Where to aim, with the flags that it takes.
    target: Vec<String>,
}

pub(super) fn run(binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let folder = Folder::new("bench-tls")?;
    certificates(folder.path())?;
    let candidates = [
        candidate(binary, folder.path(), "plain", &[])?,
        candidate(binary, folder.path(), "clients", &["clients"])?,
        candidate(binary, folder.path(), "clients and members", &["clients", "peers"])?,
    ];
    let mut results = Vec::new();
    for (workload, keys, dist) in [("hot", "16", "adversary:16"), ("cold", "1000000", "uniform")] {
        for candidate in &candidates {
            let arguments = ["--keys", keys, "--dist", dist, "--seconds", "3", "--connections", "50"];
            load_target(binary, &[&candidate.target(), &arguments[..]].concat())?;
        }
        for pipeline in ["1", "16"] {
            let seconds = seconds.to_string();
            let arguments = ["--keys", keys, "--dist", dist, "--no-load", "--connections", "50"];
            let arguments = [&arguments[..], &["--pipeline", pipeline, "--seconds", &seconds]].concat();
            let mut runs = vec![Vec::new(); candidates.len()];
            for _ in 0..ROUNDS {
                for (candidate, runs) in candidates.iter().zip(&mut runs) {
                    let arguments = [&candidate.target(), &arguments[..]].concat();
                    runs.push(microseconds(&processes(&candidate.cluster)?, || {
                        load_target(binary, &arguments)
                    })?);
                }
            }
            for (candidate, own) in candidates.iter().zip(&runs) {
                let ratios: Vec<f64> = own.iter().zip(&runs[0]).map(|(own, plain)| own / plain).collect();
                results.push(json!({
                    "workload": workload, "pipeline": pipeline, "tls": candidate.name, "us": median(own),
                    "over_plain": median(&ratios), "runs_us": own,
                }));
            }
        }
    }
    Ok(Value::Array(results))
}

impl Candidate {
    fn target(&self) -> Vec<&str> {
        self.target.iter().map(String::as_str).collect()
    }
}

fn candidate(binary: &Path, folder: &Path, name: &'static str, tables: &[&str]) -> anyhow::Result<Candidate> {
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key, ca) = (file("member.crt"), file("member.key"), file("ca.crt"));
    let mut text = String::new();
    for table in tables {
        text += &format!("[tls.{table}]\ncertificate_file = {certificate:?}\nkey_file = {key:?}\n");
        if *table == "peers" {
            text += &format!("ca_file = {ca:?}\n");
        }
    }
    let secured: Option<SocketAddr> = tables.contains(&"clients").then(free_address).transpose()?;
    let router_lines = secured.map_or_else(String::new, |address| format!("listen_tls = \"{address}\"\n"));
    let layout = Layout {
        racks: 1,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: text,
        router_lines,
        ..Layout::default()
    };
    let cluster = ProcessCluster::start(binary, layout, 0)?;
    let target = match secured {
        Some(address) => {
            vec!["--target".to_owned(), format!("rediss://{address}"), "--ca-file".to_owned(), ca]
        }
        None => vec!["--target".to_owned(), format!("redis://{}", cluster.router(0))],
    };
    Ok(Candidate { name, cluster, target })
}

/// An authority, and one certificate for whoever listens on loopback.
fn certificates(folder: &Path) -> anyhow::Result<()> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, "bench CA");
    let ca = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?).context("an authority")?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &ca)?;
    std::fs::write(folder.join("ca.crt"), ca.pem())?;
    std::fs::write(folder.join("member.crt"), certificate.pem())?;
    std::fs::write(folder.join("member.key"), key.serialize_pem())?;
    Ok(())
}
