//! From a TOML file, the environment and flags to a validated configuration. Not what its fields mean.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::{Table, Value};

use super::storage::Password;
use super::{Config, Secret, assumed, hosts, place, secret_file, words};

/// Tables that environment and flags may change; the others list members.
const SECTIONS: [&str; 8] =
    ["cluster", "placement", "security", "limits", "heat", "near", "slowlog", "tracing"];
const ENVIRONMENT_PREFIX: &str = "DISTCACHE_";

/// What is wrong with a configuration, in one line: file, field, value and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// One field set from outside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The flag or variable, for messages.
    source: String,
    section: String,
    key: String,
    value: String,
}

impl Override {
    /// Reads `SECTION.KEY=VALUE`, as `--set` takes it.
    pub fn from_flag(text: &str) -> Result<Override, ConfigError> {
        let wrong = || {
            let sections = SECTIONS.join(", ");
            ConfigError(format!(
                "--set {text}: write SECTION.KEY=VALUE with one of the sections {sections}, for example \
                 cluster.lease_ms=500"
            ))
        };
        let (field, value) = text.split_once('=').ok_or_else(wrong)?;
        let (section, key) = field.trim().split_once('.').ok_or_else(wrong)?;
        if !SECTIONS.contains(&section) {
            return Err(wrong());
        }
        let source = format!("--set {section}.{key}");
        Ok(Override {
            source,
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.trim().to_owned(),
        })
    }

    /// Picks `DISTCACHE_SECTION_KEY` out of an environment; other names are left alone.
    pub fn from_environment(variables: impl IntoIterator<Item = (String, String)>) -> Vec<Override> {
        let mut overrides = Vec::new();
        for (name, value) in variables {
            let Some(field) = name.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else {
                continue;
            };
            let section = SECTIONS.iter().find_map(|section| {
                field.strip_prefix(section).and_then(|rest| rest.strip_prefix('_')).map(|key| (*section, key))
            });
            if let Some((section, key)) = section {
                let (section, key) = (section.to_owned(), key.to_owned());
                overrides.push(Override { source: name, section, key, value });
            }
        }
        overrides.sort_by(|a, b| a.source.cmp(&b.source));
        overrides
    }

    fn apply(&self, table: &mut Table) {
        let section = table.entry(self.section.clone()).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(section) = section {
            if self.section == "cluster" && self.key.starts_with("secret") {
                // The outer one replaces the file's, in whichever of the two forms that is.
                section.remove("secret");
                section.remove("secret_file");
            }
            section.insert(self.key.clone(), value_of(&self.value));
        }
    }
}

/// A TOML value if it reads as one, otherwise the text itself, so that nobody has to quote twice.
fn value_of(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    let value = parsed.and_then(|mut table| if table.len() == 1 { table.remove("value") } else { None });
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

impl Config {
    /// Reads and validates a file, with `DISTCACHE_*` of this process' environment over it.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::load_with(path, &[])
    }

    /// As [`Config::load`], with `flags` over the environment.
    pub fn load_with(path: &Path, flags: &[Override]) -> Result<Config, ConfigError> {
        Config::load_as(path, flags, NoSecret::Refuse)
    }

    /// As [`Config::load_with`], for a process that starts members: a secret that the file leaves out is made, and kept
    /// beside the file.
    pub fn load_to_start(path: &Path, flags: &[Override]) -> Result<Config, ConfigError> {
        Config::load_as(path, flags, NoSecret::Make)
    }

    /// As [`Config::load_with`], for somebody who only looks: a secret that has not been made yet is left out.
    pub fn load_to_check(path: &Path, flags: &[Override]) -> Result<Config, ConfigError> {
        Config::load_as(path, flags, NoSecret::Ignore)
    }

    fn load_as(path: &Path, flags: &[Override], no_secret: NoSecret) -> Result<Config, ConfigError> {
        let file = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let advice = match error.kind() {
                std::io::ErrorKind::NotFound => "; check the path after --config",
                _ => "",
            };
            ConfigError(format!("{file}: {}{advice}", words::unreadable(&error)))
        })?;
        let variables =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        let mut overrides = Override::from_environment(variables);
        overrides.extend_from_slice(flags);
        let directory = path.parent().unwrap_or(Path::new(""));
        let place = Some((secret_file::beside(path), no_secret));
        let config = read_with(&text, &file.to_string(), directory, &overrides, place)?;
        Ok(Config { source: Some((path.to_owned(), flags.to_vec())), ..config })
    }

    /// Reads the file again that this configuration came from.
    ///
    /// # Errors
    /// As [`Config::load`]; code that built a configuration itself has no file.
    pub fn read_again(&self) -> Result<Config, ConfigError> {
        match &self.source {
            Some((path, flags)) => Config::load_with(path, flags),
            None => Err(ConfigError("this configuration was not read from a file".to_owned())),
        }
    }

    /// What somebody else has found wrong with this configuration, named as the errors of its own are.
    pub fn error(&self, what: &str) -> ConfigError {
        match &self.source {
            Some((path, _)) => ConfigError(format!("{}: {what}", path.display())),
            None => ConfigError(format!("configuration: {what}")),
        }
    }

    /// Reads and validates a text; `secret_file` is relative to the current directory.
    ///
    /// ```
    /// use config::Config;
    ///
    /// let text = r#"
    ///     [cluster]
    ///     secret = "00112233445566778899aabbccddeeff"
    ///
    ///     [[shim]]
    ///     storage = "redis://127.0.0.1:6391"
    ///
    ///     [[router]]
    /// "#;
    /// let config = Config::parse(text)?;
    /// assert_eq!(config.shims[0].id, "shim-0");
    /// assert!(config.assumed().iter().any(|line| line.contains("127.0.0.1:6380")));
    ///
    /// let error = Config::parse(&text.replace("storage", "store")).unwrap_err();
    /// assert!(error.to_string().contains("unknown"));
    /// # Ok::<(), config::ConfigError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        read(text, "configuration", Path::new(""), &[])
    }
}

