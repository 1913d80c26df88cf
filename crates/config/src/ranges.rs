//! The range of every number, and why it ends where it ends: what is beyond is a slip, or would keep a member from
//! serving. Not what the numbers do, and not what must hold between two of them.

use super::load::ConfigError;
use super::{ByteSize, Config, HeatConfig, Limits};

type Check = Result<(), ConfigError>;

/// A number of the file, and the least and the most that it may be.
struct Number {
    key: &'static str,
    value: i128,
    least: i128,
    most: i128,
    /// Whether it is written as a size.
    bytes: bool,
    /// What would be wrong beyond either end.
    why: &'static str,
}

const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;
const NO_PAUSE: &str = "no pause is longer than a day by intention";
const DESCRIPTORS: &str = "each is an open file of the process";
const MEMORY: &str = "a machine's memory holds no more";

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
    check_all("[limits]", &queues(&config.limits))?;
    check_all("[limits]", &sizes(&config.limits))?;
    check_all("[limits]", &times(&config.limits))?;
    check_all("[heat]", &heat(&config.heat))?;
    check_members(config)?;
    let slow_log = &config.slowlog;
    let slower_than = Number {
        value: slow_log.slower_than_us.into(),
        least: -1,
        ..time(
            "slower_than_us",
            0,
            (0, A_DAY_MS * 1000),
            "-1 is for none, and nobody waits for longer than a day",
        )
    };
    let entries = count("entries_max", slow_log.entries_max, (0, 16_384), "SLOWLOG GET tells all at once");
    check_all("[slowlog]", &[slower_than, entries])?;
    let one_in = time("sample_one_in", config.tracing.sample_one_in, (0, 1 << 40), "more is as good as none");
    one_in.check("[tracing]")
}

fn queues(limits: &Limits) -> [Number; 11] {
    [
        count("clients_max", limits.clients_max, (1, 1 << 20), DESCRIPTORS),
        count("handshakes_max", limits.handshakes_max, (1, 1 << 20), DESCRIPTORS),
        count(
            "arguments_max",
            limits.arguments_max,
            (16, 1 << 24),
            "common commands have up to 16 arguments",
        ),
        count("pipeline_max", limits.pipeline_max, (1, 1 << 20), "the clients wait for replies at last"),
        count("tracking_keys_max", limits.tracking_keys_max, (0, 1 << 30), MEMORY),
        count("shim_queue_max", limits.shim_queue_max, (1, 1 << 24), MEMORY),
        count("key_queue_max", limits.key_queue_max, (1, 1 << 24), MEMORY),
        count("blocking_max", limits.blocking_max, (0, 65_535), "each is a connection to the storage server"),
        count("node_queue_max", limits.node_queue_max, (1, 1 << 24), MEMORY),
        count(
            "views_max",
            limits.views_max,
            (1, 65_536),
            "all of them are invalidated with every write of their key",
        ),
        count("learned_max", limits.learned_max, (1, 1 << 24), "a router reserves 10 bytes for each at once"),
    ]
}

fn sizes(limits: &Limits) -> [Number; 6] {
    let command_most = wire::codec::VALUE_BYTES_MAX as u64;
    let key_most = wire::codec::KEY_BYTES_MAX as u64;
    let input = "a command is taken in pieces of 64 KiB";
    [
        size(
            "command_bytes_max",
            limits.command_bytes_max,
            (1 << 10, command_most),
            "one frame between members takes it",
        ),
        size("key_bytes_max", limits.key_bytes_max, (1, key_most), "one frame between members takes it"),
        size("pipeline_bytes_max", limits.pipeline_bytes_max, (1, 1 << 40), MEMORY),
        size("output_bytes_max", limits.output_bytes_max, (0, 1 << 40), MEMORY),
        size("client_input_bytes_max", limits.client_input_bytes_max, (64 << 10, 1 << 40), input),
        size("client_buffers_bytes_max", limits.client_buffers_bytes_max, (1 << 20, 1 << 40), MEMORY),
    ]
}

/// What a member waits for. A machine that is busy does nothing for a tenth of a second now and then.
fn times(limits: &Limits) -> Vec<Number> {
    const HOUR_MS: u64 = 60 * 60 * 1000;
    let busy = "a busy machine answers nothing for less, and for more than an hour nobody waits";
    let waits = "less would refuse what storage can do; to have nothing wait, write overload = \"refuse\"";
    let mut times = vec![
        time("client_idle_ms_max", limits.client_idle_ms_max, (0, A_DAY_MS), "0 is for never"),
        time("authentication_ms_max", limits.authentication_ms_max, (0, A_DAY_MS), "0 is for never"),
        time("handshake_ms_max", limits.handshake_ms_max, (100, HOUR_MS), busy),
        time("storage_ms_max", limits.storage_ms_max, (100, HOUR_MS), busy),
    ];
    times.extend(
        limits.queue_ms_max.map(|queue_ms_max| time("queue_ms_max", queue_ms_max, (100, HOUR_MS), waits)),
    );
    times
}

fn heat(heat: &HeatConfig) -> [Number; 7] {
    let memory = "each row is reserved at once";
    let hashes = "more hashes cost more than they tell";
    [
        count(
            "threshold",
            heat.threshold as usize,
            (1, u32::MAX.into()),
            "a key without requests is not hot",
        ),
        time("window_ms", heat.window_ms, (10, 60_000), "less counts noise, more finds hot keys late"),
        count("rows", heat.rows, (1, 8), hashes),
        count("counters", heat.counters, (64, 1 << 24), memory),
        count("filter_rows", heat.filter_rows, (1, 8), hashes),
        count("filter_bits", heat.filter_bits, (64, 1 << 28), memory),
        time("hold_off_ms", heat.hold_off_ms, (0, A_DAY_MS), NO_PAUSE),
    ]
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
        time("drain_ms", router.drain_ms, (0, A_DAY_MS), NO_PAUSE)
            .check(&format!("[[router]] {:?}:", router.id))?;
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
        ttl.into_iter().chain(value).try_for_each(|number| number.check(&at))?;
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
