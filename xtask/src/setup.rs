//! What the tests need on the machine, and how it gets there: Debian's packages and one Python client.
//! Not Rust itself: whoever runs this has it (`Makefile`).

mod valkey;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Programs that the tests start, with the Debian package that holds each.
const PROGRAMS: [(&str, &str); 19] = [
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-benchmark", "redis-tools"),
    ("memcached", "memcached"),
    ("memccapable", "libmemcached-tools"),
    ("nutcracker", "nutcracker"),
    ("etcd", "etcd-server"),
    ("python3", "python3"),
    ("tclsh", "tcl"),
    // memcached's scripts want perl with its modules for tests.
    ("prove", "perl"),
    ("dpkg-source", "dpkg-dev"),
    ("git", "git"),
    // The runbooks ask as people do.
    ("curl", "curl"),
    ("kill", "procps"),
    ("setpriv", "util-linux"),
    ("go", "golang-go"),
    ("ip", "iproute2"),
    ("strace", "strace"),
    // libFuzzer is C++.
    ("c++", "g++"),
];
/// Headers of libraries that tests compile against, with the package that holds each.
const HEADERS: [(&str, &str); 1] = [("/usr/include/libmemcached/memcached.h", "libmemcached-dev")];
/// Packages with the service in each that must not start: the tests run their own processes on ports of their own.
const SERVICES: [(&str, &str); 4] = [
    ("redis-server", "redis-server"),
    ("memcached", "memcached"),
    ("nutcracker", "nutcracker"),
    ("etcd-server", "etcd"),
];
/// The Python clients that the end-to-end tests drive, pinned so that a test run can be repeated.
const PYTHON_CLIENTS: [(&str, &str); 4] =
    [("redis", "8.1.0"), ("pymemcache", "4.0.0"), ("python-memcached", "1.62"), ("pylibmc", "1.6.3")];

/// Names the Python that has the client, for the tests.
pub(crate) const PYTHON_VARIABLE: &str = "DISTCACHE_TEST_PYTHON";

/// Runs as root with the packages as arguments. While it runs, `policy-rc.d` tells Debian to start nothing;
/// it goes away however the script ends. One that was there before stays as it was.
const INSTALL: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
"#;

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let packages = missing_packages(root);
    if !packages.is_empty() {
        println!("setup: installing {}", packages.join(" "));
        install(&packages)?;
        leave_services_off(&packages);
        let still = missing_packages(root);
        anyhow::ensure!(still.is_empty(), "still missing after apt-get install: {}", still.join(" "));
    }
    if !has_client(root) {
        println!("setup: making the Python environment {}", environment(root).display());
        make_environment(root)?;
    }
    valkey::fetch(root);
    println!("setup: done");
    Ok(())
}

/// The Python interpreter that has the client library.
pub(crate) fn python(root: &Path) -> PathBuf {
    environment(root).join("bin/python3")
}

fn environment(root: &Path) -> PathBuf {
    root.join("target/python")
}

fn missing_packages(root: &Path) -> Vec<&'static str> {
    let missing = PROGRAMS.iter().filter(|(program, _)| find(program).is_none());
    let headers = HEADERS.iter().filter(|(header, _)| !Path::new(header).is_file());
    let mut packages: Vec<&str> = missing.chain(headers).map(|(_, package)| *package).collect();
    packages.dedup();
    // Debian ships `venv` without its bootstrap; it is needed once, to make the environment.
    if !has_client(root) && !succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        packages.push("python3-venv");
    }
    packages
}

/// Looks in `PATH` and where Debian keeps daemons, which is not in every user's `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    let wanted = packages.join(" ");
    anyhow::ensure!(find("apt-get").is_some(), "no apt-get here; install these by hand: {wanted}");
    let status = as_root(&["sh", "-c", INSTALL, "setup"])
        .with_context(|| format!("run this as root: apt-get install {wanted}"))?
        .args(packages)
        .status()
        .context("starting apt-get")?;
    anyhow::ensure!(status.success(), "apt-get install {wanted} ended with {status}");
    Ok(())
}

/// A service that was just installed would start with the next boot and take its well-known port.
fn leave_services_off(installed: &[&str]) {
    if find("systemctl").is_none() {
        return;
    }
    for (_, service) in SERVICES.iter().filter(|(package, _)| installed.contains(package)) {
        let disabled = as_root(&["systemctl", "disable", "--quiet", service])
            .is_ok_and(|mut command| succeeds(&mut command));
        if !disabled {
            println!("setup: could not disable the service {service}; it may start with the next boot");
        }
    }
}

fn as_root(arguments: &[&str]) -> anyhow::Result<Command> {
    let id = Command::new("id").arg("-u").output().context("starting id")?;
    if id.stdout.trim_ascii() == b"0" {
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]);
        return Ok(command);
    }
    anyhow::ensure!(find("sudo").is_some(), "neither root nor sudo");
    let mut command = Command::new("sudo");
    command.args(arguments);
    Ok(command)
}

fn has_client(root: &Path) -> bool {
    let wanted =
        PYTHON_CLIENTS.map(|(name, version)| format!("version('{name}') == '{version}'")).join(" and ");
    let check = format!("import sys; from importlib.metadata import version; sys.exit(not ({wanted}))");
    succeeds(Command::new(python(root)).args(["-c", &check]))
}

fn make_environment(root: &Path) -> anyhow::Result<()> {
    let folder = environment(root);
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).status();
    anyhow::ensure!(
        made.context("starting python3")?.success(),
        "python3 -m venv {} failed",
        folder.display()
    );
    let wanted = PYTHON_CLIENTS.map(|(name, version)| format!("{name}=={version}"));
    let mut pip = Command::new(python(root));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&wanted);
    anyhow::ensure!(
        pip.status().context("starting pip")?.success(),
        "pip install {} failed",
        wanted.join(" ")
    );
    Ok(())
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_up_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn services_are_packages_that_setup_installs() {
        for (holds, _) in SERVICES {
            assert!(PROGRAMS.iter().any(|(_, package)| *package == holds), "{holds}");
        }
    }

    #[test]
    fn the_install_script_is_valid_shell() {
        assert!(succeeds(Command::new("sh").args(["-n", "-c", INSTALL])));
    }
}
