//! Whether every dependency may be shipped: its licence against the list in `deny.toml`. Not whether it is worth having.

use anyhow::Context;
use serde_json::Value;
use spdx::{Expression, LicenseReq, Licensee, ParseMode};

use super::Violation;

/// The list of `deny.toml`, whose text this is.
pub(crate) fn allowed(text: &str) -> anyhow::Result<Vec<Licensee>> {
    let table: toml::Table = text.parse().context("deny.toml is not TOML")?;
    let list = table.get("licenses").and_then(|section| section.get("allow")).and_then(toml::Value::as_array);
    let names =
        list.context("deny.toml has no list `allow` in [licenses]")?.iter().filter_map(toml::Value::as_str);
    names
        .map(|name| Licensee::parse(name).with_context(|| format!("deny.toml: {name} is no SPDX licence")))
        .collect()
}

/// Checks the output of `cargo metadata` with all dependencies.
pub(crate) fn check(metadata: &Value, allowed: &[Licensee], found: &mut Vec<Violation>) {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, allowed) {
            let path = format!("crate {} {}", text(&package["name"]), text(&package["version"]));
            let message = format!("the licence `{licence}` is not in the list of deny.toml");
            found.push(Violation { path, line: 0, rule: "licence", message });
        }
    }
}

fn is_allowed(licence: &str, allowed: &[Licensee]) -> bool {
    // Older crates write `MIT/Apache-2.0`.
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    let satisfied = |wanted: &LicenseReq| allowed.iter().any(|allowed| allowed.satisfies(wanted));
    expression.is_ok_and(|expression| expression.evaluate(satisfied))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{allowed, check};

    fn refused(licence: &str) -> usize {
        let list = allowed("[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"NCSA\"]\n").expect("a list");
        let package = |source: Option<&str>| json!({ "name": "x", "version": "1", "license": licence, "source": source });
        let mut found = Vec::new();
        check(&json!({ "packages": [package(Some("registry")), package(None)] }), &list, &mut found);
        found.len()
    }

    #[test]
    fn licences_are_understood() {
        for fine in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "(GPL-2.0-only OR MIT) AND NCSA"] {
            assert_eq!(refused(fine), 0, "{fine}");
        }
        for wrong in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "none", "", "something of ours"] {
            assert_eq!(refused(wrong), 1, "{wrong}: once, for our own crates are not asked");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error() {
        assert!(allowed("").is_err());
        assert!(allowed("[licenses]\nallow = [\"no licence\"]\n").is_err());
    }
}
