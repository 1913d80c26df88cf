//! What must not be called or written, and where. Works on tokens, so strings and comments never count.

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Crates whose every run must be a function of its inputs.
const DETERMINISTIC: [&str; 5] = ["commands", "protocol", "policies", "flash", "sim"];

/// Where a ban holds.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Everywhere,
    /// In the deterministic crates, their tests included: those must be reproducible too. Not in benchmarks, which
    /// are there to read the clock.
    Deterministic,
    /// In the deterministic crates without their tests.
    DeterministicCode,
    /// In the code of `commands` and `protocol`, which decide and touch nothing.
    DecidingCode,
    Tests,
    /// All but the two places that talk to devices and to the kernel.
    SafeCode,
}

struct Ban {
    rule: &'static str,
    /// Tokens, separated by spaces.
    pattern: &'static str,
    scope: Scope,
    instead: &'static str,
}

const fn ban(rule: &'static str, pattern: &'static str, scope: Scope, instead: &'static str) -> Ban {
    Ban { rule, pattern, scope, instead }
}

const BANS: [Ban; 28] = [
    ban("clock", "Instant : : now", Scope::Deterministic, "time comes in as an argument"),
    ban("clock", "SystemTime : : now", Scope::Deterministic, "time comes in as an argument"),
    ban("randomness", "thread_rng", Scope::Deterministic, "a seed comes in at construction"),
    ban("randomness", "rand : : rng (", Scope::Deterministic, "a seed comes in at construction"),
    ban("randomness", "rand : : random", Scope::Deterministic, "a seed comes in at construction"),
    ban("randomness", "ThreadRng", Scope::Deterministic, "a seed comes in at construction"),
    ban("randomness", "RandomState", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashMap : : new (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashMap : : with_capacity (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashMap : : from (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashSet : : new (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashSet : : with_capacity (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("random-map", "HashSet : : from (", Scope::DeterministicCode, "a hasher with a fixed seed"),
    ban("effects", "async", Scope::DecidingCode, "an `Effect` that the driver carries out"),
    ban("effects", "std : : net", Scope::DecidingCode, "an `Effect` that the driver carries out"),
    ban("effects", "std : : fs", Scope::DecidingCode, "an `Effect` that the driver carries out"),
    ban("effects", "std : : thread", Scope::DecidingCode, "an `Effect` that the driver carries out"),
    ban("effects", "std : : process", Scope::DecidingCode, "an `Effect` that the driver carries out"),
    ban("cases", "ProptestConfig", Scope::Everywhere, "`cases::proptest(..)`"),
    ban("sleep", "sleep (", Scope::Tests, "wait for what the test is about"),
    ban("ignored-test", "# [ ignore", Scope::Everywhere, "a test that runs, or none"),
    ban(
        "should-panic",
        "# [ should_panic",
        Scope::Everywhere,
        "a `Result`, or `catch_unwind` with its message",
    ),
    ban("allow", "# [ allow (", Scope::Everywhere, "`#[expect(.., reason = \"..\")]`"),
    ban("allow", "# ! [ allow (", Scope::Everywhere, "`#![expect(.., reason = \"..\")]`"),
    ban("unsafe", "unsafe", Scope::SafeCode, "safe code: only `flash::device` and `xdp` may"),
    ban("unfinished", "todo !", Scope::Everywhere, "the code"),
    ban("unfinished", "unimplemented !", Scope::Everywhere, "the code"),
    ban("unfinished", "dbg !", Scope::Everywhere, "`tracing`"),
];

pub(crate) fn check(source: &Source, found: &mut Vec<Violation>) {
    for ban in &BANS {
        let pattern: Vec<&str> = ban.pattern.split(' ').collect();
        for window in source.tokens.windows(pattern.len()) {
            let line = window[0].line;
            let same = window.iter().zip(&pattern).all(|(token, part)| token.text == *part);
            if same && applies(ban.scope, source, line) {
                let written = ban.pattern.replace(' ', "");
                let message = format!("`{written}` is banned here; instead: {}", ban.instead);
                found.push(Violation::new(source, line, ban.rule, message));
            }
        }
    }
    reasons(source, found);
    configured(source, found);
    if DETERMINISTIC.contains(&source.crate_name.as_str()) {
        RandomMaps { source, found }.visit_file(&source.file);
    }
}

fn applies(scope: Scope, source: &Source, line: usize) -> bool {
    let name = source.crate_name.as_str();
    match scope {
        Scope::Everywhere => true,
        Scope::Deterministic => DETERMINISTIC.contains(&name) && !source.path.contains("/benches/"),
        Scope::DeterministicCode => DETERMINISTIC.contains(&name) && !source.in_tests(line),
        Scope::DecidingCode => ["commands", "protocol"].contains(&name) && !source.in_tests(line),
        Scope::Tests => source.in_tests(line),
        Scope::SafeCode => name != "xdp" && !source.path.starts_with("crates/flash/src/device"),
    }
}

/// Property tests take their cases and seeds from one place, which can multiply the former and tells the latter.
fn configured(source: &Source, found: &mut Vec<Violation>) {
    for window in source.tokens.windows(6) {
        let [words @ .., last] = [0, 1, 2, 3, 4, 5].map(|index| window[index].text.as_str());
        let opens = words[..3] == ["proptest", "!", "{"];
        if opens && !(words[3..] == ["#", "!"] && last == "[") {
            let message = "begin it with `#![proptest_config(cases::proptest(256))]`";
            found.push(Violation::new(source, window[0].line, "cases", message));
        }
    }
}

/// Every `#[expect(..)]` says why.
fn reasons(source: &Source, found: &mut Vec<Violation>) {
    for (index, token) in source.tokens.iter().enumerate() {
        let next = |offset: usize| source.tokens.get(index + offset).map_or("", |token| token.text.as_str());
        let opens = token.text == "[" && next(1) == "expect" && next(2) == "(";
        let attribute = index > 0 && matches!(source.tokens[index - 1].text.as_str(), "#" | "!");
        if !(opens && attribute) {
            continue;
        }
        let mut inside = source.tokens[index..].iter().take_while(|token| token.text != "]");
        if !inside.any(|token| token.text == "reason") {
            found.push(Violation::new(
                source,
                token.line,
                "expect-reason",
                "`expect` without `reason = \"..\"`",
            ));
        }
    }
}

/// Types that name a map or set without its hasher, which then is the randomly seeded one.
struct RandomMaps<'a> {
    source: &'a Source,
    found: &'a mut Vec<Violation>,
}

impl<'ast> Visit<'ast> for RandomMaps<'_> {
    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        let needed = match segment.ident.to_string().as_str() {
            "HashMap" => 3,
            "HashSet" => 2,
            _ => 0,
        };
        if let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments {
            let line = segment.ident.span().start().line;
            if arguments.args.len() < needed && !self.source.in_tests(line) {
                let message = format!("`{}` without a hasher is seeded at random", segment.ident);
                self.found.push(Violation::new(self.source, line, "random-map", message));
            }
        }
        syn::visit::visit_path_segment(self, segment);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rules_of;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        rules_of(super::check, path, text)
    }

    /// Wraps the line in a function, and the function in a test module.
    fn in_test(line: &str) -> String {
        format!("#[cfg(test)]\nmod tests {{\n    fn a() {{\n{line}\n}}\n}}\n")
    }

    fn in_code(line: &str) -> String {
        format!("fn a() {{\n{line}\n}}\n")
    }

    const PROTOCOL: &str = "crates/protocol/src/load.rs";
    const SIM: &str = "crates/sim/src/net.rs";
    const RUNTIME: &str = "crates/runtime/src/reactor.rs";

    #[test]
    fn clocks_and_randomness_come_from_outside() {
        for line in ["Instant::now();", "std::time::SystemTime::now();"] {
            assert_eq!(rules(PROTOCOL, &in_code(line)), ["clock"], "{line}");
            assert_eq!(rules(SIM, &in_test(line)), ["clock"], "{line}");
            assert!(rules(RUNTIME, &in_code(line)).is_empty(), "{line}");
        }
        for line in ["rand::rng();", "rand::random::<u8>();", "thread_rng();"] {
            assert_eq!(rules(PROTOCOL, &in_code(line)), ["randomness"], "{line}");
            assert!(rules(RUNTIME, &in_code(line)).is_empty(), "{line}");
        }
        assert!(rules(PROTOCOL, &in_code("SmallRng::seed_from_u64(seed);")).is_empty());
        assert!(rules("crates/flash/benches/device.rs", &in_code("Instant::now();")).is_empty());
    }

    #[test]
    fn maps_have_fixed_hashers() {
        for line in ["HashMap::new();", "let a: HashMap<u8, u8> = x();", "x().collect::<HashSet<u8>>();"] {
            assert_eq!(rules(PROTOCOL, &in_code(line)), ["random-map"], "{line}");
            assert!(rules(PROTOCOL, &in_test(line)).is_empty(), "{line}");
            assert!(rules(RUNTIME, &in_code(line)).is_empty(), "{line}");
        }
        assert!(
            rules(PROTOCOL, "type A = HashMap<u8, u8, Fixed>;\nuse std::collections::HashMap;\n").is_empty()
        );
    }

    #[test]
    fn protocol_has_no_effects() {
        for text in ["async fn a() {}\n", "use std::net::TcpStream;\n", "fn a() { std::thread::spawn(b); }\n"]
        {
            assert_eq!(rules(PROTOCOL, text), ["effects"], "{text}");
            assert!(rules(RUNTIME, text).is_empty(), "{text}");
        }
        assert!(rules(PROTOCOL, &in_test("std::fs::read(path);")).is_empty(), "tests read their scripts");
    }

    #[test]
    fn property_tests_take_their_cases_from_one_place() {
        let of =
            |begin: &str| format!("proptest! {{\n{begin}\n    #[test]\n    fn a(b in 0..3u8) {{}}\n}}\n");
        assert!(rules(RUNTIME, &of("#![proptest_config(cases::proptest(7))]")).is_empty());
        assert_eq!(rules(RUNTIME, &of("")), ["cases"]);
        assert_eq!(rules(RUNTIME, &of("#![proptest_config(ProptestConfig::with_cases(7))]")), ["cases"]);
    }

    #[test]
    fn tests_do_not_sleep() {
        assert_eq!(rules(RUNTIME, &in_test("std::thread::sleep(second);")), ["sleep"]);
        assert_eq!(rules("crates/distcache/tests/up.rs", &in_code("sleep(second);")), ["sleep"]);
        assert!(rules(RUNTIME, &in_code("std::thread::sleep(second);")).is_empty());
    }

    #[test]
    fn attributes_that_hide_are_banned() {
        assert_eq!(rules(RUNTIME, "#[test]\n#[ignore]\nfn a() {}\n"), ["ignored-test"]);
        assert_eq!(rules(RUNTIME, "#[ignore = \"slow\"]\nfn a() {}\n"), ["ignored-test"]);
        assert_eq!(rules(RUNTIME, "#[should_panic(expected = \"x\")]\nfn a() {}\n"), ["should-panic"]);
        assert_eq!(rules(RUNTIME, "#[allow(dead_code)]\nfn a() {}\n"), ["allow"]);
        assert_eq!(rules(RUNTIME, "#![allow(dead_code)]\nfn a() {}\n"), ["allow"]);
        assert_eq!(rules(RUNTIME, "#[expect(dead_code)]\nfn a() {}\n"), ["expect-reason"]);
        assert!(
            rules(RUNTIME, "#[expect(dead_code, reason = \"soon\")]\nfn a() { b.expect(\"c\"); }\n")
                .is_empty()
        );
    }

    #[test]
    fn unsafe_has_two_homes() {
        let text = "fn a() { unsafe { b() } }\n";
        assert_eq!(rules(RUNTIME, text), ["unsafe"]);
        assert_eq!(rules("crates/flash/src/dram.rs", text), ["unsafe"]);
        assert!(rules("crates/flash/src/device/file.rs", text).is_empty());
        assert!(rules("crates/xdp/src/load.rs", text).is_empty());
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for line in ["todo!();", "unimplemented!(\"x\");", "dbg!(x);", "vec![todo!()];"] {
            assert_eq!(rules(RUNTIME, &in_code(line)), ["unfinished"], "{line}");
        }
    }

    #[test]
    fn strings_and_comments_are_free() {
        let text = "/// Never `Instant::now`, `#[allow(x)]`.\nfn a() { b(\"todo!() unsafe HashMap::new()\"); } // dbg!(x)\n";
        assert!(rules(PROTOCOL, text).is_empty());
    }
}
