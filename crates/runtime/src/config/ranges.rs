//! The ranges of numbers that have no rule of their own: what is beyond them is a slip. Not what the numbers do.

use super::Config;
use super::load::ConfigError;

/// A day: no pause of a cluster is longer by intention.
const MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// More requests than one thread serves, by far.
const RATE_MAX: u64 = 1_000_000_000;
/// More than the memory of any machine holds.
const OBJECTS_MAX: u64 = 1 << 32;

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let check =
        |at: String, numbers: &[(&str, u64, u64)]| match numbers.iter().find(|(_, value, max)| value > max) {
            Some((key, value, max)) => {
                Err(ConfigError::new(format!("{at}: {key} = {value}: write at most {max}")))
            }
            None => Ok(()),
        };
    for controller in &config.controllers {
        let numbers = [
            ("member_lease_ms", controller.member_lease_ms, MS_MAX),
            ("grace_ms", controller.grace_ms, MS_MAX),
            ("return_step_ms", controller.return_step_ms, MS_MAX),
        ];
        check(format!("[[controller]] {:?}", controller.id), &numbers)?;
    }
    for node in &config.nodes {
        let numbers =
            [("objects_max", node.objects_max as u64, OBJECTS_MAX), ("rate_max", node.rate_max, RATE_MAX)];
        check(format!("[[node]] {:?}", node.id), &numbers)?;
    }
    for shim in &config.shims {
        check(format!("[[shim]] {:?}", shim.id), &[("rate_max", shim.rate_max, RATE_MAX)])?;
    }
    for router in &config.routers {
        check(format!("[[router]] {:?}", router.id), &[("drain_ms", router.drain_ms, MS_MAX)])?;
    }
    check("[heat]".to_owned(), &[("hold_off_ms", config.heat.hold_off_ms, MS_MAX)])
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn numbers_beyond_reason_are_slips() {
        let parse = |text: &str| {
            Config::parse(&format!("[cluster]\nsecret = \"00112233445566778899aabbccddeeff\"\n{text}"))
        };
        for (text, expected) in [
            (
                "[[shim]]\n[[controller]]\ngrace_ms = 86400001",
                "[[controller]] \"controller\": grace_ms = 86400001: write",
            ),
            ("[[shim]]\n[[controller]]\nmember_lease_ms = 86400001", "member_lease_ms = 86400001"),
            (
                "[[shim]]\n[[node]]\nobjects_max = 4294967297",
                "objects_max = 4294967297: write at most 4294967296",
            ),
            ("[[shim]]\n[[node]]\nrate_max = 1000000001", "[[node]] \"spine-0\": rate_max"),
            ("[[shim]]\nrate_max = 1000000001", "[[shim]] \"shim-0\": rate_max"),
            ("[[shim]]\n[[router]]\ndrain_ms = 86400001", "[[router]] \"router-0\": drain_ms"),
            ("[[shim]]\n[heat]\nhold_off_ms = 86400001", "[heat]: hold_off_ms"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        parse("[[shim]]\nrate_max = 1000000000\n[heat]\nhold_off_ms = 86400000").expect("the ends are in");
    }
}