/// What to do where a file names no secret and there is none beside it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoSecret {
    Refuse,
    Make,
    Ignore,
}

pub(super) fn read(
    text: &str,
    file: &str,
    directory: &Path,
    overrides: &[Override],
) -> Result<Config, ConfigError> {
    read_with(text, file, directory, overrides, None)
}

/// `secret_place` is where a secret is that the text leaves out, if it has a place.
fn read_with(
    text: &str,
    file: &str,
    directory: &Path,
    overrides: &[Override],
    secret_place: Option<(PathBuf, NoSecret)>,
) -> Result<Config, ConfigError> {
    let mut config: Config = toml::from_str(text).map_err(|error| located(text, file, &error))?;
    let mut table: Table = toml::from_str(text).map_err(|error| located(text, file, &error))?;
    for change in overrides {
        config = overridden(&mut table, change)?;
    }
    let named = |ConfigError(what)| ConfigError(format!("{file}: {what}"));
    let mut said = assumed::complete(&mut table).map_err(named)?;
    let secret_place =
        secret_place.filter(|_| config.cluster.secret.is_none() && config.cluster.secret_file.is_none());
    if let Some((path, _)) = &secret_place {
        said.extend(assume_secret(&mut table, path));
    }
    config = table
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| ConfigError(format!("{file}: {}", message_of(&error))))?;
    if let Some(path) = &config.cluster.secret_file {
        if config.cluster.secret.is_some() {
            return Err(ConfigError(format!("{file}: [cluster]: secret and secret_file: give one of them")));
        }
        config.cluster.secret = match &secret_place {
            // Until it is known that the rest is right.
            Some((path, _)) => Some(kept_secret(path, file)?.unwrap_or(Secret([0; 16]))),
            None => Some(secret_from(&directory.join(path), file)?),
        };
    }
    for shim in &mut config.shims {
        if let Some(path) = &shim.storage_password_file {
            let at = format!("{file}: [[shim]] {:?}: storage_password_file", shim.id);
            shim.storage.take_password(&at, &directory.join(path))?;
        }
    }
    for controller in &mut config.controllers {
        if let Some(path) = &controller.store_password_file {
            let at = format!("{file}: [[controller]] {:?}: store_password_file", controller.id);
            controller.store_password = Some(Password::read(&at, &directory.join(path))?);
        }
    }
    for user in &mut config.users {
        user.take_password(file, directory)?;
    }
    config.tls.resolve(directory);
    config.tracing.read_headers(directory).map_err(|what| ConfigError(format!("{file}: {what}")))?;
    config.validate().and_then(|()| hosts::check_all_placed(&config)).map_err(|ConfigError(what)| {
        // What comes from elsewhere does not stand in the file.
        let line = place::line_of(text, &what).filter(|_| overrides.is_empty());
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        ConfigError(format!("{file}{line}: {what}"))
    })?;
    config.number_shims();
    if let Some((path, no_secret)) = &secret_place {
        // Somebody else may have made it since it was looked for.
        if let Some(secret) = kept_secret(path, file)? {
            config.cluster.secret = Some(secret);
        } else {
            make_secret(&mut config, path, *no_secret).map_err(named)?;
        }
    }
    config.table = Arc::new(table);
    config.started = Arc::clone(&config.table);
    config.assumed = said.into();
    Ok(config)
}

