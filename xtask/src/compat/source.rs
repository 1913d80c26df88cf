//! The source package of the installed redis-server, which holds its test suite. Fetched by name, never committed.

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
# The servers of a run save nothing anyway, and whether they do is not for clients to say.
sed -i 's/^        r config set $param $val$/        if {$param ne "save"} { r config set $param $val }/' \
    unpacked/tests/support/server.tcl
grep -q 'ne "save"' unpacked/tests/support/server.tcl
touch complete
"#;

/// The folder of the suite's sources.
pub(super) fn fetch(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = crate::target_folder(root).join("compat/redis");
    if !folder.join("complete").exists() {
        crate::tell("compat: fetching the source package of redis");
        std::fs::create_dir_all(&folder)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", FETCH, "sh"]).arg(&folder).arg("redis").stdout(Stdio::null());
        let status = shell.status().context("compat: starting sh")?;
        anyhow::ensure!(status.success(), "compat: the source package of redis cannot be fetched: {status}");
    }
    let source = folder.join("unpacked");
    admit_users(&source)?;
    Ok(source)
}

/// The suite leaves the file about users out where it has not started the server itself: only its later parts need that,
/// for the files of users that they have.
fn admit_users(source: &Path) -> anyhow::Result<()> {
    let path = source.join("tests/unit/acl.tcl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("compat: {}", path.display()))?;
    let admitted = text.replacen("{tags {\"acl external:skip\"}}", "{tags {\"acl\"}}", 1);
    std::fs::write(&path, admitted).with_context(|| format!("compat: {}", path.display()))
}
