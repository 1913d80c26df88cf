//! Random steps against a map, with everything checked after each. Not against a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{cache, device, settings};
use crate::device::Device;
use crate::ripq::{Ripq, Settings};

#[derive(Clone, Debug)]
enum Step {
    Get(u16),
    Insert(u16, usize),
    Remove(u16),
    Flush,
    Reopen,
}

fn key() -> impl Strategy<Value = u16> {
    prop_oneof![0..30u16, 0..400u16]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => key().prop_map(Step::Get),
        20 => (key(), prop_oneof![4 => 0..400usize, 2 => 400..3000usize, 1 => 7000..8090usize])
            .prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        2 => key().prop_map(Step::Remove),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

/// What key and version give; nothing else is ever a value.
fn value(key: u16, version: u32, bytes: usize) -> Vec<u8> {
    let word = u64::from(key) << 32 | u64::from(version);
    word.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn run(policy: &str, theta: Option<f64>, steps: &[Step]) -> Result<(), TestCaseError> {
    let settings = Settings { theta, ..settings(policy) };
    let device: Arc<dyn Device> = Arc::new(device(24, &settings));
    let mut ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
    let mut written: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for (version, step) in steps.iter().enumerate() {
        match step {
            Step::Get(key) => {
                if let Some(found) = ripq.get(&key.to_le_bytes()).expect("a healthy device") {
                    prop_assert_eq!(Some(&found[..]), written.get(key).map(Vec::as_slice));
                }
            }
            Step::Insert(key, bytes) => {
                let value = value(*key, version as u32, *bytes);
                ripq.insert(&key.to_le_bytes(), &value).expect("a healthy device");
                written.insert(*key, value);
            }
            Step::Remove(key) => {
                ripq.remove(&key.to_le_bytes()).expect("a healthy device");
                written.remove(key);
            }
            Step::Flush => ripq.flush().expect("a healthy device"),
            Step::Reopen => {
                ripq.flush().expect("a healthy device");
                let before = ripq.contents().objects;
                drop(ripq);
                ripq = Ripq::open(Arc::clone(&device), settings.clone()).expect("it was flushed");
                prop_assert_eq!(ripq.contents().objects, before);
            }
        }
        ripq.verify().map_err(|wrong| TestCaseError::fail(format!("after {step:?}: {wrong}")))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn hold_under_slru(steps in prop::collection::vec(step(), 1..400)) {
        run("slru:3", None, &steps)?;
    }

    #[test]
    fn hold_under_gdsf(steps in prop::collection::vec(step(), 1..400)) {
        run("gdsf:3", None, &steps)?;
    }

    #[test]
    fn hold_under_lru_and_fifo(steps in prop::collection::vec(step(), 1..400), fifo: bool) {
        run(if fifo { "fifo" } else { "lru" }, None, &steps)?;
    }

    #[test]
    fn hold_with_a_logical_queue(steps in prop::collection::vec(step(), 1..400), theta in 0.0..0.95, gdsf: bool) {
        run(if gdsf { "gdsf:3" } else { "slru:3" }, Some(theta), &steps)?;
    }
}

#[test]
fn an_object_that_fits_no_block_is_refused() {
    let ripq = cache(16, settings("lru"));
    let error = ripq.insert(b"key", &[0; 8192]).expect_err("too large").to_string();
    assert_eq!(error, "an object of 8195 bytes does not fit a block, which takes 8096");
    ripq.insert(b"key", &[7; 8093]).expect("the largest");
    assert_eq!(ripq.get(b"key").expect("healthy").expect("there")[..], [7; 8093]);
}
