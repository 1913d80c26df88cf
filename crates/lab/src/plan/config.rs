//! The recommended cluster as a configuration file. What is recommended is decided elsewhere.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use config::Config;
use study::plan::ClusterPlan;

/// Ports of one loopback address that members of a kind take, before the next address is used.
const PORTS: u32 = 10_000;
const SHIMS: u32 = 10_000;
const NODES: u32 = 30_000;

/// Writes what the product's own parser accepts.
pub(super) fn write(path: &Path, servers: u32, plan: &ClusterPlan) -> anyhow::Result<()> {
    let text = text(servers, plan, rand::random());
    Config::parse(&text).context("the recommended cluster cannot be configured")?;
    std::fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))
}

fn text(servers: u32, plan: &ClusterPlan, secret: u128) -> String {
    let mut text = format!(
        "# Written by `distcache plan`. Every address is loopback and storage is embedded, so that `distcache up` can\n\
         # try it as it is: for real servers change storage (redis://HOST:PORT) and the addresses, and set up [tls].\n\
         [cluster]\nname = \"planned\"\nsecret = \"{secret:032x}\"\n\n\
         [[controller]]\nid = \"controller\"\nlisten = \"127.0.0.1:7000\"\n\n\
         [[router]]\nid = \"router-0\"\nlisten = \"127.0.0.1:6380\"\n"
    );
    for layer in &plan.shape.layers {
        let partition = if layer.name == "leaf" { "rack" } else { "hash" };
        block(&mut text, "layer", &[("name", layer.name), ("partition", partition)]);
    }
    for server in 0..servers {
        let rack = u64::from(server) * u64::from(plan.shape.racks) / u64::from(servers);
        let (id, rack, listen) = (format!("shim-{server}"), format!("r{rack}"), address(SHIMS, server));
        let lines = [("id", &*id), ("rack", &*rack), ("listen", &*listen), ("storage", "embedded:")];
        block(&mut text, "shim", &lines);
    }
    let mut count = 0;
    for layer in &plan.shape.layers {
        for node in 0..layer.nodes {
            let (id, listen) = (format!("{}-{node}", layer.name), address(NODES, count));
            count += 1;
            block(&mut text, "node", &[("id", &*id), ("layer", layer.name), ("listen", &*listen)]);
            if layer.name == "leaf" {
                writeln!(text, "rack = \"r{}\"", node / plan.shape.leaves_per_rack).expect("a string grows");
            }
            let bytes = layer.objects_per_node.saturating_mul(plan.object_bytes);
            writeln!(text, "objects_max = {}\nbytes_max = \"{bytes}B\"", layer.objects_per_node)
                .expect("a string grows");
        }
    }
    text
}

fn block(text: &mut String, kind: &str, lines: &[(&str, &str)]) {
    writeln!(text, "\n[[{kind}]]").expect("a string grows");
    for (key, value) in lines {
        writeln!(text, "{key} = \"{value}\"").expect("a string grows");
    }
}

fn address(first_port: u32, index: u32) -> String {
    format!("127.0.0.{}:{}", 1 + index / PORTS, first_port + index % PORTS)
}
