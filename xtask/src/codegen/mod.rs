//! Writes what is generated: the command table, from what a real Redis says about its commands, and the page about them.

mod compatibility;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use wire::resp::{self, Value};

use crate::replies::ReplyConnection;

const TABLE: &str = "crates/commands/src/table.rs";

/// Writes the command table and the page about it, or with `check` fails when a written one is stale.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let changed = write_table(check)?;
    // The page tells what this program was built with.
    ensure!(!changed, "{TABLE} has changed: run `cargo xtask codegen` once more for {}", compatibility::PAGE);
    let (path, page) = (crate::root().join(compatibility::PAGE), compatibility::page(crate::root())?);
    if check {
        let fresh = std::fs::read_to_string(&path).is_ok_and(|written| written == page);
        ensure!(fresh, "{} is stale: run `cargo xtask codegen` and commit the result", compatibility::PAGE);
        return Ok(());
    }
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// Tables of different Redis versions differ by right: a check against another version says so and passes.
fn write_table(check: bool) -> anyhow::Result<bool> {
    let path = crate::root().join(TABLE);
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let mut server = CodegenServer::start()?;
    let version = server.version()?;
    let generated = table(&mut server, &version)?;
    if !check {
        std::fs::write(&path, &generated).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{TABLE}: the commands of Redis {version}");
        return Ok(generated != written);
    }
    if !written.contains(&version_line(&version)) {
        println!("{TABLE}: not checked, it was made from another version than the installed Redis {version}");
        return Ok(false);
    }
    ensure!(written == generated, "{TABLE} is stale: run `cargo xtask codegen` and commit the result");
    Ok(false)
}

/// A redis-server of our own on a Unix socket in a folder of our own.
struct CodegenServer {
    process: Child,
    connection: ReplyConnection<UnixStream>,
    folder: PathBuf,
}

impl CodegenServer {
    fn start() -> anyhow::Result<CodegenServer> {
        let folder = std::env::temp_dir().join(format!("distcache-codegen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let socket = folder.join("redis.sock");
        let mut process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start redis-server: `cargo xtask setup` installs it")?;
        let connection = ready(&mut process).and_then(|()| {
            UnixStream::connect(&socket).with_context(|| format!("cannot connect to {}", socket.display()))
        });
        match connection {
            Ok(stream) => Ok(CodegenServer { process, connection: ReplyConnection::new(stream), folder }),
            Err(error) => {
                stop(&mut process, &folder);
                Err(error)
            }
        }
    }

    fn ask(&mut self, args: &[&str]) -> anyhow::Result<Value> {
        self.connection.send(resp::Command::from_args(args).frame())?;
        self.connection.receive().with_context(|| format!("redis-server does not answer {args:?}"))
    }

    fn version(&mut self) -> anyhow::Result<String> {
        let info = self.ask(&["INFO", "server"])?;
        let info = text(&info)?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.context("INFO names no redis_version")?.to_owned())
    }
}

impl Drop for CodegenServer {
    fn drop(&mut self) {
        stop(&mut self.process, &self.folder);
    }
}

fn ready(process: &mut Child) -> anyhow::Result<()> {
    let output = process.stdout.take().context("redis-server has no output")?;
    for line in BufReader::new(output).lines() {
        if line?.contains("ready to accept connections at") {
            return Ok(());
        }
    }
    bail!("redis-server ended before it was ready")
}

/// There is nothing better to do than to go on when this fails.
fn stop(process: &mut Child, folder: &Path) {
    let _ = process.kill();
    let _ = process.wait();
    let _ = std::fs::remove_dir_all(folder);
}

fn version_line(version: &str) -> String {
    format!("pub const REDIS_VERSION: &str = \"{version}\";")
}

fn table(server: &mut CodegenServer, version: &str) -> anyhow::Result<String> {
    let groups = Groups::read(&server.ask(&["COMMAND", "DOCS"])?)?;
    let commands = entries(&server.ask(&["COMMAND"])?)?;
    ensure!(commands.len() > 200, "COMMAND names {} commands only", commands.len());
    let mut out = String::from(
        "//! Generated by `cargo xtask codegen`: what Redis says about its commands. Never edited by hand.\n\n\
         use super::entry::{command, count, keys, range};\n\
         use super::spec::Begin::{Index, Keyword, Unknown};\n\
         use super::spec::Category as Of;\n\
         use super::spec::CommandGroup;\n\
         use super::spec::CommandSpec;\n\
         use super::spec::Find;\n\
         use super::spec::Flag::*;\n\
         use super::spec::KeyFlag::*;\n\
         use super::spec::Tip::*;\n\n\
         /// The version whose commands these are.\n",
    );
    writeln!(out, "{}\n", version_line(version))?;
    out.push_str("/// Sorted by name.\n#[rustfmt::skip]\npub(super) static TABLE: &[CommandSpec] = &[\n");
    let mut table = TableWriter { groups: &groups, number: 0, out };
    for command in &commands {
        table.write(command, "    ")?;
    }
    let TableWriter { number, mut out, .. } = table;
    out.push_str("];\n\n/// With all subcommands.\n");
    writeln!(out, "pub(crate) const COMMANDS_COUNT: usize = {number};")?;
    Ok(out)
}

/// The group of every command and subcommand, by its full name.
struct Groups(std::collections::BTreeMap<String, String>);

impl Groups {
    fn read(docs: &Value) -> anyhow::Result<Groups> {
        let mut groups = Groups(std::collections::BTreeMap::new());
        groups.add(docs)?;
        Ok(groups)
    }

