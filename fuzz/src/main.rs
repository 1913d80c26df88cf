//! The coverage-guided fuzzer: hands libFuzzer's inputs to the target that the environment names. `cargo xtask fuzz`
//! builds and runs it; the targets themselves are in the library.

#![no_main]

use std::sync::OnceLock;

use fuzz::Target;

/// Names the target. Not an argument: libFuzzer reads those.
const VARIABLE: &str = "DISTCACHE_FUZZ_TARGET";

fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var(VARIABLE).expect("the environment names the target");
        fuzz::find(&name).expect("the environment names one of the targets")
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| target().check(data));
