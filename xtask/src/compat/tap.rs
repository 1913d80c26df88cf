//! What a script says in the Test Anything Protocol, perl's way to tell of tests. Not what the tests are about.

use super::report::{CaseOutcome, Test};

/// So much of a name is kept: some hold a value of a megabyte.
const NAME_MAX: usize = 80;

/// The tests in their order. Those without a name have their number; lines that tell of a failure follow it, as comments.
pub(super) fn parse(text: &str) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for line in text.lines() {
        if let Some(test) = result(line) {
            tests.push(test);
        } else if let (Some(comment), Some(test)) = (line.strip_prefix('#'), tests.last_mut())
            && test.outcome == CaseOutcome::Failed
        {
            test.detail += comment.trim();
            test.detail.push(' ');
        }
    }
    tests
}

/// One result: `ok 3 - name`, `not ok 3`, `ok 3 # skip reason`.
fn result(line: &str) -> Option<Test> {
    let (passed, rest) = match line.strip_prefix("not ") {
        Some(rest) => (false, rest),
        None => (true, line),
    };
    let rest = rest.strip_prefix("ok ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits);
    if number.is_empty() {
        return None;
    }
    let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
    let skipped = directive.to_ascii_lowercase().starts_with("skip");
    let outcome = match passed {
        true if skipped => CaseOutcome::Skipped,
        true => CaseOutcome::Ok,
        false => CaseOutcome::Failed,
    };
    let name = name.trim().trim_start_matches("- ").trim();
    let name = if name.is_empty() { format!("test {number}") } else { name.chars().take(NAME_MAX).collect() };
    Some(Test { name, outcome, detail: String::new() })
}

#[cfg(test)]
mod tests {
    use super::super::report::CaseOutcome;
    use super::parse;

    #[test]
    fn every_kind_of_line_is_understood() {
        let text = "1..5\nok 1 - stored a - b\nnot ok 2 - got it\n#   Failed test\n#          got: '1'\nok 3\n\
                    # a remark\nok 4 # skip not here\nok 5 # SKIP no\nokay\nok\n    ok 1 - of a part\nnot ok 6\n";
        let tests = parse(text);
        let short: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let (ok, failed, skipped) = (CaseOutcome::Ok, CaseOutcome::Failed, CaseOutcome::Skipped);
        let expected = [
            ("stored a - b", ok),
            ("got it", failed),
            ("test 3", ok),
            ("test 4", skipped),
            ("test 5", skipped),
            ("test 6", failed),
        ];
        assert_eq!(short, expected);
        assert_eq!(tests[1].detail, "Failed test got: '1' ");
    }
}
