//! The folder in which a proxy keeps the secret of one set of servers, and whether it has served under it. Not the
//! secret's use.

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use config::{Secret, secret_file};
use rustix::fs::{FlockOperation, flock};

use super::servers::ProxyServers;
use lab::terminal::BadInput;

/// The longest path that a Unix socket may have.
const SOCKET_BYTES_MAX: usize = 107;

#[derive(Debug)]
pub(crate) struct ProxyState(PathBuf);

/// Held for as long as the process uses the folder.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl ProxyState {
    /// Makes the folder of these servers in `parent`, or where XDG says.
    pub(crate) fn open(parent: Option<&Path>, servers: &ProxyServers) -> anyhow::Result<ProxyState> {
        let parent = match parent {
            Some(parent) => {
                std::path::absolute(parent).with_context(|| format!("--state {}", parent.display()))?
            }
            None => usual()?,
        };
        let path = parent.join(servers.folder());
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(|error| {
            anyhow!(
                "{}: cannot be made to keep the secret in ({error}); write --state DIR, a directory that you may write \
                 to and that lasts",
                path.display()
            )
        })?;
        let state = ProxyState(path);
        // For people: the folder's name says nothing.
        let list = state.0.join("servers");
        let lines: String = servers.0.iter().map(|server| format!("{}\n", server.name)).collect();
        std::fs::write(&list, lines).with_context(|| format!("{}: cannot be written", list.display()))?;
        Ok(state)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn secret_path(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// The socket of a member.
    pub(crate) fn socket(&self, id: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(format!("{id}.sock"));
        if path.as_os_str().len() > SOCKET_BYTES_MAX {
            return Err(BadInput::of(format!(
                "{}: longer than the {SOCKET_BYTES_MAX} bytes that the path of a socket may have; write --state DIR with \
                 a shorter one",
                path.display()
            )));
        }
        Ok(path)
    }

    /// The secret of these servers; a new one where there is none yet.
    pub(crate) fn secret(&self) -> anyhow::Result<Secret> {
        let path = self.secret_path();
        let wrong = |error| anyhow!("{}: the secret cannot be read or kept: {error}", path.display());
        match secret_file::read(&path).map_err(wrong)? {
            Some(secret) => Ok(secret),
            None => secret_file::keep(&path, Secret::random()).map_err(wrong),
        }
    }

    /// True if keys may have been written under this secret. A secret alone is no proof: printing a configuration
    /// makes one, and so does a process that is killed while it waits for its servers.
    pub(crate) fn has_served(&self, secret: Secret) -> anyhow::Result<bool> {
        let served = secret_file::read(&self.served_path());
        Ok(served.with_context(|| self.served_path().display().to_string())? == Some(secret))
    }

    /// Records that keys may be written under this secret from now on.
    pub(crate) fn keep_served(&self, secret: Secret) -> anyhow::Result<()> {
        secret_file::replace(&self.served_path(), secret)
            .with_context(|| format!("{}: cannot be written", self.served_path().display()))
    }

    fn served_path(&self) -> PathBuf {
        self.0.join("served")
    }

    /// Refuses a second process.
    pub(crate) fn lock(&self) -> anyhow::Result<Lock> {
        let path = self.0.join("lock");
        let mut options = File::options();
        let mut file = options
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("{}: cannot be opened", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            bail!(
                "another `distcache proxy` serves these servers: process {}, which holds {}; stop it, or use its address",
                holder.trim(),
                path.display()
            );
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Lock { _file: file })
    }
}

/// The directory for what has to outlive a restart, by the XDG Base Directory Specification.
fn usual() -> anyhow::Result<PathBuf> {
    let from =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| {
        BadInput::of("neither XDG_STATE_HOME nor HOME says where to keep the secret; write --state DIR")
    })?;
    Ok(state.join("distcache"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> ProxyServers {
        ProxyServers::parse("--storage", &["redis://127.0.0.1:1".to_owned()]).expect("a URL")
    }

    #[test]
    fn a_secret_is_made_once_and_one_process_holds_the_folder() {
        let parent = std::env::temp_dir().join(format!("distcache-state-{}", std::process::id()));
        let state = ProxyState::open(Some(&parent), &servers()).expect("a folder");
        let secret = state.secret().expect("a secret");
        assert!(!state.has_served(secret).expect("no record"));
        let again = ProxyState::open(Some(&parent), &servers()).expect("the folder");
        assert_eq!(again.secret().expect("the secret"), secret);
        again.keep_served(secret).expect("kept");
        assert!(state.has_served(secret).expect("a record"));
        assert!(
            !state.has_served(Secret([9; 16])).expect("a record"),
            "another secret places keys elsewhere"
        );
        state.keep_served(Secret([9; 16])).expect("kept");
        assert!(!state.has_served(secret).expect("a record"));
        let lock = state.lock().expect("nobody has it");
        let error = again.lock().expect_err("it is held").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        again.lock().expect("nobody has it any more");
        let error = state.socket(&"x".repeat(100)).expect_err("too long").to_string();
        assert!(error.contains("write --state DIR"), "{error}");
        std::fs::remove_dir_all(&parent).expect("removed");
    }
}
