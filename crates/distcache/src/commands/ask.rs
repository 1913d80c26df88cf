//! Questions to a controller's HTTP API. Not how the answers are shown.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ureq::Body;
use ureq::http::Response;

use config::Config;
use lab::terminal::BadInput;
use runtime::admin::{COMMAND_HEADER, CommandToken};

const TIMEOUT: Duration = Duration::from_secs(5);
/// A change is answered when all members concerned have made it, which may take as long as leases do.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Statuses of thousands of members fit.
const REPLY_BYTES_MAX: u64 = 64 << 20;

const NOT_FOUND: u16 = 404;

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

/// Flags of every command that has a controller change something.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommandArguments {
    #[command(flatten)]
    pub(crate) controller: ControllerArguments,

    #[command(flatten)]
    secret: SecretArguments,
}

/// Where the cluster's secret is, which changes take.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("secret").required(true).multiple(true).args(["config", "secret_file"]))]
pub(crate) struct SecretArguments {
    /// The cluster's configuration file, which has the secret or names its file
    #[arg(long, env = "DISTCACHE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// The file with the cluster's secret; `distcache proxy` names its folder
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretArguments {
    pub(crate) fn token(&self) -> anyhow::Result<CommandToken> {
        let secret = match (&self.secret_file, &self.config) {
            (Some(file), _) => {
                let found = config::secret_file::read(file).map_err(BadInput::of)?;
                found.ok_or_else(|| {
                    BadInput::of(format!("--secret-file {}: there is no such file", file.display()))
                })?
            }
            (None, Some(config)) => *Config::load_to_check(config, &[])?.secret(),
            (None, None) => return Err(BadInput::of("--config FILE or --secret-file FILE is missing")),
        };
        Ok(CommandToken::derive(&secret))
    }
}

impl CommandArguments {
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.controller.post(&self.secret.token()?, path, body)
    }
}

impl ControllerArguments {
    pub(crate) fn of(listen: SocketAddr) -> ControllerArguments {
        ControllerArguments { controller: format!("http://{listen}"), json: false }
    }

    /// Gets `path`, with `query` escaped.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        let request = agent(TIMEOUT).get(format!("{}{path}", self.base()?));
        let request = query.iter().fold(request, |request, (key, value)| request.query(key, value));
        self.answer(request.call())
    }

    /// Asks for a change of the cluster.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        token: &CommandToken,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let request = agent(CHANGE_TIMEOUT)
            .post(format!("{}{path}", self.base()?))
            .header(COMMAND_HEADER, token.text());
        self.answer(request.send(serde_json::to_string(body)?))
    }

    fn base(&self) -> anyhow::Result<String> {
        let base = self.controller.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        if !base.starts_with("http://") {
            return Err(BadInput::of(format!(
                "--controller {base}: write http://HOST:PORT; the controller does not speak TLS in this release"
            )));
        }
        self.check_place(base.trim_start_matches("http://"))?;
        Ok(base)
    }

    /// HOST:PORT, without a path.
    fn check_place(&self, place: &str) -> anyhow::Result<()> {
        let wrong = |what: &str| {
            BadInput::of(format!(
                "--controller {}: {what}; write http://HOST:PORT, as `listen` of [[controller]] has it",
                self.controller
            ))
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong(&format!("{host:?} is no host")));
        }
        match port.parse::<u16>() {
            Ok(0) | Err(_) => Err(wrong(&format!("{port:?} is no port"))),
            Ok(_) => Ok(()),
        }
    }

    fn answer<T: DeserializeOwned>(&self, reply: Result<Response<Body>, ureq::Error>) -> anyhow::Result<T> {
        let base = self.base()?;
        let mut reply = reply.map_err(|error| {
            if matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
                return BadInput::of(format!("--controller {base}: this is no URL; write http://HOST:PORT"));
            }
            let wrong_kind = matches!(error, ureq::Error::Protocol(_));
            let advice = match wrong_kind {
                true => "what listens there is no controller; give the address of [[controller]] listen",
                false => "is the controller running there?",
            };
            anyhow::anyhow!("--controller {base}: no answer ({}); {advice}", reason(&error))
        })?;
        let status = reply.status();
        let text = reply.body_mut().with_config().limit(REPLY_BYTES_MAX).read_to_string();
        let text = text.with_context(|| format!("--controller {base}"))?;
        if !status.is_success() {
            return Err(refusal(&base, status.as_u16(), &text));
        }
        serde_json::from_str(&text).map_err(|_| stranger(&base))
    }
}

/// What a controller says that it cannot do, in its words. A node's name that is not there is a mistake of the caller.
fn refusal(base: &str, code: u16, text: &str) -> anyhow::Error {
    #[derive(Deserialize)]
    struct ErrorBody {
        error: String,
    }
    match serde_json::from_str(text) {
        Ok(ErrorBody { error }) if error == controller::NO_SUCH_PATH => stranger(base),
        Ok(ErrorBody { error }) if code == NOT_FOUND => BadInput::of(error),
        Ok(ErrorBody { error }) => anyhow::anyhow!("the controller at {base} says: {error}"),
        Err(_) => stranger(base),
    }
}

fn stranger(base: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "--controller {base}: what answers there is no controller of this release; give the address of [[controller]] \
         listen, not an `admin` or a router's"
    )
}

/// Why there was no answer, in words of the system.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            _ => error.to_string(),
        },
        ureq::Error::Timeout(_) => "it takes too long".to_owned(),
        ureq::Error::HostNotFound => "the name of its host is not known".to_owned(),
        error => error.to_string(),
    }
}

pub(super) fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
    ureq::Agent::new_with_config(config.proxy(None).build())
}
