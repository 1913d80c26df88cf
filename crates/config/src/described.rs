//! The page of all settings (docs/operating/settings.md) against the code: keys, ranges, defaults, what a reload takes. Not
//! whether the meaning is well said.

use super::changes::is_hot;
use super::every_setting::TEXT;
use super::{ByteSize, Config};

const PAGE: &str = "docs/operating/settings.md";

/// Tables that name files, with what they cannot do without.
const TLS: [(&str, &str); 5] = [
    ("[tls.clients]", "certificate_file = \"x\"\nkey_file = \"x\"\n"),
    ("[tls.storage]", "ca_file = \"x\"\n"),
    ("[tls.store]", "ca_file = \"x\"\n"),
    ("[tls.http]", "certificate_file = \"x\"\nkey_file = \"x\"\nca_file = \"x\"\n"),
    ("[tls.peers]", "certificate_file = \"x\"\nkey_file = \"x\"\nca_file = \"x\"\n"),
];

/// A row of the page.
struct Row<'a> {
    section: &'a str,
    key: &'a str,
    takes: &'a str,
    default: &'a str,
    reload: &'a str,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for part in page.split("\n## `").skip(1) {
        let (section, rest) = part.split_once('`').expect("a heading ends");
        for line in rest.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [key, takes, default, reload, meaning] = cells[..] else {
                panic!("{PAGE}: {section}: five columns are wanted: {line}");
            };
            assert!(!meaning.is_empty(), "{PAGE}: {line}: what does it mean?");
            rows.push(Row { section, key: key.trim_matches('`'), takes, default, reload });
        }
    }
    rows
}

/// A configuration that has the section, with `value` for its key or without the key.
fn text(section: &str, key: &str, value: Option<&str>) -> String {
    let tls = TLS.iter().find(|(name, _)| *name == section);
    let whole = tls.map_or(TEXT.to_owned(), |(name, body)| format!("{TEXT}\n{name}\n{body}"));
    let (before, after) = whole.split_once(&format!("{section}\n")).unwrap_or_else(|| {
        panic!("{section}: write it into the configuration of every_setting.rs, so that it can be tried")
    });
    let end = after.find("\n[").map_or(after.len(), |end| end + 1);
    let (body, rest) = after.split_at(end);
    let others = body.lines().filter(|line| !line.starts_with(&format!("{key} =")));
    let own = value.map(|value| format!("{key} = {value}")).into_iter();
    let body: Vec<String> = own.chain(others.map(str::to_owned)).collect();
    format!("{before}{section}\n{}\n{rest}", body.join("\n"))
}

fn error(text: &str) -> String {
    Config::parse(text).err().map(|error| error.to_string()).unwrap_or_default()
}

fn ticked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What a mistake is told to be replaced by: all keys of a section, all words of a setting.
fn allowed(error: &str, marks: &str) -> Option<Vec<String>> {
    let (_, list) = error.split_once(marks)?;
    let mut words: Vec<String> = ticked(list).into_iter().map(str::to_owned).collect();
    words.sort();
    Some(words)
}

fn sorted(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words: Vec<String> = words.collect();
    words.sort();
    words
}

/// `20` or `"1KiB"`.
fn number(text: &str) -> Option<i128> {
    let size = |text: &str| text.parse::<ByteSize>().ok().map(|size| i128::from(size.0));
    text.parse().ok().or_else(|| size(text.strip_prefix('"')?.strip_suffix('"')?))
}

/// What the page says of a range, tried at its ends.
fn range_flaw(row: &Row<'_>, range: &str) -> Option<String> {
    let (least, most) = match range.split_once(" to ") {
        Some((least, most)) => (number(least)?, Some(number(most)?)),
        None => (number(range.strip_suffix(" or more")?)?, None),
    };
    let tried = |value: i128| error(&text(row.section, row.key, Some(&value.to_string())));
    for value in std::iter::once(least).chain(most) {
        let error = tried(value);
        if error.contains(row.key) {
            return Some(format!("{value} is within the page's range and refused: {error}"));
        }
    }
    let beyond = std::iter::once(least - 1).chain(most.map(|most| most + 1));
    let taken = |value: &i128| tried(*value).is_empty();
    beyond.into_iter().find(taken).map(|value| format!("{value} is beyond the page's range and taken"))
}

