//! What is wrong with a TOML file, in our words: the wrong word, and what to write. Not where it is.

/// Names are suggested up to this distance, where each step is one letter.
const LIKENESS_MIN: f64 = 0.8;

/// The one of `names` that somebody may have meant.
pub(super) fn meant<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &&str| strsim::jaro_winkler(&wrong.to_lowercase(), &name.to_lowercase());
    let best = names.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= LIKENESS_MIN).then_some(best)
}

/// The same as part of a sentence, in one line of text; empty if nothing is like it.
pub(super) fn hint<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let name = meant(wrong, names).map(printable);
    name.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Why a file cannot be read.
pub fn unreadable(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{InvalidData, IsADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound => "there is no such file".to_owned(),
        PermissionDenied => "this user may not read it".to_owned(),
        IsADirectory => "this is a directory; give a file".to_owned(),
        InvalidData => "this is no text in UTF-8; is it the right file?".to_owned(),
        _ => error.to_string(),
    }
}

/// The reader's `message` about `key`, whose line is `line`, in one line of text.
pub(super) fn plain(message: &str, key: &str, line: &str) -> String {
    printable(&explained(message, key, line))
}

/// Control characters, which a terminal would obey, as they are written in code.
fn printable(text: &str) -> String {
    let shown = |sign: char| match sign.is_control() {
        true => sign.escape_default().to_string(),
        false => sign.to_string(),
    };
    text.chars().map(shown).collect()
}

fn explained(message: &str, key: &str, line: &str) -> String {
    let bare = key.trim();
    let value = line.split_once('=').map(|(_, value)| value.trim()).unwrap_or_default();
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return unknown_key(rest, line);
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return unknown_value(rest);
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        return format!("{missing} is missing{}", example(missing.trim_matches('`')));
    }
    let wrong = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(|wrong| wrong.split_once(", expected ")) {
        return mistyped(found, expected, bare, line);
    }
    match message {
        "invalid socket address syntax" => {
            format!("{value} is no address: write \"IP:PORT\", for example \"127.0.0.1:7000\"")
        }
        "invalid IP address syntax" => {
            format!("{value} is no address: write an IP address, for example \"10.0.0.1\"")
        }
        "duplicate key" if line.starts_with('[') => {
            let name = line.trim_matches(['[', ']']);
            format!("{name} is there with one pair of brackets and with two: write [[{name}]] each time")
        }
        "duplicate key" => format!("`{bare}` is given twice: keep one"),
        _ if message.starts_with("string values must be quoted") => {
            format!("{value} is no value: write text in quotes, {bare} = \"{value}\"")
        }
        _ if message.starts_with("invalid basic string") => {
            format!("the text {value} does not end: close it with a quotation mark")
        }
        _ if message.starts_with("invalid key-value pair") || message.starts_with("key with no value") => {
            format!("this is no line of TOML: write [section], [[section]] or key = value ({message})")
        }
        _ => message.to_owned(),
    }
}

/// What to write for a key that is missing.
fn example(key: &str) -> String {
    let value = match key {
        "cluster" => return ": begin with [cluster] and its secret".to_owned(),
        "address" => "\"10.0.0.1\"",
        "id" | "name" => "\"a-name\"",
        "layer" => "\"the name of a [[layer]]\"",
        "listen" => "\"127.0.0.1:7000\"",
        "partition" => "\"rack\" or \"hash\"",
        "prefix" => "\"user:\"",
        "rack" => "\"r0\"",
        "rules" => "\"on ~* +@all\"",
        key if key.ends_with("_file") => "\"/path/to/file.pem\"",
        _ => return String::new(),
    };
    format!(": write {key} = {value}")
}

fn unknown_key(rest: &str, line: &str) -> String {
    let Some((key, allowed)) =
        rest.split_once(", expected one of ").or_else(|| rest.split_once(", expected "))
    else {
        return format!("unknown key {rest}");
    };
    let kind = if line.starts_with('[') { "section" } else { "key" };
    let hint = hint(key.trim_matches('`'), allowed.split('`').skip(1).step_by(2));
    format!("unknown {kind} {key}{hint}; allowed here: {allowed}")
}

fn unknown_value(rest: &str) -> String {
    let Some((value, allowed)) =
        rest.split_once(", expected one of ").or_else(|| rest.split_once(", expected "))
    else {
        return format!("unknown value {rest}");
    };
    let names: Vec<&str> = allowed.split('`').skip(1).step_by(2).collect();
    let hint = hint(value.trim_matches('`'), names.iter().copied());
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("unknown value {value}{hint}: write {}", quoted.join(" or "))
}

