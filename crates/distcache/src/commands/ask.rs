//! Questions to a controller's HTTP API. Not how the answers are shown.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Body;
use ureq::http::Response;

const TIMEOUT: Duration = Duration::from_secs(5);
/// A change is answered when all members concerned have made it, which may take as long as leases do.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
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
    pub(crate) fn of(listen: SocketAddr) -> ControllerArguments {
        ControllerArguments { controller: format!("http://{listen}"), json: false }
    }

    /// Gets `path`, with `query` escaped.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        let request = agent(TIMEOUT).get(format!("{}{path}", self.base()?));
        let request = query.iter().fold(request, |request, (key, value)| request.query(key, value));
        self.answer(path, request.call())
    }

    /// Asks for a change of the cluster.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let request = agent(CHANGE_TIMEOUT)
            .post(format!("{}{path}", self.base()?))
            .header(controller::COMMAND_HEADER, "1");
        self.answer(path, request.send(serde_json::to_string(body)?))
    }

    fn base(&self) -> anyhow::Result<String> {
        let base = self.controller.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        if !base.starts_with("http://") {
            bail!(
                "--controller {base}: write http://HOST:PORT; the controller does not speak TLS in this release"
            );
        }
        Ok(base)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        path: &str,
        reply: Result<Response<Body>, ureq::Error>,
    ) -> anyhow::Result<T> {
        let base = self.base()?;
        let mut reply = reply.map_err(|error| {
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

fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
    ureq::Agent::new_with_config(config.proxy(None).build())
}