/// What the table says once a flag or an environment variable has changed it.
fn overridden(table: &mut Table, change: &Override) -> Result<Config, ConfigError> {
    change.apply(table);
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let line = format!("{} = {}", change.key, change.value);
        let what = words::plain(&message_of(&error), &change.key, &line);
        ConfigError(format!("{}: {what}", change.source))
    })
}

/// As if the file named the one beside it.
fn assume_secret(table: &mut Table, path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let cluster = table.entry("cluster").or_insert_with(|| Value::Table(Table::new())).as_table_mut()?;
    cluster.insert("secret_file".to_owned(), Value::String(name.clone()));
    let state = if path.exists() { "it is there" } else { "made at the first start" };
    Some(format!("[cluster] secret_file = {name:?} ({state})"))
}

fn kept_secret(path: &Path, file: &str) -> Result<Option<Secret>, ConfigError> {
    let at = |error| ConfigError(format!("{file}: the secret in {}: {error}", path.display()));
    secret_file::read(path).map_err(at)
}

/// Gives the configuration the secret that is there then; who only looks keeps the one that stands in for it.
fn make_secret(config: &mut Config, path: &Path, no_secret: NoSecret) -> Result<(), ConfigError> {
    let beside = path.display();
    match no_secret {
        NoSecret::Ignore => return Ok(()),
        NoSecret::Refuse => {
            return Err(ConfigError(format!(
                "[cluster] secret is missing, and {beside} is not there: the first start of a member makes it; if it \
                 was lost, bring it back, because another secret places every key elsewhere"
            )));
        }
        NoSecret::Make => {}
    }
    if !config.is_on_one_machine() {
        return Err(ConfigError(format!(
            "[cluster] secret is missing, and {beside} is not there: members are on several machines, which must have \
             the same; make it once (`openssl rand -hex 16 > {beside}`) and copy it along with this file"
        )));
    }
    let made = Secret::random();
    let secret = secret_file::keep(path, made).map_err(|error| {
        ConfigError(format!(
            "[cluster] secret is missing, and {beside} cannot be made to keep one ({error}); write secret_file = \
             \"/PATH\" under [cluster], a file with the output of `openssl rand -hex 16`"
        ))
    })?;
    tracing::info!(file = %beside, "made the cluster's secret; keep it: another one places every key elsewhere");
    // Somebody else may have been first.
    config.first_life = secret == made;
    config.cluster.secret = Some(secret);
    Ok(())
}

fn secret_from(path: &PathBuf, file: &str) -> Result<super::Secret, ConfigError> {
    let at = format!("{file}: [cluster] secret_file = {:?}", path.display().to_string());
    let text = std::fs::read_to_string(path).map_err(|error| {
        ConfigError(format!("{at}: {}; write the secret into it", words::unreadable(&error)))
    })?;
    text.trim().parse().map_err(|error| ConfigError(format!("{at}: {error}")))
}

impl ConfigError {
    pub(super) fn new(what: String) -> ConfigError {
        ConfigError(what)
    }
}

/// One line that says where in the file it is: `FILE:LINE: [section] key: what`.
fn located(text: &str, file: &str, error: &toml::de::Error) -> ConfigError {
    let message = message_of(error);
    let Some(span) = error.span() else {
        return ConfigError(format!("{file}: {}", words::plain(&message, "", "")));
    };
    let start = span.start.min(text.len());
    let before = text.get(..start).unwrap_or(text);
    let line_number = before.matches('\n').count() + 1;
    let line = text.lines().nth(line_number - 1).unwrap_or("").trim();
    let upto = text.lines().take(line_number);
    let section = upto.map(str::trim).filter(|line| line.starts_with('[')).last();
    let section =
        section.map(|line| line.split('#').next().unwrap_or(line).trim_end()).unwrap_or("top level");
    let key = line.split_once('=').map(|(key, _)| key.trim()).unwrap_or_default();
    let what = words::plain(&message, key, line.split('#').next().unwrap_or(line).trim_end());
    // The key is part of the message already where it is unknown or missing.
    let named = key.is_empty() || what.contains(&format!("`{key}`"));
    let key = if named { String::new() } else { format!("{key}: ") };
    let section = if line_number == 1 && what.contains("is missing") { "top level" } else { section };
    let (section, key) = (shown(section), shown(&key));
    ConfigError(format!("{file}:{line_number}: {section}: {key}{what}"))
}

/// What a file says, fit for one line of a terminal: control characters are written as Rust writes them.
fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

/// The parser's message without line breaks and control characters.
fn message_of(error: &toml::de::Error) -> String {
    shown(&error.message().split('\n').map(str::trim).collect::<Vec<_>>().join(" "))
}
