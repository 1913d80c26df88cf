//! The independent checker: a small Go program around porcupine, built here and fed with histories.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::operation::{JepsenHistory, Record};

/// Debian's, and that of golang.org; neither is in every PATH.
const GO: [&str; 3] = ["go", "/usr/local/go/bin/go", "/usr/lib/go-1.19/bin/go"];

#[derive(Serialize)]
struct PorcupineQuestion<'a> {
    id: u64,
    key: &'a str,
    operations: Vec<Record<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct PorcupineAnswer {
    pub(super) id: u64,
    pub(super) verdict: Judgement,
    /// The visualisation of a violation.
    #[serde(default)]
    pub(super) picture: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Judgement {
    Linearizable,
    Violation,
    Undecided,
}

/// Takes questions; ends with its input.
pub(super) struct Porcupine {
    child: Child,
    input: ChildStdin,
}

pub(super) struct PorcupineAnswers(std::io::Lines<BufReader<ChildStdout>>);

/// Builds the program into `target`.
pub(super) fn build(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let go =
        GO.iter().find(|go| Command::new(go).arg("version").output().is_ok_and(|out| out.status.success()));
    let go = go.context("there is no Go toolchain: run `cargo xtask setup`")?;
    let program = target.join("porcupine");
    let mut command = Command::new(go);
    command.args(["build", "-o"]).arg(&program).arg(".").current_dir(root.join("xtask/porcupine"));
    // What is installed must do: no other toolchain is fetched, and no C compiler is needed.
    command
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false -mod=readonly");
    let output = command.output().context("starting go")?;
    ensure!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

impl Porcupine {
    /// Visualisations of violations go to `pictures`.
    pub(super) fn start(program: &Path, pictures: &Path) -> anyhow::Result<(Porcupine, PorcupineAnswers)> {
        let mut command = Command::new(program);
        command.arg("-pictures").arg(pictures).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let input = child.stdin.take().context("its input is piped")?;
        let output = child.stdout.take().context("its output is piped")?;
        Ok((Porcupine { child, input }, PorcupineAnswers(BufReader::new(output).lines())))
    }

    pub(super) fn ask(&mut self, history: &JepsenHistory) -> anyhow::Result<()> {
        let operations = history.operations.iter().map(Record::from).collect();
        let question = PorcupineQuestion { id: history.id, key: &history.key, operations };
        let mut line = serde_json::to_vec(&question)?;
        line.push(b'\n');
        self.input.write_all(&line).context("porcupine has ended")
    }

    /// No further questions; what was asked is still answered.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let Porcupine { mut child, input } = self;
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "porcupine ended with {status}");
        Ok(())
    }
}

impl Iterator for PorcupineAnswers {
    type Item = anyhow::Result<PorcupineAnswer>;

    fn next(&mut self) -> Option<anyhow::Result<PorcupineAnswer>> {
        let line = self.0.next()?.map_err(anyhow::Error::from);
        Some(line.and_then(|line| Ok(serde_json::from_str(&line)?)))
    }
}

/// Asks about histories whose verdicts are known.
pub(super) fn calibrate(program: &Path, samples: &[(JepsenHistory, bool)]) -> anyhow::Result<()> {
    let folder = crate::cluster::Folder::new("samples")?;
    let (mut porcupine, answers) = Porcupine::start(program, folder.path())?;
    for (history, _) in samples {
        porcupine.ask(history)?;
    }
    let asked = std::thread::spawn(move || porcupine.finish());
    let answers: HashMap<u64, PorcupineAnswer> =
        answers.map(|answer| answer.map(|answer| (answer.id, answer))).collect::<anyhow::Result<_>>()?;
    ensure!(asked.join().is_ok_and(|ended| ended.is_ok()), "porcupine failed on samples");
    for (history, linearizable) in samples {
        let answer = answers.get(&history.id).context("porcupine left a sample unanswered")?;
        let expected = if *linearizable { Judgement::Linearizable } else { Judgement::Violation };
        ensure!(answer.verdict == expected, "porcupine says {:?} of\n{}", answer.verdict, history.text(&[]));
    }
    Ok(())
}
