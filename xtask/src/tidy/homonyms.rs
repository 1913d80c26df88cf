//! How many types share their name with another one of the workspace. Not whether a name is good: that is `names`.

use std::collections::BTreeMap;

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Types, in thousandths of all, whose name another type has too. Falls whenever the tree allows it and never rises.
const SHARED_MAX: usize = 80;
/// Names that a violation mentions.
const NAMED_MAX: usize = 10;

/// Where types of each name are defined outside of tests.
#[derive(Default)]
pub(crate) struct Homonyms {
    types: BTreeMap<String, usize>,
}

impl Homonyms {
    pub(crate) fn see(&mut self, source: &Source) {
        if !source.crate_name.is_empty() && source.path.contains("/src/") && !source.test_file {
            TypeNames { source, types: &mut self.types }.visit_file(&source.file);
        }
    }

    pub(crate) fn check(&self, found: &mut Vec<Violation>) {
        self.check_against(SHARED_MAX, found);
    }

    fn check_against(&self, shared_max: usize, found: &mut Vec<Violation>) {
        let all: usize = self.types.values().sum();
        let mut shared: Vec<(&String, usize)> =
            self.types.iter().map(|(name, count)| (name, *count)).filter(|(_, count)| *count > 1).collect();
        let thousandths = shared.iter().map(|(_, count)| count).sum::<usize>() * 1000 / all.max(1);
        if thousandths > shared_max {
            shared.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let names: Vec<&str> = shared.iter().take(NAMED_MAX).map(|(name, _)| name.as_str()).collect();
            let message = format!(
                "{thousandths} thousandths of the types share their name with another, at most {shared_max}: \
                 qualify the new one ({} and others)",
                names.join(", ")
            );
            found.push(Violation { path: "crates".to_owned(), line: 0, rule: "shared-name", message });
        }
    }
}

struct TypeNames<'a> {
    source: &'a Source,
    types: &'a mut BTreeMap<String, usize>,
}

impl TypeNames<'_> {
    fn define(&mut self, name: &syn::Ident) {
        if !self.source.in_tests(name.span().start().line) {
            *self.types.entry(name.to_string()).or_default() += 1;
        }
    }
}

impl<'ast> Visit<'ast> for TypeNames<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
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

    fn homonyms(files: &[(&str, &str)]) -> Homonyms {
        let mut homonyms = Homonyms::default();
        for (path, text) in files {
            homonyms.see(&Source::parse(path, text).expect("the sample parses"));
        }
        homonyms
    }

    #[test]
    fn types_that_share_a_name_are_counted() {
        let tree = homonyms(&[
            ("crates/wire/src/key.rs", "struct Key; enum Row {}"),
            ("crates/lab/src/key.rs", "type Key = u8; trait Unit {}"),
        ]);
        let mut found = Vec::new();
        tree.check_against(500, &mut found);
        assert!(found.is_empty());
        tree.check_against(499, &mut found);
        assert!(found.len() == 1 && found[0].to_string().contains("(Key and others)"), "{}", found[0]);
    }

    #[test]
    fn tests_and_associated_types_do_not_count() {
        let tree = homonyms(&[
            ("crates/wire/src/key.rs", "struct Key;\n#[cfg(test)]\nmod tests { struct Key; }"),
            ("crates/wire/tests/key.rs", "struct Key;"),
            ("crates/wire/src/name.rs", "impl Iterator for Key { type Item = u8; }\ntrait Item {}"),
        ]);
        let mut found = Vec::new();
        tree.check_against(0, &mut found);
        assert!(found.is_empty());
    }
}
