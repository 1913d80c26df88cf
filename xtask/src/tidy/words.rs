//! The words that `docs/style.md` marks are in no name of a type, module or file. Whether a word fits is for people to check.

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Stands before each word of the table's last column that is checked.
const MARK: &str = "✓ ";

/// What things are called here, and never.
pub(crate) struct Glossary {
    refused: Vec<Refused>,
}

struct Refused {
    word: String,
    /// Words of the same row that say it.
    instead: String,
}

impl Glossary {
    /// Reads the rows `| word | meaning | ✓ never called, .. |` of a page.
    ///
    /// # Errors
    /// The page marks no words: then nothing would be checked.
    pub(crate) fn read(page: &str) -> anyhow::Result<Glossary> {
        let mut refused = Vec::new();
        for line in page.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let ["", instead, _, never, ""] = cells[..] else { continue };
            let marked = never.split([',', ';']).filter_map(|word| word.trim().strip_prefix(MARK));
            refused.extend(marked.map(|word| Refused { word: word.to_owned(), instead: instead.to_owned() }));
        }
        anyhow::ensure!(!refused.is_empty(), "docs/style.md marks no words as refused");
        Ok(Glossary { refused })
    }

    pub(crate) fn check(&self, source: &Source, found: &mut Vec<Violation>) {
        for part in source.path.trim_end_matches(".rs").split('/') {
            self.name(source, 1, part, found);
        }
        DefinedWords { glossary: self, source, found }.visit_file(&source.file);
    }

    fn name(&self, source: &Source, line: usize, name: &str, found: &mut Vec<Violation>) {
        for word in words(name) {
            if let Some(Refused { instead, .. }) = self.refused.iter().find(|refused| refused.word == word) {
                let message = format!("`{name}`: `{word}` is called {instead} here; see docs/style.md");
                found.push(Violation::new(source, line, "word", message));
            }
        }
    }
}

/// The words of `CamelCase` and `snake_case`, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut begins = true;
    for letter in name.chars() {
        if !letter.is_alphanumeric() {
            begins = true;
            continue;
        }
        match words.last_mut().filter(|_| !begins && !letter.is_uppercase()) {
            Some(word) => word.push(letter),
            None => words.push(letter.to_lowercase().collect()),
        }
        begins = false;
    }
    words
}

struct DefinedWords<'a> {
    glossary: &'a Glossary,
    source: &'a Source,
    found: &'a mut Vec<Violation>,
}

impl DefinedWords<'_> {
    fn define(&mut self, name: &syn::Ident) {
        let line = name.span().start().line;
        self.glossary.name(self.source, line, &name.to_string(), self.found);
    }
}

impl<'ast> Visit<'ast> for DefinedWords<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // A module in a file of its own is refused there.
        if item.content.is_some() {
            self.define(&item.ident);
        }
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| word | meaning | never called |\n|---|---|---|\n\
         | rack | servers | ✓ zone, group |\n| discovery | asking | ✓ scout, ✓ inbox; *segment* |\n";

    fn messages(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(path, text).expect("the sample parses");
        let mut found = Vec::new();
        Glossary::read(PAGE).expect("a table").check(&source, &mut found);
        found.into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn marked_words_are_refused_in_names_of_types_modules_and_files() {
        for (path, text) in [
            ("crates/wire/src/zone.rs", ""),
            ("crates/wire/src/key.rs", "struct ZoneMap;"),
            ("crates/wire/src/key.rs", "enum LeafZone {}"),
            ("crates/wire/src/key.rs", "type Zone = u8;"),
            ("crates/wire/src/key.rs", "trait InZone {}"),
            ("crates/wire/src/key.rs", "mod a { mod zone { } }"),
        ] {
            let found = messages(path, text);
            assert!(found.len() == 1 && found[0].contains("is called rack here"), "{path} {text}: {found:?}");
        }
        assert!(messages("crates/wire/src/scout/inbox.rs", "")[1].contains("is called discovery here"));
    }

    #[test]
    fn other_words_are_not() {
        let text =
            "struct Group;\nstruct Zoned;\nstruct Segment;\nfn zone() {}\nconst ZONE: u8 = 1;\nmod scout;";
        assert_eq!(messages("crates/wire/src/key.rs", text), [""; 0]);
    }

    #[test]
    fn a_page_without_marks_is_an_error() {
        assert!(Glossary::read("| rack | servers | zone |\n").is_err());
    }

    #[test]
    fn names_are_cut_into_words() {
        assert_eq!(words("NodeHotnessMap"), ["node", "hotness", "map"]);
        assert_eq!(words("read_hotness2"), ["read", "hotness2"]);
    }
}
