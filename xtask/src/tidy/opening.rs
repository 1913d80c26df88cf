//! The sentence that opens every Rust file: what it is and what it is not. Not whether it is true.

use super::Violation;
use super::source::Source;

pub(crate) fn check(source: &Source, found: &mut Vec<Violation>) {
    let opening: Vec<&str> = source.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let paragraph: Vec<&str> =
        opening.into_iter().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    if paragraph.is_empty() {
        let message = "must open with a `//!` sentence: what it is and what it is not";
        found.push(Violation::new(source, 1, "opening", message));
    } else if !ends_a_sentence(&paragraph) {
        found.push(Violation::new(source, 1, "opening", "the opening sentence must end with a full stop"));
    }
}

fn ends_a_sentence(paragraph: &str) -> bool {
    paragraph.ends_with('.') || paragraph.ends_with(".)")
}

#[cfg(test)]
mod tests {
    use super::super::tests::rules_of;

    fn rules(text: &str) -> Vec<&'static str> {
        rules_of(super::check, "crates/wire/src/key.rs", text)
    }

    #[test]
    fn a_file_opens_with_a_sentence() {
        assert_eq!(rules("use std::fmt;\n"), ["opening"]);
        assert_eq!(rules("// Plain comment.\nuse std::fmt;\n"), ["opening"]);
        assert_eq!(rules("\n//! Late.\n"), ["opening"]);
        assert_eq!(rules("//!\n//! After a gap.\n"), ["opening"]);
        assert!(rules("//! What it is. Not what it is not.\n").is_empty());
    }

    #[test]
    fn the_sentence_ends() {
        assert_eq!(rules("//! What it is\nuse std::fmt;\n"), ["opening"]);
        assert_eq!(rules("//! What it is\n//!\n//! More.\n"), ["opening"]);
        assert!(rules("//! What it is\n//! and what it is not.\n//!\n//! * more\n").is_empty());
    }
}
