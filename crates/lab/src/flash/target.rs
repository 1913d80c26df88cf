//! Which device a subcommand is about: simulated flash, memory, or a path. Not what is done with it.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::terminal::BadInput;

#[derive(Clone, Debug)]
pub(super) enum DeviceTarget {
    Ftl,
    Memory,
    Path(PathBuf),
}

impl FromStr for DeviceTarget {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<DeviceTarget, Self::Err> {
        Ok(match text {
            "ftl" => DeviceTarget::Ftl,
            "mem" => DeviceTarget::Memory,
            path => DeviceTarget::Path(path.into()),
        })
    }
}

/// Refuses to destroy what is at a path, unless that is `allowed` and it is not protected. Who would do it is for the message.
pub(super) fn check_overwrite(
    path: &Path,
    found: &Metadata,
    allowed: bool,
    who: &str,
) -> Result<(), BadInput> {
    let refuse = |why: &str| Err(BadInput(format!("--device {}: {why}", path.display())));
    if !allowed {
        return refuse(&format!("is there; --overwrite lets the {who}"));
    }
    // Even where the user may write it all the same, as root may.
    if found.permissions().readonly() {
        return refuse("is write-protected, and left as it is");
    }
    Ok(())
}

/// What the user can change is exit code 2; what the device did is not.
pub(super) fn bad_input(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput
        | io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ResourceBusy
        | io::ErrorKind::StorageFull
        | io::ErrorKind::OutOfMemory => BadInput(error.to_string()).into(),
        _ => error.into(),
    }
}
