//! The source packages of installed servers, which hold their test suites. Fetched by name, never committed; what a suite
//! makes of one is its own affair.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Turns the machine's own package sources into entries for source packages, in a configuration of its own, and fetches
/// and unpacks a package. Arguments: the folder, the package.
const FETCH: &str = r#"
set -e
mkdir -p "$1/etc" "$1/lists/partial" "$1/cache/archives/partial"
cd "$1"
for list in /etc/apt/sources.list.d/*.sources; do
    [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" > "etc/$(basename "$list")"
done
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$list" ] && sed -n 's/^deb /deb-src /p' "$list" > "etc/$(basename "$list" .list).list"
done
apt="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$1/etc -o Dir::State::Lists=$1/lists -o Dir::Cache=$1/cache"
apt-get $apt update -q
apt-get $apt source --download-only "$2"
mkdir -p unpacked
tar xf "$2"_*.orig.tar.* -C unpacked --strip-components=1
touch complete
"#;

/// The folder into which the source package is unpacked.
pub(super) fn fetch(root: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let folder = crate::target_folder(root).join("compat").join(package);
    if !folder.join("complete").exists() {
        crate::tell(&format!("compat: fetching the source package of {package}"));
        std::fs::create_dir_all(&folder)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", FETCH, "sh"]).arg(&folder).arg(package).stdout(Stdio::null());
        let status = shell.status().context("compat: starting sh")?;
        anyhow::ensure!(
            status.success(),
            "compat: the source package of {package} cannot be fetched: {status}"
        );
    }
    Ok(folder.join("unpacked"))
}
