//! Blocking connections to a router or a Redis server. Not the load generator.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use redis::Connection;

/// Longer than any write may take.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let client = redis::Client::open(format!("redis://{address}/"))?;
    let connection = client.get_connection().with_context(|| format!("nobody serves RESP at {address}"))?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

/// How often a Redis server has carried a command out since it started.
pub(crate) fn calls(redis: &mut Connection, command: &str) -> anyhow::Result<u64> {
    let text: String = redis::cmd("INFO").arg("commandstats").query(redis)?;
    let prefix = format!("cmdstat_{command}:calls=");
    let count = text.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
    count.map_or(Ok(0), |count| count.parse().with_context(|| format!("{prefix}{count}")))
}
