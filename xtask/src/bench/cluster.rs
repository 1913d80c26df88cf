//! A DistCache cluster of real processes for a measurement, and the load that is put on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use super::processes::{Folder, Process, free_port, redis};

/// What to build: racks of storage servers, one leaf per rack, and spines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) racks: usize,
    pub(super) servers_per_rack: usize,
    pub(super) spines: usize,
    pub(super) leaves: bool,
    pub(super) objects_max: usize,
    /// Each member a process of its own; otherwise all in one.
    pub(super) separate: bool,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) router: u16,
    pub(super) redis: Vec<Process>,
    pub(super) redis_ports: Vec<u16>,
    /// Members by id, or the one process `all`.
    pub(super) members: Vec<(String, Process)>,
    controller: u16,
    binary: PathBuf,
}

impl Cluster {
    pub(super) fn start(binary: &Path, folder: &Folder, shape: Shape) -> anyhow::Result<Cluster> {
        let servers = shape.racks * shape.servers_per_rack;
        let redis_ports = (0..servers).map(|_| free_port()).collect::<anyhow::Result<Vec<_>>>()?;
        let redis =
            redis_ports.iter().map(|port| redis(*port, &folder.0)).collect::<anyhow::Result<Vec<_>>>()?;
        let (router, controller) = (free_port()?, free_port()?);
        let (text, ids) = config(shape, router, controller, &redis_ports)?;
        let file = folder.0.join(format!("cluster-{router}.toml"));
        std::fs::write(&file, text)?;
        let mut members = Vec::new();
        if shape.separate {
            for id in ids {
                let mut command = Command::new(binary);
                command.arg("run").arg("--config").arg(&file).args(["--id", &id, "--log", "error"]);
                members.push((id, Process::start_ready(&mut command)?));
            }
        } else {
            let mut command = Command::new(binary);
            command.arg("up").arg("--config").arg(&file).args(["--log", "error"]);
            members.push(("all".to_owned(), Process::start_ready(&mut command)?));
        }
        Ok(Cluster { router, redis, redis_ports, members, controller, binary: binary.to_owned() })
    }

    pub(super) fn status(&self) -> anyhow::Result<Value> {
        // Members report every half second; the counters of a quiet cluster are final after that.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let url = format!("http://127.0.0.1:{}", self.controller);
        let output = Command::new(&self.binary).args(["status", "--controller", &url, "--json"]).output()?;
        if !output.status.success() {
            bail!("status: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub(super) fn member(&self, id: &str) -> anyhow::Result<&Process> {
        let found = self.members.iter().find(|(member, _)| member == id);
        found.map(|(_, process)| process).with_context(|| format!("no member {id}"))
    }
}

/// Runs `distcache bench` against a port of this machine and returns its summary.
pub(super) fn load(binary: &Path, port: u16, arguments: &[&str]) -> anyhow::Result<Value> {
    let target = format!("redis://127.0.0.1:{port}");
    let mut command = Command::new(binary);
    command.args(["bench", "--json", "--target", &target]).args(arguments).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?} failed");
    }
    let summary: Value = serde_json::from_slice(&output.stdout)?;
    if summary["errors"] != 0 {
        bail!("{command:?}: {} errors", summary["errors"]);
    }
    Ok(summary)
}

fn config(
    shape: Shape,
    router: u16,
    controller: u16,
    redis: &[u16],
) -> anyhow::Result<(String, Vec<String>)> {
    let mut text = String::from(
        "[cluster]\nname = \"bench\"\nsecret = \"00112233445566778899aabbccddeeff\"\n\
         [limits]\nclients_max = 20000\n",
    );
    text.push_str(&format!("[[controller]]\nid = \"controller\"\nlisten = \"127.0.0.1:{controller}\"\n"));
    let mut ids = vec!["controller".to_owned()];
    if shape.leaves {
        text.push_str("[[layer]]\nname = \"leaf\"\npartition = \"rack\"\n");
    }
    if shape.spines > 0 {
        text.push_str("[[layer]]\nname = \"spine\"\npartition = \"hash\"\n");
    }
    let mut node = |id: String, layer: &str, rack: Option<usize>| -> anyhow::Result<()> {
        text.push_str(&format!(
            "[[node]]\nid = \"{id}\"\nlayer = \"{layer}\"\nlisten = \"127.0.0.1:{}\"\nobjects_max = {}\n",
            free_port()?,
            shape.objects_max
        ));
        if let Some(rack) = rack {
            text.push_str(&format!("rack = \"r{rack}\"\n"));
        }
        ids.push(id);
        Ok(())
    };
    for rack in (0..shape.racks).filter(|_| shape.leaves) {
        node(format!("leaf-{rack}"), "leaf", Some(rack))?;
    }
    for spine in 0..shape.spines {
        node(format!("spine-{spine}"), "spine", None)?;
    }
    for (index, port) in redis.iter().enumerate() {
        text.push_str(&format!(
            "[[shim]]\nid = \"shim-{index}\"\nrack = \"r{}\"\nlisten = \"127.0.0.1:{}\"\nstorage = \"redis://127.0.0.1:{port}\"\n",
            index / shape.servers_per_rack,
            free_port()?
        ));
        ids.push(format!("shim-{index}"));
    }
    text.push_str(&format!("[[router]]\nid = \"router-0\"\nlisten = \"127.0.0.1:{router}\"\n"));
    ids.push("router-0".to_owned());
    Ok((text, ids))
}
