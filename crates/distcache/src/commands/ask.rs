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
use runtime::tls::{Asker, HttpClient};

const TIMEOUT: Duration = Duration::from_secs(5);
/// A change is answered when all members concerned have made it, which may take as long as leases do.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Statuses of thousands of members fit.
const REPLY_BYTES_MAX: u64 = 64 << 20;

const NOT_FOUND: u16 = 404;

/// Flags of every command that asks a controller.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArguments {
    /// The controller's address, for example http://127.0.0.1:7000; https:// where it has [tls.http]
    #[arg(long, env = "DISTCACHE_CONTROLLER", value_name = "URL")]
    controller: String,

    /// Who signs the certificate of the controller, for https://
    #[arg(long, env = "DISTCACHE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

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
        self.token_in(self.config()?.as_ref())
    }

    /// The configuration, if it is named.
    fn config(&self) -> anyhow::Result<Option<Config>> {
        let loaded = self.config.as_ref().map(|file| Config::load_to_check(file, &[]));
        Ok(loaded.transpose()?)
    }

    fn token_in(&self, config: Option<&Config>) -> anyhow::Result<CommandToken> {
        let secret = match (&self.secret_file, config) {
            (Some(file), _) => {
                let found = config::secret_file::read(file).map_err(BadInput::of)?;
                found.ok_or_else(|| {
                    BadInput::of(format!("--secret-file {}: there is no such file", file.display()))
                })?
            }
            (None, Some(config)) => *config.secret(),
            (None, None) => return Err(BadInput::of("--config FILE or --secret-file FILE is missing")),
        };
        Ok(CommandToken::derive(&secret))
    }
}

impl CommandArguments {
    /// Reads what it takes to ask: the configuration, if it is named, also says who signs the controller's certificate.
    pub(crate) fn open(&self) -> anyhow::Result<Commander> {
        let config = self.secret.config()?;
        let token = self.secret.token_in(config.as_ref())?;
        let mut controller = self.controller.clone();
        let http = config.and_then(|config| config.tls.http);
        controller.ca_file = controller.ca_file.or_else(|| http.map(|http| http.ca_file));
        Ok(Commander { controller, token })
    }

    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.open()?.post(path, body)
    }
}

/// A controller and what shows that it may be asked to change something.
pub(crate) struct Commander {
    controller: ControllerArguments,
    token: CommandToken,
}

impl Commander {
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.controller.post(&self.token, path, body)
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.controller.get(path, &[])
    }
}

impl ControllerArguments {
    pub(crate) fn of(config: &Config, listen: SocketAddr) -> ControllerArguments {
        let ca_file = config.tls.http.as_ref().map(|http| http.ca_file.clone());
        ControllerArguments { controller: config.http_url(listen, ""), ca_file, json: false }
    }

    /// Gets `path`, with `query` escaped.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
        let request = agent(TIMEOUT, self.asker()?.as_ref()).get(format!("{}{path}", self.base()?));
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
        let request = agent(CHANGE_TIMEOUT, self.asker()?.as_ref())
            .post(format!("{}{path}", self.base()?))
            .header(COMMAND_HEADER, token.text());
        self.answer(request.send(serde_json::to_string(body)?))
    }

    fn base(&self) -> anyhow::Result<String> {
        let base = self.controller.trim_end_matches('/');
        let scheme = if self.ca_file.is_some() { "https" } else { "http" };
        let base = if base.contains("://") { base.to_owned() } else { format!("{scheme}://{base}") };
        match (base.split_once("://"), &self.ca_file) {
            (Some(("http", place)), _) | (Some(("https", place)), Some(_)) => self.check_place(place)?,
            (Some(("https", _)), None) => {
                return Err(BadInput::of(format!(
                    "--controller {base}: --ca-file FILE is missing, the ca_file of [tls.http]"
                )));
            }
            _ => {
                return Err(BadInput::of(format!(
                    "--controller {base}: write http://HOST:PORT, or https://HOST:PORT where the controller has [tls.http]"
                )));
            }
        }
        Ok(base)
    }

    /// What https:// is asked with.
    fn asker(&self) -> anyhow::Result<Option<Asker>> {
        let asker = self.ca_file.as_ref().map(|file| Asker::trusting(file));
        asker.transpose().map_err(|what| BadInput::of(what.replace("[tls.http] ca_file", "--ca-file")))
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
            let advice = match &error {
                ureq::Error::Protocol(_) => {
                    "what listens there is no controller; give the address of [[controller]] listen"
                }
                error if is_tls(error) => {
                    "--ca-file is who signs its certificate, which is for the address it is asked by; without [tls.http] write \
                     http://"
                }
                _ => "is the controller running there?",
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

/// Whether the two ends do not come to speak TLS with each other.
fn is_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
        ureq::Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
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

pub(super) fn agent(timeout: Duration, tls: Option<&Asker>) -> ureq::Agent {
    HttpClient::new(timeout, tls).agent()
}
