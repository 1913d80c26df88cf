//! HTTP questions to members: status, metrics, health. Not what the answers mean.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(3);

/// The body at a path of a member's admin port or of a controller.
pub(crate) fn text(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).build();
    let url = format!("http://{address}{path}");
    let mut reply = ureq::Agent::new_with_config(config).get(&url).call().with_context(|| url.clone())?;
    reply.body_mut().read_to_string().context(url)
}

pub(crate) fn json(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    serde_json::from_str(&text(address, path)?).with_context(|| format!("{address}{path} is not JSON"))
}
