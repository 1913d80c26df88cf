//! Questions to a controller's HTTP API. Not how the answers are shown.

use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Statuses of thousands of members fit.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Flags of every command that asks a controller.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArguments {
    /// The controller's address, for example http://127.0.0.1:7000
    #[arg(long, env = "DISTCACHE_CONTROLLER", value_name = "URL")]
    controller: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ControllerArguments {
    /// Gets `path`, with `query` escaped.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        let base = self.controller.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        if !base.starts_with("http://") {
            bail!(
                "--controller {base}: write http://HOST:PORT; the controller does not speak TLS in this release"
            );
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let request = ureq::Agent::new_with_config(config).get(format!("{base}{path}"));
        let request = query.iter().fold(request, |request, (key, value)| request.query(key, value));
        let mut reply = request.call().map_err(|error| {
            anyhow::anyhow!("--controller {base}: no answer ({error}); is the controller running there?")
        })?;
        let status = reply.status();
        let text = reply.body_mut().with_config().limit(REPLY_BYTES_MAX).read_to_string();
        let text = text.with_context(|| format!("--controller {base}"))?;
        if !status.is_success() {
            bail!("--controller {base}: {path}: {status}: {}", text.trim());
        }
        serde_json::from_str(&text)
            .with_context(|| format!("--controller {base}: {path} is not a controller's answer"))
    }
}
