//! twemproxy, the proxy that DistCache is measured against.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use crate::cluster::{MemberProcess, accepting, free_address, mortal};

pub(super) fn twemproxy(listen: SocketAddr, servers: &[u16], folder: &Path) -> anyhow::Result<MemberProcess> {
    let port = listen.port();
    let config = folder.join(format!("nutcracker-{port}.yml"));
    let mut text = format!(
        "pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  servers:\n"
    );
    for server in servers {
        text.push_str(&format!("    - 127.0.0.1:{server}:1\n"));
    }
    std::fs::write(&config, text)?;
    let mut command = mortal("nutcracker");
    let statistics = free_address()?.port().to_string();
    command.arg("-c").arg(&config).args(["-s", &statistics, "-a", "127.0.0.1", "-v", "0"]);
    command.arg("-p").arg(folder.join("nutcracker.pid")).arg("-o").arg(folder.join("nutcracker.log"));
    command.stderr(Stdio::null());
    let process = MemberProcess::start(command, None)?;
    accepting(listen)?;
    Ok(process)
}
