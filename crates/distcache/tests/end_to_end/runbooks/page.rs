//! Pages for operators as tests read them: sections, rows, commands, and the words that a member has to say. Not what is true of them.

use std::path::Path;
use std::process::Command;

/// Where the crate lies in the tree that documents and tests are read from.
pub(super) fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) struct Section {
    pub(super) title: String,
    text: String,
}

pub(super) fn page(name: &str) -> String {
    let path = root().join("docs/operating").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn sections() -> Vec<Section> {
    let page = page("runbooks.md");
    let sections = page.split("\n## ").skip(1);
    let section = |text: &str| {
        let (title, text) = text.split_once('\n').expect("a section has text");
        Section { title: title.to_owned(), text: text.to_owned() }
    };
    sections.map(section).collect()
}

pub(super) fn section(title: &str) -> Section {
    let mut found = sections().into_iter().filter(|section| section.title == title);
    found.next().unwrap_or_else(|| panic!("there is no section {title:?}"))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Section {
    /// The first cell of each row, and each point of a list.
    pub(super) fn rows(&self) -> Vec<String> {
        let parts = self.text.split("```");
        let prose = parts.step_by(2).collect::<String>();
        let lines: Vec<&str> = prose.lines().collect();
        let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("|---"));
        let row = |(at, line): (usize, &&str)| {
            if let Some(point) = line.strip_prefix("- ") {
                return Some(point.to_owned());
            }
            let (cell, _) = line.strip_prefix('|')?.split_once('|')?;
            let is_row = !is_rule(Some(line)) && !is_rule(lines.get(at + 1));
            is_row.then(|| cell.trim().to_owned())
        };
        let steps = lines.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        let steps = steps.filter(|line| line.contains(". ")).map(|line| (*line).to_owned());
        lines.iter().enumerate().filter_map(row).chain(steps).collect()
    }

    /// Words that the page quotes, and that somebody has to say.
    pub(super) fn says(&self, words: &'static str) -> &'static str {
        assert!(on_one_line(&self.text).contains(words), "{:?} does not say {words:?}", self.title);
        words
    }

    /// The command between backticks that begins so.
    pub(super) fn command(&self, begin: &str) -> String {
        let text = on_one_line(&self.text);
        let mut commands = text.split('`').filter(|part| part.starts_with(begin));
        commands.next().unwrap_or_else(|| panic!("{:?} has no command {begin:?}", self.title)).to_owned()
    }

    /// The lines of its first block of commands.
    pub(super) fn block(&self) -> Vec<String> {
        let block = self.text.split("```").nth(1).and_then(|block| block.strip_prefix("sh\n"));
        block.expect("a block of commands").lines().map(str::to_owned).collect()
    }
}

/// What a shell says to a command of a page, in which `places` stand for what the page leaves open; its exit code.
pub(super) fn shell(command: &str, places: &[(&str, &str)]) -> (Option<i32>, String) {
    let command = places.iter().fold(command.to_owned(), |text, (word, place)| text.replace(word, place));
    let binary = Path::new(env!("CARGO_BIN_EXE_distcache")).parent().expect("a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(binary.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("a path");
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        shell.env_remove(&name);
    }
    let output = shell.args(["-c", &command]).env("PATH", path).output().expect("a shell");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}
