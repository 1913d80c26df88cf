//! What is installed: the binary without its line tables, these in a file beside it, man pages and completions. It installs
//! nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{cargo, print, target_folder};

/// Where each shell looks for what completes this command's words.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/distcache"),
    ("zsh", "share/zsh/site-functions/_distcache"),
    ("fish", "share/fish/vendor_completions.d/distcache.fish"),
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut build = cargo::command();
    build.args(["build", "--release", "--locked", "--package", "distcache"]).current_dir(root);
    succeed(&mut build)?;
    let built = target_folder(root).join("release/distcache");
    let folder = target_folder(root).join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let stripped = split(&built, &folder.join("bin"))?;
    let man = folder.join("share/man/man1");
    succeed(Command::new(&stripped).arg("man").arg(&man))?;
    for (shell, place) in COMPLETIONS {
        let place = folder.join(place);
        fs::create_dir_all(place.parent().context("a folder")?)?;
        let output = Command::new(&stripped).args(["completions", shell]).output()?;
        ensure!(output.status.success() && !output.stdout.is_empty(), "completions {shell} failed");
        fs::write(&place, output.stdout).with_context(|| place.display().to_string())?;
    }
    let mib = |path: &Path| anyhow::Ok(fs::metadata(path)?.len() as f64 / f64::from(1 << 20));
    print(&format!(
        "{}: {:.1} MiB, line tables beside it: {:.1} MiB\n",
        stripped.display(),
        mib(&stripped)?,
        mib(&tables_of(&stripped))?
    ));
    Ok(())
}

/// Backtraces and profilers look for it where the binary is, by the name that stands in the binary.
fn tables_of(stripped: &Path) -> PathBuf {
    stripped.with_extension("debug")
}

/// Copies a binary into `folder` in two parts: what runs, and the line tables. The first.
fn split(built: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let stripped = folder.join(built.file_name().context("the binary has a name")?);
    let tables = tables_of(&stripped);
    succeed(objcopy().arg("--only-keep-debug").arg(built).arg(&tables))?;
    // The link holds the name of the file without its folder, and its checksum.
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&tables);
    succeed(objcopy().args(["--strip-debug", "--strip-unneeded"]).arg(link).arg(built).arg(&stripped))?;
    Ok(stripped)
}

/// It comes with the linker, in binutils.
fn objcopy() -> Command {
    Command::new(std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into()))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("starting {name}; is it installed?"))?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{split, tables_of};
    use std::process::Command;

    #[test]
    fn the_binary_runs_without_its_line_tables_and_finds_them_beside_it() {
        let this = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let stripped = split(&this, folder.path()).unwrap();
        let size = |path: &std::path::Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&stripped) < size(&this) && size(&tables_of(&stripped)) > 0);
        let panic = |name: &str| {
            let mut command = Command::new(&stripped);
            command.args(["--exact", &format!("dist::tests::{name}")]);
            command.env("RUST_BACKTRACE", "1").env("DISTCACHE_DIST_TRACE", "1").args(["--nocapture"]);
            String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
        };
        let trace = panic("a_backtrace_names_this_line");
        assert!(trace.contains("dist.rs:"), "{trace}");
        std::fs::remove_file(tables_of(&stripped)).unwrap();
        let trace = panic("a_backtrace_names_this_line");
        assert!(trace.contains("backtrace") && !trace.contains("dist.rs:"), "{trace}");
    }

    /// Run by the test above in the stripped binary.
    #[test]
    fn a_backtrace_names_this_line() {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(!trace.is_empty());
        if std::env::var_os("DISTCACHE_DIST_TRACE").is_some() {
            crate::print(&format!("backtrace\n{trace}\n"));
        }
    }
}
