//! Reading the configuration of a process again while its members serve: all of it is good, or nothing changes. What may
//! change is `config::changes`' business.

use std::sync::{Arc, Mutex, PoisonError};

use crate::orders::Orders;
use crate::tls::Certificates;
use config::{Config, ConfigError, Reloaded};

/// Reads the file again that `config` came from, and what it names: both are good, or it is an error.
pub fn read_again(config: &Config) -> Result<Config, ConfigError> {
    let newer = config.read_again()?;
    Certificates::load(&newer)?;
    Ok(newer)
}

type Act = Box<dyn Fn(&Config) + Send + Sync>;
type ReloadCheck = Box<dyn Fn(&Config) -> Result<(), String> + Send + Sync>;

/// Reloads the configuration of one process. Reloads come one after the other, whoever asks.
pub struct Reloader {
    config: Mutex<Arc<Config>>,
    certificates: Certificates,
    members: Vec<Orders>,
    /// What else acts on settings.
    act: Act,
    check: ReloadCheck,
}

impl Reloader {
    pub fn new(
        config: &Arc<Config>,
        certificates: &Certificates,
        members: Vec<Orders>,
        act: Act,
    ) -> Reloader {
        Reloader {
            config: Mutex::new(Arc::clone(config)),
            certificates: certificates.clone(),
            members,
            act,
            check: Box::new(|_| Ok(())),
        }
    }

    /// What only the roles know of a configuration is checked, too.
    pub fn checking(self, check: ReloadCheck) -> Reloader {
        Reloader { check, ..self }
    }

    /// # Errors
    /// Why the file is no good, or what of the certificates; everything stays as it was then.
    pub fn reload(&self) -> Result<Reloaded, String> {
        let reloaded = self.read();
        match &reloaded {
            Ok(Reloaded { changed, restart_needed }) => {
                tracing::info!(changed = changed.join(", "), "the configuration has been read again");
                if !restart_needed.is_empty() {
                    tracing::warn!("restart needed for {}", restart_needed.join(", "));
                }
            }
            Err(reason) => tracing::error!("the configuration in use stays: {reason}"),
        }
        reloaded
    }

    fn read(&self) -> Result<Reloaded, String> {
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = current.read_again().map_err(|error| error.to_string())?;
        if let Err(error) = Certificates::load(&newer) {
            // Each table whose files are broken keeps what it has, and logs and counts it; the others take theirs.
            drop(self.certificates.reload());
            return Err(error.to_string());
        }
        let (config, reloaded) = current.changed_to(&newer).map_err(|error| error.to_string())?;
        (self.check)(&config)?;
        // What is wrong with single tables is in the log; the others are in use by then.
        self.certificates.reload().map_err(|errors| format!("certificates: {}", errors.join("; ")))?;
        *current = Arc::new(config);
        (self.act)(&current);
        self.members.iter().for_each(|orders| orders.set(&current));
        Ok(reloaded)
    }
}
