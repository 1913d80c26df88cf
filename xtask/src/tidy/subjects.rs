//! Doc comments name their subject first: no paragraph of one begins with a word that only points at it. Not whether they
//! are true.

use super::Violation;
use super::source::Source;

/// Words that stand for a subject which the reader has to look for.
const POINTERS: [&str; 5] = ["Of", "Those", "They", "Whoever", "None"];

pub(crate) fn check(source: &Source, found: &mut Vec<Violation>) {
    let mut begins = true;
    for (index, text) in source.text.lines().enumerate() {
        let line = index + 1;
        let doc = doc(text).filter(|_| source.is_comment(line, text));
        if let Some(doc) = doc
            && begins
            && let Some(word) = POINTERS.iter().find(|word| begins_with(doc, word))
        {
            let message = format!("a doc line begins with `{word}`: name its subject first");
            found.push(Violation::new(source, line, "subject", message));
        }
        begins = doc.is_none_or(str::is_empty);
    }
}

fn doc(text: &str) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix("///").or_else(|| text.strip_prefix("//!")).map(str::trim)
}

fn begins_with(doc: &str, word: &str) -> bool {
    doc.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rules_of;

    fn rules(text: &str) -> Vec<&'static str> {
        rules_of(super::check, "crates/wire/src/key.rs", text)
    }

    #[test]
    fn doc_lines_name_their_subject() {
        assert_eq!(rules("//! Of keys.\n"), ["subject"]);
        assert_eq!(rules("/// None if there is none.\nfn a() {}\n"), ["subject"]);
        assert_eq!(rules("/// What it is.\n///\n/// They wait.\nfn a() {}\n"), ["subject"]);
        assert_eq!(
            rules("struct A {\n    /// Whoever asks.\n    b: u8,\n    /// Those.\n    c: u8,\n}\n").len(),
            2
        );
    }

    #[test]
    fn other_words_and_lines_within_a_paragraph_do_not_count() {
        assert!(rules("/// What is left\n/// Of it.\nfn a() {}\n").is_empty());
        assert!(rules("/// Often.\n/// `None` if empty.\nfn a() {}\n// Of no doc.\n").is_empty());
        assert!(rules("const A: &str = \"x\n/// Of a string.\n\";\n").is_empty());
    }
}