/// `found` is of another type than `expected`, which is Rust's word for it.
fn mistyped(found: &str, expected: &str, key: &str, line: &str) -> String {
    // `string "1s"`, `integer `5``, `boolean `true``, `floating point `1.5``
    let start = found.find(['"', '`']).unwrap_or(0);
    let value = found[start..].trim_matches('`');
    let section = line.trim_matches(['[', ']']);
    match expected {
        _ if found == "map" && line.starts_with("[[") => {
            format!("write [{section}] with one pair of brackets: there is one")
        }
        "u64" | "usize" | "u32" | "u16" | "i64" | "u8" => {
            let unit = match () {
                () if key.ends_with("_ms") || key.contains("_ms_") => " of milliseconds",
                () if key.contains("bytes") => " of bytes",
                () => "",
            };
            let example = || whole(value).map(|number| format!(", {key} = {number}")).unwrap_or_default();
            let what = match value.parse::<i128>() {
                Ok(number) if number < 0 => " that is not negative".to_owned(),
                Ok(_) => format!(", at most {}", max_of(expected)),
                Err(_) => format!(", without quotes{}", example()),
            };
            format!("{value}: write a whole number{unit}{what}")
        }
        "f64" | "f32" => format!("{value}: write a number without quotes, such as {key} = 1.5"),
        "a boolean" => format!("{value}: write true or false, without quotes"),
        "a string" | "a borrowed string" => format!("{value}: write text in quotes, {key} = \"{value}\""),
        "a sequence" if line.starts_with('[') => {
            format!("write [[{section}]] with two pairs of brackets: there may be several")
        }
        _ => format!("{value}: write {expected}"),
    }
}

/// The largest number of a type of Rust's.
fn max_of(kind: &str) -> u64 {
    match kind {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        _ => i64::MAX as u64,
    }
}

/// What somebody meant by a number with a unit, in milliseconds or as it is.
fn whole(value: &str) -> Option<u64> {
    let text = value.trim_matches('"').trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" | "sec" => 1_000,
        "m" | "min" => 60_000,
        "k" => 1_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::{meant, plain};

    #[test]
    fn the_nearest_name_is_suggested_if_any_is_near() {
        assert_eq!(super::hint("spin", ["sp\nine"]), " (did you mean `sp\\nine`?)");
        let names = ["cluster", "controller", "layer", "node"];
        assert_eq!(meant("clutser", names), Some("cluster"));
        assert_eq!(meant("nodes", names), Some("node"));
        assert_eq!(meant("Layer", names), Some("layer"));
        assert_eq!(meant("zebra", names), None);
        assert_eq!(meant("x", []), None);
    }

    #[test]
    fn messages_say_the_wrong_word_and_what_to_write() {
        for (message, key, line, expected) in [
            (
                "invalid type: string \"1s\", expected u64",
                "lease_ms",
                "lease_ms = \"1s\"",
                "\"1s\": write a whole number of milliseconds, without quotes, lease_ms = 1000",
            ),
            (
                "invalid type: string \"10k\", expected usize",
                "objects_max",
                "objects_max = \"10k\"",
                "\"10k\": write a whole number, without quotes, objects_max = 10000",
            ),
            (
                "invalid value: integer `-5`, expected u64",
                "lease_ms",
                "lease_ms = -5",
                "-5: write a whole number of milliseconds that is not negative",
            ),
            (
                "invalid value: integer `70000`, expected u16",
                "threads",
                "threads = 70000",
                "70000: write a whole number, at most 65535",
            ),
            (
                "invalid type: integer `5`, expected a string",
                "name",
                "name = 5",
                "5: write text in quotes, name = \"5\"",
            ),
            (
                "invalid type: map, expected a sequence",
                "",
                "[shim]",
                "write [[shim]] with two pairs of brackets: there may be several",
            ),
            (
                "unknown variant `racks`, expected `rack` or `hash`",
                "partition",
                "partition = \"racks\"",
                "unknown value `racks` (did you mean `rack`?): write \"rack\" or \"hash\"",
            ),
            (
                "unknown field `clutser`, expected one of `cluster`, `tls`",
                "",
                "[clutser]",
                "unknown section `clutser` (did you mean `cluster`?); allowed here: `cluster`, `tls`",
            ),
            ("duplicate key", "name", "name = 1", "`name` is given twice: keep one"),
            ("something else", "k", "k = 1", "something else"),
        ] {
            assert_eq!(plain(message, key, line), expected, "{message}");
        }
    }
}