    fn add(&mut self, docs: &Value) -> anyhow::Result<()> {
        for (name, doc) in pairs(docs)? {
            for (field, value) in pairs(doc)? {
                match field {
                    "group" => drop(self.0.insert(name.to_owned(), text(value)?.to_owned())),
                    "subcommands" => self.add(value)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// One element of the reply to COMMAND.
struct CommandEntry {
    name: String,
    arity: i64,
    flags: Vec<String>,
    tips: Vec<String>,
    categories: Vec<String>,
    keys: Vec<String>,
    subcommands: Vec<CommandEntry>,
}

fn entries(reply: &Value) -> anyhow::Result<Vec<CommandEntry>> {
    let mut entries = list(reply)?.iter().map(CommandEntry::read).collect::<anyhow::Result<Vec<_>>>()?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

impl CommandEntry {
    fn read(reply: &Value) -> anyhow::Result<CommandEntry> {
        let [name, Value::Integer(arity), flags, _, _, _, categories, tips, keys, subcommands] = list(reply)?
        else {
            bail!("COMMAND describes a command in other terms than Redis 7 does: {reply:?}");
        };
        let name = text(name)?.to_owned();
        ensure!(
            name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'),
            "odd name {name}"
        );
        let key_specs = list(keys)?.iter().map(key_spec).collect::<anyhow::Result<_>>();
        Ok(CommandEntry {
            arity: *arity,
            flags: list(flags)?.iter().map(variant).collect::<anyhow::Result<_>>()?,
            tips: list(tips)?.iter().map(tip).collect::<anyhow::Result<_>>()?,
            categories: list(categories)?.iter().map(category).collect::<anyhow::Result<_>>()?,
            keys: key_specs.with_context(|| format!("the keys of {name}"))?,
            subcommands: entries(subcommands)?,
            name,
        })
    }
}

/// Writes the table's lines.
struct TableWriter<'a> {
    groups: &'a Groups,
    /// Commands and subcommands written so far.
    number: usize,
    out: String,
}

impl TableWriter<'_> {
    fn write(&mut self, command: &CommandEntry, indent: &str) -> anyhow::Result<()> {
        let name = &command.name;
        let number = self.number;
        let group = self.groups.0.get(name).with_context(|| format!("{name} has no group"))?;
        let (arity, group) = (command.arity, camel(group));
        write!(self.out, "{indent}command({number}, \"{name}\", {arity}, CommandGroup::{group})")?;
        let lists = [
            ("flags", &command.flags),
            ("tips", &command.tips),
            ("categories", &command.categories),
            ("keys", &command.keys),
        ];
        for (part, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(self.out, ".{part}(&[{}])", list.join(", "))?;
        }
        self.number += 1;
        if !command.subcommands.is_empty() {
            self.out.push_str(".subcommands(&[\n");
            for subcommand in &command.subcommands {
                self.write(subcommand, &format!("{indent}    "))?;
            }
            write!(self.out, "{indent}])")?;
        }
        self.out.push_str(",\n");
        Ok(())
    }
}

fn key_spec(reply: &Value) -> anyhow::Result<String> {
    let mut flags = Vec::new();
    let (mut begin, mut find) = (None, None);
    for (field, value) in pairs(reply)? {
        match field {
            "flags" => flags = list(value)?.iter().map(variant).collect::<anyhow::Result<_>>()?,
            "begin_search" => begin = Some(search(value)?),
            "find_keys" => find = Some(search(value)?),
            _ => {}
        }
    }
    let (begin, find) = begin.zip(find).context("no begin_search or no find_keys")?;
    let number = |(_, fields): &KeySearch<'_>, name: &str| -> anyhow::Result<i64> {
        match fields.iter().find(|(field, _)| *field == name) {
            Some((_, Value::Integer(number))) => Ok(*number),
            _ => bail!("no number {name}"),
        }
    };
    let begin = match begin.0 {
        "index" => format!("Index({})", number(&begin, "index")?),
        "keyword" => {
            let word = begin.1.iter().find(|(field, _)| *field == "keyword").context("no keyword")?;
            let from = number(&begin, "startfrom")?;
            // None does today but MIGRATE, which is refused: a search from the end is not worth its code.
            if from > 0 { format!("Keyword(\"{}\", {from})", text(word.1)?) } else { "Unknown".to_owned() }
        }
        "unknown" => "Unknown".to_owned(),
        other => bail!("unknown begin_search {other}"),
    };
    let find = match find.0 {
        "range" => {
            let (last, step) = (number(&find, "lastkey")?, number(&find, "keystep")?);
            format!("range({last}, {step}, {})", number(&find, "limit")?)
        }
        "keynum" => {
            let (count, first) = (number(&find, "keynumidx")?, number(&find, "firstkey")?);
            format!("count({count}, {first}, {})", number(&find, "keystep")?)
        }
        "unknown" => "Find::Unknown".to_owned(),
        other => bail!("unknown find_keys {other}"),
    };
    Ok(format!("keys(&[{}], {begin}, {find})", flags.join(", ")))
}

/// A kind of search and its parameters.
type KeySearch<'a> = (&'a str, Vec<(&'a str, &'a Value)>);

fn search(reply: &Value) -> anyhow::Result<KeySearch<'_>> {
    let fields = pairs(reply)?;
    let field = |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
    let kind = text(field("type").context("a search without a type")?)?;
    Ok((kind, pairs(field("spec").context("a search without a spec")?)?))
}

/// `request_policy:all_shards` becomes `RequestAllShards`; tips are free text, so unknown ones are an error.
fn tip(reply: &Value) -> anyhow::Result<String> {
    Ok(camel(&text(reply)?.replace("_policy:", "_")))
}

/// `@sortedset` becomes `Of::Sortedset`; a category of another version that is unknown here is an error.
fn category(reply: &Value) -> anyhow::Result<String> {
    let name = text(reply)?;
    Ok(format!("Of::{}", camel(name.strip_prefix('@').with_context(|| format!("odd category {name}"))?)))
}

fn variant(reply: &Value) -> anyhow::Result<String> {
    Ok(camel(text(reply)?))
}

/// The name of an enum's member: words are parted by `_` or `-`, and upper case is not kept.
fn camel(text: &str) -> String {
    let mut out = String::new();
    for word in text.split(['_', '-']) {
        let (head, tail) = word.split_at(word.len().min(1));
        out.push_str(&head.to_uppercase());
        out.push_str(&tail.to_lowercase());
    }
    out
}

fn list(value: &Value) -> anyhow::Result<&[Value]> {
    value.elements().with_context(|| format!("not an array: {value:?}"))
}

/// RESP2's flat form of a map whose keys are strings.
fn pairs(value: &Value) -> anyhow::Result<Vec<(&str, &Value)>> {
    list(value)?.chunks(2).map(|pair| Ok((text(&pair[0])?, pair.get(1).context("a key alone")?))).collect()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    let bytes = value.bytes().with_context(|| format!("not a string: {value:?}"))?;
    Ok(std::str::from_utf8(bytes)?)
}
