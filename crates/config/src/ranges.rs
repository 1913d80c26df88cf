//! The range of every number, and why it ends where it ends: what is beyond is a slip, or would keep a member from
//! serving. Not what the numbers do, and not what must hold between two of them.

use super::load::ConfigError;
use super::{ByteSize, Config, THREADS_MAX};

type Check = Result<(), ConfigError>;

/// A number of the file, and the least and the most that it may be.
pub(super) struct Number {
    key: &'static str,
    value: i128,
    least: i128,
    most: i128,
    /// Whether it is written as a size.
    bytes: bool,
    /// What would be wrong beyond either end.
    why: &'static str,
}

/// A type of settings that are numbers.
pub(super) trait Numeric: Copy {
    const BYTES: bool = false;
    /// The number, unless the file leaves it out.
    fn number(self) -> Option<i128>;
}

impl Numeric for usize {
    fn number(self) -> Option<i128> {
        Some(self as i128)
    }
}

impl Numeric for u32 {
    fn number(self) -> Option<i128> {
        Some(self.into())
    }
}

impl Numeric for u64 {
    fn number(self) -> Option<i128> {
        Some(self.into())
    }
}

impl Numeric for i64 {
    fn number(self) -> Option<i128> {
        Some(self.into())
    }
}

impl Numeric for ByteSize {
    const BYTES: bool = true;
    fn number(self) -> Option<i128> {
        Some(self.0.into())
    }
}

impl<T: Numeric> Numeric for Option<T> {
    const BYTES: bool = T::BYTES;
    fn number(self) -> Option<i128> {
        self.and_then(T::number)
    }
}

/// The settings of a section, each with its type, its default and, if it is a number, its range and why it ends there:
/// `key: type = default, least => most, why;`
macro_rules! section {
    ($(#[$attribute:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $key:ident: $type:ty = $default:expr $(, $least:expr => $most:expr, $why:expr)?;)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$doc])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($key: $default,)* }
            }
        }

        impl $name {
            pub(super) fn numbers(&self) -> Vec<crate::ranges::Number> {
                use crate::ranges::number;
                let all = [$($(number(stringify!($key), self.$key, ($least as i128, $most as i128), $why),)?)*];
                all.into_iter().flatten().collect()
            }
        }
    };
}
pub(super) use section;

pub(super) const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;
pub(super) const HOUR_MS: u64 = 60 * 60 * 1000;
pub(super) const NO_PAUSE: &str = "no pause is longer than a day by intention";
pub(super) const MEMORY: &str = "a machine's memory holds no more";

pub(super) fn number<T: Numeric>(
    key: &'static str,
    value: T,
    (least, most): (i128, i128),
    why: &'static str,
) -> Option<Number> {
    value.number().map(|value| Number { key, value, least, most, bytes: T::BYTES, why })
}

fn count(key: &'static str, value: usize, (least, most): (u64, u64), why: &'static str) -> Number {
    Number { key, value: value as i128, least: least.into(), most: most.into(), bytes: false, why }
}

fn time(key: &'static str, value: u64, (least, most): (u64, u64), why: &'static str) -> Number {
    count(key, value as usize, (least, most), why)
}

fn size(key: &'static str, value: ByteSize, (least, most): (u64, u64), why: &'static str) -> Number {
    Number { bytes: true, ..count(key, value.0 as usize, (least, most), why) }
}

impl Number {
    fn check(&self, at: &str) -> Check {
        let Number { key, value, least, most, bytes, why } = self;
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let shown = |number: i128| match bytes {
            true => format!("\"{}\"", ByteSize(number as u64)),
            false => number.to_string(),
        };
        let [value, least, most] = [*value, *least, *most].map(shown);
        Err(ConfigError::new(format!("{at} {key} = {value}: write {least} to {most}: {why}")))
    }
}

fn check_all(at: &str, numbers: &[Number]) -> Check {
    numbers.iter().try_for_each(|number| number.check(at))
}

pub(super) fn check(config: &Config) -> Check {
    check_all("[limits]", &config.limits.numbers())?;
    check_all("[heat]", &config.heat.numbers())?;
    check_members(config)?;
    check_all("[near]", &config.near.numbers())?;
    check_all("[slowlog]", &config.slowlog.numbers())?;
    let one_in = time("sample_one_in", config.tracing.sample_one_in, (0, 1 << 40), "more is as good as none");
    one_in.check("[tracing]")
}

