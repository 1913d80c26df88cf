//! A cluster's secret in a file of its own: read, and made once by whoever is first. Not which file it is.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{Config, Secret};

/// Beside a configuration file that names no secret.
pub fn beside(config: &Path) -> PathBuf {
    match config.extension() {
        Some(extension) if extension != "secret" => config.with_extension("secret"),
        _ => {
            let mut name = config.as_os_str().to_owned();
            name.push(".secret");
            PathBuf::from(name)
        }
    }
}

/// The secret in the file, none if there is no such file. An error says what is wrong with its contents.
pub fn read(path: &Path) -> io::Result<Option<Secret>> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts `secret` into a file that only its owner may read, unless there is one: the secret that is there then.
///
/// The file appears whole or not at all, so of many who do this at once one is first and the others read what it wrote.
pub fn keep(path: &Path, secret: Secret) -> io::Result<Secret> {
    match written_beside(path, secret)?.persist_noclobber(path) {
        Ok(_) => sync_directory(path).map(|()| secret),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            read(path)?.ok_or_else(|| io::Error::from(ErrorKind::NotFound))
        }
        Err(error) => Err(error.error),
    }
}

/// Puts `secret` into a file that only its owner may read, in place of what is there.
pub fn replace(path: &Path, secret: Secret) -> io::Result<()> {
    written_beside(path, secret)?.persist(path)?;
    sync_directory(path)
}

/// A file of the same directory, with mode 0600 (the library's), that can take the place of `path` at once.
fn written_beside(path: &Path, secret: Secret) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(directory(path))?;
    writeln!(file, "{}", secret.digits())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Keys would be lost with the secret: its name has to outlive a power cut, too.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

impl Secret {
    /// A new one, from the operating system's random numbers.
    pub fn random() -> Secret {
        Secret(rand::random())
    }

    /// As a configuration has it.
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Config {
    /// Whether other members can only be on this machine.
    pub(super) fn is_on_one_machine(&self) -> bool {
        let controllers = self.controllers.iter().all(|controller| controller.listen.ip().is_loopback());
        let nodes = self.nodes.iter().all(|node| node.listen.is_local());
        let standbys = self.standbys.iter().all(|standby| standby.listen.is_local());
        self.hosts.len() < 2
            && controllers
            && nodes
            && standbys
            && self.shims.iter().all(|shim| shim.listen.is_local())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn the_first_of_many_makes_it_and_all_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.secret");
        let start = Barrier::new(8);
        let secrets: Vec<Secret> = std::thread::scope(|scope| {
            let maker = || {
                start.wait();
                keep(&path, Secret::random()).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(maker)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let kept = read(&path).unwrap().unwrap();
        assert!(secrets.iter().all(|secret| *secret == kept));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(kept.digits().parse(), Ok(kept));
    }

    #[test]
    fn what_cannot_be_read_or_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.secret");
        assert!(read(&path).unwrap().is_none());
        fs::write(&path, "0011\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("it has 4 digits"));
        assert!(keep(&path, Secret::random()).is_err(), "a file that is no secret is left as it is");
        assert!(keep(&directory.path().join("none/x.secret"), Secret::random()).is_err());
    }

    #[test]
    fn it_lies_beside_the_configuration() {
        assert_eq!(beside(Path::new("/etc/distcache.toml")), Path::new("/etc/distcache.secret"));
        assert_eq!(beside(Path::new("cache")), Path::new("cache.secret"));
        assert_eq!(beside(Path::new("a.secret")), Path::new("a.secret.secret"));
    }
}
