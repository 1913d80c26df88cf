//! How many functions of a crate take many parameters. Not which ones: some are as they are for a reason.

use std::collections::BTreeMap;

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// So many are many, the receiver counted and each name in brackets by itself.
const MANY: usize = 5;
/// Functions that take many, in hundredths of a crate's. The best cache libraries have half of it.
const SHARE_PERCENT_MAX: usize = 3;
/// Functions that a violation mentions.
const NAMED_MAX: usize = 10;

/// The functions of each crate outside of tests.
#[derive(Default)]
pub(crate) struct Parameters {
    crates: BTreeMap<String, CrateFunctions>,
}

#[derive(Default)]
struct CrateFunctions {
    all: usize,
    /// How many parameters each takes that takes many, and where it stands.
    many: Vec<(usize, String)>,
}

impl Parameters {
    pub(crate) fn see(&mut self, source: &Source) {
        if !source.crate_name.is_empty() && source.path.contains("/src/") && !source.test_file {
            let functions = self.crates.entry(source.crate_name.clone()).or_default();
            Signatures { source, functions }.visit_file(&source.file);
        }
    }

    pub(crate) fn check(&self, found: &mut Vec<Violation>) {
        for (name, CrateFunctions { all, many }) in &self.crates {
            if many.len() * 100 <= all * SHARE_PERCENT_MAX {
                continue;
            }
            let mut longest: Vec<&(usize, String)> = many.iter().collect();
            longest.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
            let shown: Vec<String> = longest
                .iter()
                .take(NAMED_MAX)
                .map(|(count, place)| format!("{place} takes {count}"))
                .collect();
            let message = format!(
                "{} of {all} functions take {MANY} or more parameters, self counted, at most {SHARE_PERCENT_MAX} %: \
                 name what belongs together and hand it over as one, hand the step through where all need it, or move \
                 the function to the type whose data it takes ({})",
                many.len(),
                shown.join(", ")
            );
            found.push(Violation { path: name.clone(), line: 0, rule: "many-parameters", message });
        }
    }
}

struct Signatures<'a> {
    source: &'a Source,
    functions: &'a mut CrateFunctions,
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let line = signature.ident.span().start().line;
        if self.source.in_tests(line) {
            return;
        }
        self.functions.all += 1;
        let count = signature.inputs.iter().map(names).sum();
        if count >= MANY {
            let place = format!("{}:{line} `{}`", self.source.path, signature.ident);
            self.functions.many.push((count, place));
        }
    }
}

/// What is packed into brackets is as many things to a reader as it is without them.
fn names(input: &syn::FnArg) -> usize {
    match input {
        syn::FnArg::Typed(typed) => match &*typed.pat {
            syn::Pat::Tuple(tuple) => tuple.elems.len(),
            _ => 1,
        },
        syn::FnArg::Receiver(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message about a crate with these functions, if there is one.
    fn message(path: &str, text: &str) -> Option<String> {
        let mut parameters = Parameters::default();
        parameters.see(&Source::parse(path, text).expect("the sample parses"));
        let mut found = Vec::new();
        parameters.check(&mut found);
        assert!(found.iter().all(|violation| violation.rule == "many-parameters"));
        found.pop().map(|violation| violation.to_string())
    }

    fn crate_of(few: usize, many: &str) -> String {
        let few: String = (0..few).map(|index| format!("fn few_{index}(a: u8) {{}}\n")).collect();
        few + many
    }

    const MANY: &str = "struct A;\nimpl A {\n    fn many(&self, a: u8, b: u8, c: u8, d: u8) {}\n}\n";
    const PATH: &str = "crates/wire/src/key.rs";

    #[test]
    fn an_excess_is_refused_with_its_places() {
        let message = message(PATH, &crate_of(32, MANY)).expect("1 of 33 is more than 3 %");
        assert!(message.starts_with("wire: many-parameters: 1 of 33 functions"), "{message}");
        assert!(message.contains("crates/wire/src/key.rs:35 `many` takes 5"), "{message}");
    }

    #[test]
    fn some_are_allowed_where_there_are_many_others() {
        assert_eq!(message(PATH, &crate_of(33, MANY)), None);
        assert!(message(PATH, MANY).is_some(), "a small crate has none");
    }

    #[test]
    fn brackets_hide_nothing_and_declarations_count() {
        assert!(message(PATH, "fn packed((a, b): (u8, u8), (c, d): (u8, u8), e: u8) {}").is_some());
        assert!(message(PATH, "trait A { fn many(&self, a: u8, b: u8, c: u8, d: u8); }").is_some());
        assert_eq!(
            message(PATH, "fn range(of: (u8, u8), a: u8, b: u8, c: u8) {}"),
            None,
            "one thing with one name"
        );
    }

    #[test]
    fn tests_and_other_folders_do_not_count() {
        assert_eq!(message(PATH, &format!("#[cfg(test)]\nmod tests {{\n{MANY}}}\n")), None);
        assert_eq!(message("crates/wire/tests/key.rs", MANY), None);
    }
}
