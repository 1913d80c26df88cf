//! A network namespace for one member, joined to ours by a pair of virtual interfaces: a cable that can be pulled.
//! Not what runs in it.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, ensure};

/// Before the process id.
const NAMES: &str = "distcache-";
const INTERFACES: &str = "dc";

/// Taken down when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    /// Our end of the cable.
    interface: String,
    pub(crate) outside: IpAddr,
    pub(crate) inside: IpAddr,
}

impl Namespace {
    /// Fails where the machine does not allow it: that takes root, and the right to make network devices.
    pub(crate) fn new() -> anyhow::Result<Namespace> {
        sweep();
        let process = std::process::id();
        let net = [10, 213, (process >> 6) as u8, (process << 2) as u8];
        let address = |host: u8| IpAddr::V4(Ipv4Addr::new(net[0], net[1], net[2], net[3] | host));
        let namespace = Namespace {
            name: format!("{NAMES}{process}"),
            interface: format!("{INTERFACES}{process}"),
            outside: address(1),
            inside: address(2),
        };
        let Namespace { name, interface, outside, inside } = &namespace;
        ip(&["netns", "add", name])?;
        ip(&["link", "add", interface, "type", "veth", "peer", "name", "cable", "netns", name])?;
        ip(&["address", "add", &format!("{outside}/30"), "dev", interface])?;
        ip(&["link", "set", interface, "up"])?;
        ip(&["-netns", name, "address", "add", &format!("{inside}/30"), "dev", "cable"])?;
        ip(&["-netns", name, "link", "set", "cable", "up"])?;
        ip(&["-netns", name, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// `command`, run inside.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    pub(crate) fn pull_the_cable(&self) -> anyhow::Result<()> {
        ip(&["link", "set", &self.interface, "down"])
    }

    pub(crate) fn plug_it_in(&self) -> anyhow::Result<()> {
        ip(&["link", "set", &self.interface, "up"])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable goes with its end.
        let _ = ip(&["link", "del", &self.interface]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Takes down what processes have left that were killed.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let process = name.strip_prefix(NAMES).and_then(|process| process.parse::<u32>().ok());
        if let Some(process) = process.filter(|process| !super::folder::lives(*process)) {
            let _ = ip(&["link", "del", &format!("{INTERFACES}{process}")]);
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("starting ip")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), problem.trim());
    Ok(())
}
