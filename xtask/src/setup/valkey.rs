//! Valkey for the tests, from Debian's backports, unpacked beside what is built here: nothing is installed, so that a
//! redis-server stays as it is. Not the tests that need it.

use std::path::Path;
use std::process::{Command, Stdio};

/// Derives the backports from the machine's own package sources, in a configuration of its own, and unpacks the packages
/// given. Arguments: the folder, the packages.
const FETCH: &str = r#"
set -e
folder=$1
shift
. /etc/os-release
rm -rf "$folder/apt" "$folder/usr"
mkdir -p "$folder/apt/etc" "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder/apt"
for list in /etc/apt/sources.list.d/*.sources; do
    # The first stanza is the main archive.
    [ -e "$list" ] && sed -e '/^$/q' -e "s/^Suites:.*/Suites: $VERSION_CODENAME-backports/" "$list" > "etc/$(basename "$list")"
done
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$list" ] && sed -n "s/^\(deb .*\) $VERSION_CODENAME main.*/\1 $VERSION_CODENAME-backports main/p" "$list" \
        > "etc/$(basename "$list" .list).list"
done
apt="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$PWD/etc -o Dir::State::Lists=$PWD/lists -o Dir::Cache=$PWD/cache"
apt="$apt -o APT::Sandbox::User=root"
apt-get $apt update -q
apt-get $apt download "$@"
for package in *.deb; do
    dpkg -x "$package" "$folder/unpacked"
done
mv "$folder/unpacked/usr" "$folder/usr"
rm -rf "$folder/unpacked" "$folder/apt"
"#;
const PACKAGES: [&str; 2] = ["valkey-server", "valkey-tools"];

/// Says why not where it cannot be had: then the tests that need it fail where all tests must run.
pub(super) fn fetch(root: &Path) {
    let folder = root.join("target/valkey");
    if super::find("valkey-server").is_some() || starts(&folder.join("usr/bin/valkey-server")) {
        return;
    }
    println!("setup: fetching {} from Debian's backports into {}", PACKAGES.join(" "), folder.display());
    let fetched = std::fs::create_dir_all(&folder).and_then(|()| {
        let mut shell = Command::new("sh");
        shell.args(["-c", FETCH, "sh"]).arg(&folder).args(PACKAGES).stdout(Stdio::null()).status()
    });
    let problem = match fetched {
        Err(error) => error.to_string(),
        Ok(status) if !status.success() => status.to_string(),
        Ok(_) if !starts(&folder.join("usr/bin/valkey-server")) => {
            "it does not start; it needs the libraries that redis-server needs".to_owned()
        }
        Ok(_) => return,
    };
    println!(
        "setup: ***** no Valkey: {problem} *****\nsetup: its tests are skipped, and fail in CI; they take any valkey-server \
         in PATH or in {}",
        folder.join("usr/bin").display()
    );
}

fn starts(program: &Path) -> bool {
    super::succeeds(Command::new(program).arg("--version"))
}

#[cfg(test)]
mod tests {
    use super::FETCH;
    use std::process::Command;

    #[test]
    fn the_fetching_script_is_valid_shell() {
        assert!(super::super::succeeds(Command::new("sh").args(["-n", "-c", FETCH])));
    }
}
