//! The README's commands, run as they stand there, in a network of their own. Not what they are about.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A command that says nothing for so long hangs, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Says what is missing, and makes loopback work in a new network.
const PREPARE: &str = "exec 2>&1
command -v redis-server redis-cli ip >/dev/null || echo 'redis-server, redis-cli or ip is missing (make setup)'
command -v redis-server redis-cli ip >/dev/null && ip link set lo up";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("there is a README.md")
}

/// The fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest)).collect()
}

/// A line after `$ `, and the lines that it is said to print.
struct Step<'a> {
    command: &'a str,
    printed: Vec<&'a str>,
}

impl Step<'_> {
    fn is_background(&self) -> bool {
        self.command.ends_with('&')
    }
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in blocks(text, "console").into_iter().flat_map(str::lines) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command, printed: Vec::new() }),
            (None, Some(step)) => step.printed.push(line),
            (None, None) => panic!("README.md: a console block begins with a command: {line}"),
        }
    }
    steps
}

/// Whether some line has the words in this order; `...` stands for any words, and redis-cli quotes on terminals only.
fn is_printed(expected: &str, output: &[String]) -> bool {
    let plain = |text: &str| text.replace('"', "").split_whitespace().collect::<Vec<_>>().join(" ");
    output.iter().any(|line| {
        let line = plain(line);
        let mut rest = line.as_str();
        plain(expected).split("...").map(str::trim).all(|words| match rest.find(words) {
            Some(at) => {
                rest = &rest[at + words.len()..];
                true
            }
            None => false,
        })
    })
}

/// A shell with namespaces of its own: the README's ports are free there, and what it starts ends with it.
struct Shell {
    process: Child,
    lines: Receiver<String>,
    folder: PathBuf,
}

impl Shell {
    /// The reason why the machine does not allow it.
    fn start() -> Result<Shell, String> {
        let folder = std::env::temp_dir().join(format!("distcache-readme-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let binary = Path::new(env!("CARGO_BIN_EXE_distcache")).parent().unwrap_or(Path::new("/"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut process = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "bash"])
            .env("PATH", format!("{}:{path}", binary.display()))
            .env("HOME", &folder)
            .env_remove("XDG_STATE_HOME")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let _ = std::fs::remove_dir(&folder);
                format!("unshare: {error}")
            })?;
        let output = process.stdout.take().ok_or("it has no output")?;
        let (sender, lines) = channel();
        // Ends with the shell.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut shell = Shell { process, lines, folder };
        let (code, output) = shell.run(PREPARE).map_err(|what| {
            let mut said = String::new();
            let errors = shell.process.stderr.take().map(BufReader::new);
            let _ = errors.map(|mut errors| errors.read_line(&mut said));
            format!("{what} {}", said.trim())
        })?;
        if code == 0 { Ok(shell) } else { Err(output.join(" ")) }
    }

    /// The next line that the shell or what it has started prints, if there is one so soon.
    fn line(&mut self, patience: Duration) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the shell has ended".to_owned()),
        }
    }

    /// The exit code, and all that was printed until then.
    fn run(&mut self, command: &str) -> Result<(i32, Vec<String>), String> {
        const END: &str = "<end of the command> ";
        let input = self.process.stdin.as_mut().ok_or("it has no input")?;
        writeln!(input, "{command}\necho \"{END}$?\"").map_err(|error| error.to_string())?;
        let mut output = Vec::new();
        loop {
            let line = self.line(PATIENCE)?.ok_or_else(|| format!("it hangs after {output:#?}"))?;
            match line.strip_prefix(END) {
                Some(code) => return Ok((code.parse().map_err(|_| line.clone())?, output)),
                None => output.push(line),
            }
        }
    }

    /// Waits for a line of the last command that runs in the background, as long as it runs.
    fn await_line(&mut self, expected: &str, output: &mut Vec<String>) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut ended = false;
        while !is_printed(expected, output) {
            match self.line(Duration::from_secs(1))? {
                Some(line) => output.push(line),
                None if ended => return Err("it has ended".to_owned()),
                None if Instant::now() > deadline => return Err("it hangs".to_owned()),
                // What it has said last comes before this.
                None => {
                    let (code, lines) = self.run("kill -0 $! 2>/dev/null")?;
                    output.extend(lines);
                    ended = code != 0;
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, step: &Step<'_>) {
        let at = format!("README.md: $ {}", step.command);
        let run = |shell: &mut Shell| shell.run(step.command).unwrap_or_else(|what| panic!("{at}: {what}"));
        let (mut code, mut output) = run(self);
        // What it shows are the last seconds, in which a busy machine may have served nobody: one looks again.
        let deadline = Instant::now() + PATIENCE;
        let shows_now = step.command.starts_with("distcache top");
        while shows_now
            && !step.printed.iter().all(|line| is_printed(line, &output))
            && Instant::now() < deadline
        {
            (code, output) = run(self);
        }
        assert_eq!(code, 0, "{at}: {output:#?}");
        for expected in &step.printed {
            if step.is_background() {
                let waited = self.await_line(expected, &mut output);
                waited.unwrap_or_else(|what| panic!("{at}: {what}: {output:#?}"));
            }
            assert!(is_printed(expected, &output), "{at}: {expected:?} is not in {output:#?}");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The first process of its namespace: all others end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_the_readme_shows_happens() {
    let text = readme();
    let steps = steps(&text);
    assert!(steps.len() > 5, "{}", steps.len());
    let mut shell = match Shell::start() {
        Ok(shell) => shell,
        Err(why) => {
            let stderr = std::io::stderr();
            drop(writeln!(stderr.lock(), "SKIPPED: the README is run in a network of its own: {why}"));
            return;
        }
    };
    steps.iter().for_each(|step| shell.check(step));
}

/// Targets that build cannot run within a test; make knows at least what they would run.
#[test]
fn the_readme_s_targets_of_make_exist() {
    let text = readme();
    let lines = blocks(&text, "sh").into_iter().flat_map(str::lines);
    let targets: Vec<&str> =
        lines.filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect();
    assert_eq!(targets, ["demo", "test"]);
    for target in targets {
        let output = Command::new("make").args(["--dry-run", target]).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "make {target}: {output:?}");
    }
}

#[test]
fn expectations_are_told_from_output() {
    let output = ["errors                 0".to_owned(), "\"hello\"".to_owned(), "a b c d".to_owned()];
    for yes in ["errors 0", "hello", "\"hello\"", "a ... c", "... d", "..."] {
        assert!(is_printed(yes, &output), "{yes}");
    }
    for no in ["errors 1", "c ... a", "b hello"] {
        assert!(!is_printed(no, &output), "{no}");
    }
}