fn check_members(config: &Config) -> Check {
    /// More requests than one thread serves, by far.
    const RATE_MAX: u64 = 1_000_000_000;
    let rate =
        |rate_max| time("rate_max", rate_max, (0, RATE_MAX), "no member serves more; 0 is for no limit");
    for controller in &config.controllers {
        let lease = (1000, A_DAY_MS);
        let numbers = [
            time("member_lease_ms", controller.member_lease_ms, lease, "it is renewed by two heartbeats"),
            time("grace_ms", controller.grace_ms, (0, A_DAY_MS), NO_PAUSE),
            time("return_step_ms", controller.return_step_ms, (0, A_DAY_MS), NO_PAUSE),
        ];
        check_all(&format!("[[controller]] {:?}:", controller.id), &numbers)?;
    }
    for node in &config.nodes {
        let numbers = [
            count("objects_max", node.objects_max, (0, 1 << 32), MEMORY),
            size(
                "bytes_max",
                node.bytes_max,
                (1 << 10, 1 << 50),
                "no object is smaller, and no memory larger",
            ),
            rate(node.rate_max),
        ];
        check_all(&format!("[[node]] {:?}:", node.id), &numbers)?;
    }
    for shim in &config.shims {
        let weight = time("weight", shim.weight.into(), (1, 1 << 16), "1 is for a server like the others");
        check_all(&format!("[[shim]] {:?}:", shim.id), &[rate(shim.rate_max), weight])?;
    }
    for router in &config.routers {
        let threads = router.threads.map(|threads| {
            count(
                "threads",
                usize::from(threads),
                (1, THREADS_MAX.into()),
                "one for each core that it is to use",
            )
        });
        let drain = time("drain_ms", router.drain_ms, (0, A_DAY_MS), NO_PAUSE);
        let retire = time("retire_ms_max", router.retire_ms_max, (0, A_DAY_MS), "0 closes clients at once");
        let numbers: Vec<_> = threads.into_iter().chain([drain, retire]).collect();
        check_all(&format!("[[router]] {:?}:", router.id), &numbers)?;
    }
    for policy in &config.policies {
        let at = format!("[[policy]] prefix = {:?}:", policy.prefix);
        let ttl = policy.ttl_ms_max.map(|ttl| {
            time("ttl_ms_max", ttl, (1, 3650 * A_DAY_MS), "to cache nothing, write cache = \"never\"")
        });
        let most = wire::codec::VALUE_BYTES_MAX as u64;
        let value = policy
            .value_bytes_max
            .map(|value| size("value_bytes_max", value, (0, most), "one frame between members takes it"));
        let least = config.cluster.bounded_staleness_ms_max;
        let stale = policy.stale_if_error_ms.map(|stale| {
            let why = "a copy may be as old as bounded_staleness_ms_max in any case";
            time("stale_if_error_ms", stale, (least, A_DAY_MS), why)
        });
        ttl.into_iter().chain(value).chain(stale).try_for_each(|number| number.check(&at))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn numbers_beyond_reason_are_slips() {
        let parse = |text: &str| {
            Config::parse(&format!("[cluster]\nsecret = \"00112233445566778899aabbccddeeff\"\n{text}"))
        };
        for (text, expected) in [
            (
                "[[shim]]\n[[controller]]\ngrace_ms = 86400001",
                "[[controller]] \"controller\": grace_ms = 86400001: write 0 to 86400000: no pause is longer",
            ),
            ("[[shim]]\n[[controller]]\nmember_lease_ms = 86400001", "member_lease_ms = 86400001"),
            ("[[shim]]\n[[controller]]\nmember_lease_ms = 999", "member_lease_ms = 999: write 1000 to"),
            (
                "[[shim]]\n[[node]]\nobjects_max = 4294967297",
                "objects_max = 4294967297: write 0 to 4294967296",
            ),
            ("[[shim]]\n[[node]]\nrate_max = 1000000001", "[[node]] \"spine-0\": rate_max"),
            ("[[shim]]\n[[node]]\nbytes_max = 1023", "bytes_max = \"1023B\": write \"1KiB\" to \"1024TiB\""),
            ("[[shim]]\nrate_max = 1000000001", "[[shim]] \"shim-0\": rate_max"),
            ("[[shim]]\n[[router]]\ndrain_ms = 86400001", "[[router]] \"router-0\": drain_ms"),
            ("[[shim]]\n[heat]\nhold_off_ms = 86400001", "[heat] hold_off_ms"),
            (
                "[[shim]]\n[limits]\nlearned_max = 6553600000000",
                "learned_max = 6553600000000: write 1 to 16777216",
            ),
            (
                "[[shim]]\n[limits]\nstorage_ms_max = 18446744073709552",
                "[limits] storage_ms_max = 18446744073709552: write 100 to 3600000",
            ),
            ("[[shim]]\n[slowlog]\nslower_than_us = -2", "[slowlog] slower_than_us = -2: write -1 to"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        parse("[[shim]]\nrate_max = 1000000000\n[heat]\nhold_off_ms = 86400000").expect("the ends are in");
    }
}
