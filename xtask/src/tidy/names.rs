//! Names that say nothing: of crates, modules, files and types. Not which word a concept has: that is `words`.

use std::collections::BTreeSet;

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Grab-bags: whatever is in one has a better home.
const MODULES: [&str; 9] =
    ["common", "util", "utils", "types", "core", "helper", "helpers", "manager", "misc"];
/// A type that needs one of these has not found its name yet.
const TYPE_ENDINGS: [&str; 6] = ["Manager", "Helper", "Handler", "Context", "Util", "Utils"];

pub(crate) fn check(source: &Source, found: &mut Vec<Violation>) {
    let parts = source.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let mut names: BTreeSet<String> = parts.map(str::to_owned).collect();
    names.retain(|name| MODULES.contains(&name.as_str()));
    for name in names {
        found.push(Violation::new(source, 1, "name", format!("`{name}` in the path says nothing")));
    }
    Definitions { source, found }.visit_file(&source.file);
}

struct Definitions<'a> {
    source: &'a Source,
    found: &'a mut Vec<Violation>,
}

impl Definitions<'_> {
    fn module(&mut self, name: &syn::Ident) {
        if MODULES.iter().any(|banned| name == banned) {
            self.push(name, "module");
        }
    }

    fn define(&mut self, name: &syn::Ident) {
        let text = name.to_string();
        if TYPE_ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            self.push(name, "type");
        }
    }

    fn push(&mut self, name: &syn::Ident, kind: &str) {
        let message = format!("the {kind} name `{name}` says nothing");
        self.found.push(Violation::new(self.source, name.span().start().line, "name", message));
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module(&item.ident);
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
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rules_of;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        rules_of(super::check, path, text)
    }

    #[test]
    fn grab_bags_are_refused() {
        assert_eq!(rules("crates/common/src/lib.rs", ""), ["name"]);
        assert_eq!(rules("crates/wire/src/utils.rs", ""), ["name"]);
        assert_eq!(rules("crates/wire/tests/common/mod.rs", ""), ["name"]);
        assert_eq!(rules("crates/wire/src/lib.rs", "mod helpers { }"), ["name"]);
        assert!(rules("crates/wire/src/key.rs", "mod digest;").is_empty());
    }

    #[test]
    fn types_have_found_their_name() {
        for text in
            ["struct LeaseManager;", "enum EventHandler {}", "trait Context {}", "type KeyUtils = u8;"]
        {
            assert_eq!(rules("crates/wire/src/key.rs", text), ["name"], "{text}");
        }
        assert!(rules("crates/wire/src/key.rs", "use anyhow::Context;\nstruct Lease;").is_empty());
    }
}
