//! How long files and functions may be, and how much of a file may be comment. Tests count for functions only.

use syn::visit::Visit;

use super::Violation;
use super::source::{Source, is_test_only, item_lines};

/// Longer than this, a file holds more than one concept.
const FILE_LINES_MAX: usize = 600;
/// A function fits a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Above this share of the lines, the names are probably at fault.
const COMMENT_PERCENT_MAX: usize = 35;
/// Below this many lines the share says nothing.
const COMMENT_LINES_MIN: usize = 80;

pub(crate) fn check(source: &Source, found: &mut Vec<Violation>) {
    tests_last(source, found);
    if source.generated {
        return;
    }
    file_lines(source, found);
    comment_share(source, found);
    let mut functions = FunctionSizes { source, found };
    functions.visit_file(&source.file);
}

fn file_lines(source: &Source, found: &mut Vec<Violation>) {
    let lines = (1..=source.lines_count()).filter(|line| !source.in_tests(*line)).count();
    if lines > FILE_LINES_MAX {
        let message =
            format!("{lines} lines without tests, at most {FILE_LINES_MAX}: split it along its state");
        found.push(Violation::new(source, 1, "file-lines", message));
    }
}

fn comment_share(source: &Source, found: &mut Vec<Violation>) {
    let (mut lines, mut comments) = (0, 0);
    // Whether the block of a doc comment that is open now is an example.
    let mut block = None;
    for (index, text) in source.text.lines().enumerate() {
        let line = index + 1;
        // The example of a doc comment is compiled: it is neither comment nor the code that it explains.
        let fence = fence(text).filter(|_| source.is_comment(line, text));
        let (opened, closes) =
            (block.or(fence.map(|kind| kind != "text")), block.is_some() && fence.is_some());
        block = opened.filter(|_| !closes);
        if source.in_tests(line) || text.trim().is_empty() || opened == Some(true) {
            continue;
        }
        lines += 1;
        comments += usize::from(source.is_comment(line, text));
    }
    if lines >= COMMENT_LINES_MIN && comments * 100 > lines * COMMENT_PERCENT_MAX {
        let share = comments * 100 / lines;
        let message = format!(
            "{share} % of the lines are comments, at most {COMMENT_PERCENT_MAX} %: look at the names"
        );
        found.push(Violation::new(source, 1, "comment-share", message));
    }
}

/// What stands behind the backquotes that begin or end a block of a doc comment.
fn fence(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let text = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"))?;
    text.trim_start().strip_prefix("```").map(str::trim)
}

/// Tests stand last: a file that is read top-down shows its code first.
fn tests_last(source: &Source, found: &mut Vec<Violation>) {
    let mut items = source.file.items.iter().skip_while(|item| !is_inline_test_module(item));
    let Some(module) = items.next() else { return };
    if let Some(after) = items.find(|item| !is_inline_test_module(item)) {
        let message = format!("code after the test module of line {}", item_lines(module).start());
        found.push(Violation::new(source, *item_lines(after).start(), "tests-last", message));
    }
}

fn is_inline_test_module(item: &syn::Item) -> bool {
    matches!(item, syn::Item::Mod(module) if module.content.is_some() && is_test_only(&module.attrs))
}

struct FunctionSizes<'a> {
    source: &'a Source,
    found: &'a mut Vec<Violation>,
}

impl FunctionSizes<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let message = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}");
            self.found.push(Violation::new(self.source, first, "function-lines", message));
        }
    }
}

impl<'ast> Visit<'ast> for FunctionSizes<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::GENERATED_MARKER;
    use super::super::tests::rules_of;

    fn rules(text: &str) -> Vec<&'static str> {
        rules_of(super::check, "crates/wire/src/key.rs", text)
    }

    fn function(lines: usize) -> String {
        format!("pub fn long(\n) {{\n{}}}\n", "    work();\n".repeat(lines - 3))
    }

    #[test]
    fn file_lines_counts_code_only() {
        assert_eq!(rules(&"const A: u8 = 1;\n".repeat(601)), ["file-lines"]);
        assert!(rules(&"const A: u8 = 1;\n".repeat(600)).is_empty());
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 1;\n".repeat(700));
        assert!(rules(&tests).is_empty());
    }

    #[test]
    fn generated_files_may_be_long() {
        let text =
            format!("{GENERATED_MARKER} from x.\n{}{}", "const A: u8 = 1;\n".repeat(700), function(90));
        assert!(rules(&text).is_empty());
    }

    #[test]
    fn function_lines_counts_from_signature_to_brace() {
        assert_eq!(rules(&function(71)), ["function-lines"]);
        assert!(rules(&function(70)).is_empty());
    }

    #[test]
    fn function_lines_sees_methods_trait_bodies_nesting_and_tests() {
        let function = function(71);
        assert_eq!(rules(&format!("impl A {{\n{function}}}")), ["function-lines"]);
        assert_eq!(
            rules(&format!("trait A {{\n{}}}", function.trim_start_matches("pub "))),
            ["function-lines"]
        );
        assert_eq!(rules(&format!("fn a() {{\n{function}}}")), ["function-lines", "function-lines"]);
        assert_eq!(rules(&format!("#[cfg(test)]\nmod tests {{\n{function}}}")), ["function-lines"]);
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_fool_it() {
        let body = "    work(\"}}}\"); // {{{\n    work('{');\n".repeat(34);
        assert!(rules(&format!("fn a() {{\n{body}}}\n")).is_empty());
        assert_eq!(rules(&format!("fn a() {{\n{body}{body}}}\n")), ["function-lines"]);
    }

    #[test]
    fn comment_share_fires_above_a_third() {
        let half = "// Why.\nconst A: u8 = 1;\n".repeat(60);
        assert_eq!(rules(&half), ["comment-share"]);
        let quarter = "// Why.\nconst A: u8 = 1;\nconst B: u8 = 1;\nconst C: u8 = 1;\n".repeat(30);
        assert!(rules(&quarter).is_empty());
        assert!(rules("// Why.\nconst A: u8 = 1;\n").is_empty(), "too short to judge");
    }

    #[test]
    fn examples_are_no_comments_and_pictures_are() {
        let code = "const A: u8 = 1;\n".repeat(90);
        let block = |kind| format!("/// Why.\n/// ```{kind}\n{}/// ```\n{code}", "/// a(b);\n".repeat(60));
        assert!(rules(&block("")).is_empty());
        assert!(rules(&block("no_run")).is_empty());
        assert_eq!(rules(&block("text")), ["comment-share"]);
        let after = format!("{}{}", block(""), "// Why.\n".repeat(90));
        assert_eq!(rules(&after), ["comment-share"], "the example has ended");
        let picture = format!("/// ```text\n/// a\n/// ```\n{}{code}", "// Why.\n".repeat(90));
        assert_eq!(rules(&picture), ["comment-share"], "no example has begun");
    }

    #[test]
    fn tests_come_last() {
        assert_eq!(rules("#[cfg(test)]\nmod tests {}\nfn late() {}\n"), ["tests-last"]);
        assert!(rules("fn early() {}\n#[cfg(test)]\nmod tests {}\n#[cfg(test)]\nmod more {}\n").is_empty());
        assert!(rules("#[cfg(test)]\nmod tests;\nmod code;\n").is_empty(), "a declaration is not a body");
    }
}
