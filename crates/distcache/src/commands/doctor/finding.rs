//! What the doctor has found: good, doubtful or wrong, and what to do. Not how it was found.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warning,
    Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DoctorFinding {
    pub(super) level: Level,
    /// A member, its storage, or this machine.
    pub(super) subject: String,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct DoctorFindings(pub(super) Vec<DoctorFinding>);

impl DoctorFindings {
    pub(super) fn good(&mut self, subject: &str, what: &str) {
        self.add(Level::Ok, subject, what, None);
    }

    pub(super) fn doubt(&mut self, subject: &str, what: &str, advice: &str) {
        self.add(Level::Warning, subject, what, Some(advice));
    }

    pub(super) fn wrong(&mut self, subject: &str, what: &str, advice: &str) {
        self.add(Level::Wrong, subject, what, Some(advice));
    }

    fn add(&mut self, level: Level, subject: &str, what: &str, advice: Option<&str>) {
        let (subject, what) = (subject.to_owned(), what.to_owned());
        self.0.push(DoctorFinding { level, subject, what, advice: advice.map(str::to_owned) });
    }

    pub(super) fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }

    /// A line for each, with what to do below it, and a last one that counts.
    pub(super) fn report(&self) -> String {
        let mut lines = Vec::new();
        for DoctorFinding { level, subject, what, advice } in &self.0 {
            let word = match level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Wrong => "WRONG  ",
            };
            lines.push(format!("{word}  {subject}: {what}"));
            lines.extend(advice.as_ref().map(|advice| format!("           do: {advice}")));
        }
        let (wrong, warnings) = (self.count(Level::Wrong), self.count(Level::Warning));
        lines.push(format!("{wrong} wrong, {warnings} warnings, {} ok", self.count(Level::Ok)));
        lines.join("\n")
    }
}