fn takes_flaw(row: &Row<'_>) -> Option<String> {
    let marks = ticked(row.takes);
    match marks[..] {
        ["true", "false"] => {
            let error = error(&text(row.section, row.key, Some("1")));
            (!error.contains("true or false")).then(|| format!("it is no boolean: {error}"))
        }
        [range] if range.contains(" to ") || range.ends_with(" or more") => range_flaw(row, range),
        _ => {
            let error = error(&text(row.section, row.key, Some("\"no-such-word\"")));
            let (_, list) = error.split_once("unknown value `no-such-word`: write ")?;
            let words = sorted(list.split(" or ").map(|word| word.trim_matches('"').to_owned()));
            let described = sorted(marks.iter().map(|word| word.trim_matches('"').to_owned()));
            (words != described).then(|| format!("it takes {words:?}"))
        }
    }
}

fn default_flaw(row: &Row<'_>) -> Option<String> {
    let without = text(row.section, row.key, None);
    let read = |text: &str| toml::from_str::<Config>(text).map(|config| format!("{config:?}"));
    match row.default {
        "required" => {
            let error = error(&without);
            (!error.contains(row.key)).then(|| format!("it can be left out: {error:?}"))
        }
        // Each member gets its own, so it is left out by all of them.
        default if default.starts_with("assumed") => {
            let error = error(&without);
            (!error.is_empty()).then(|| format!("it cannot be left out: {error}"))
        }
        "–" => read(&without).err().map(|error| format!("it cannot be left out: {error}")),
        _ => {
            let [default] = ticked(row.default)[..] else {
                return Some(format!("{}: one default is wanted, `required`, or –", row.default));
            };
            let with = text(row.section, row.key, Some(default));
            (read(&with) != read(&without)).then(|| format!("{default} is not its default"))
        }
    }
}

fn reload_flaw(row: &Row<'_>) -> Option<String> {
    let name = row.section.trim_matches(['[', ']']);
    let expected = if is_hot(name, row.key) { "yes" } else { "no" };
    (row.reload != expected).then(|| format!("reload: it is `{expected}`"))
}

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_key_of_every_section_has_a_row() {
    let page = page();
    let rows = rows(&page);
    let sections = allowed(&error("no_such_section = 1"), "allowed here: ").expect("the sections are listed");
    let mut flaws = Vec::new();
    for name in sections {
        let forms = [format!("[{name}]"), format!("[[{name}]]"), format!("[{name}.")];
        let described: std::collections::BTreeSet<&str> = rows
            .iter()
            .map(|row| row.section)
            .filter(|section| forms.iter().any(|form| section.starts_with(form.as_str())))
            .collect();
        if described.is_empty() {
            flaws.push(format!("[{name}] has no heading"));
        }
        for section in described {
            let keys = allowed(&error(&text(section, "no_such_key", Some("1"))), "allowed here: ");
            let keys = keys.unwrap_or_else(|| panic!("{section}: its keys are not listed"));
            let own = rows.iter().filter(|row| row.section == section);
            let own = sorted(own.map(|row| row.key.to_owned()));
            let missing = keys.iter().filter(|key| !own.contains(key));
            flaws.extend(missing.map(|key| {
                format!("{section}: write a row `| `{key}` | takes | default | reload | meaning |`")
            }));
            let unknown = own.iter().filter(|key| !keys.contains(key));
            flaws.extend(unknown.map(|key| format!("{section}: there is no key {key}: remove its row")));
        }
    }
    assert!(flaws.is_empty(), "{PAGE}:\n{}", flaws.join("\n"));
    assert!(rows.len() > 100, "{}", rows.len());
}

#[test]
fn ranges_defaults_and_reloads_are_as_described() {
    let page = page();
    let mut flaws = Vec::new();
    for row in rows(&page) {
        let found = [takes_flaw(&row), default_flaw(&row), reload_flaw(&row)];
        flaws.extend(found.into_iter().flatten().map(|flaw| format!("{} {}: {flaw}", row.section, row.key)));
    }
    assert!(flaws.is_empty(), "{PAGE}:\n{}", flaws.join("\n"));
}
