//! What is written reads back, with next accesses as a naive search finds them. Not the formats' bytes.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::access::{AccessOperation, NextAccess};
use crate::read::open;

/// A path in a folder of this test's own.
fn place(test: &str, name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("distcache-trace-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn write(path: &Path, format: TraceFormat, accesses: &[Access]) {
    let mut writer = create(path, format, None).unwrap();
    accesses.iter().for_each(|access| writer.write(access).unwrap());
    let mut done = 0;
    assert_eq!(writer.finish(&mut |records| done = records).unwrap(), accesses.len() as u64);
    assert_eq!(done, if format == TraceFormat::OracleGeneral { accesses.len() as u64 } else { 0 });
}

fn read(path: &Path) -> Vec<Access> {
    open(path, None).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The same accesses with the next of each, found by looking.
fn with_next(accesses: &[Access]) -> Vec<Access> {
    let later = |at: usize| {
        let mut rest = accesses[at + 1..].iter();
        let found = rest.position(|other| other.object == accesses[at].object);
        found.map_or(NextAccess::Never, |distance| NextAccess::Known((at + distance + 2) as u64))
    };
    accesses.iter().enumerate().map(|(at, access)| Access { next: later(at), ..*access }).collect()
}

proptest! {
    #![proptest_config(cases::proptest(64))]
    #[test]
    fn what_is_written_reads_back(
        rows in proptest::collection::vec((0..3u64, 0..9u64, 1..5000u64, 0..3usize), 1..200),
        ending in prop::sample::select(vec!["", ".gz", ".zst"]),
    ) {
        let operations = [AccessOperation::Read, AccessOperation::Write, AccessOperation::Delete];
        let mut time = 0;
        let accesses: Vec<Access> = rows.iter().map(|&(seconds, object, bytes, operation)| {
            time += seconds;
            Access { time, object, bytes, next: NextAccess::Unknown, operation: operations[operation] }
        }).collect();
        let csv = place("reads_back", &format!("x.csv{ending}"));
        write(&csv, TraceFormat::Csv, &accesses);
        prop_assert_eq!(read(&csv), accesses.clone());
        let oracle = place("reads_back", &format!("x.bin{ending}"));
        write(&oracle, TraceFormat::OracleGeneral, &accesses);
        let expected: Vec<Access> =
            with_next(&accesses).into_iter().map(|access| Access { operation: AccessOperation::Read, ..access }).collect();
        prop_assert_eq!(read(&oracle), expected.clone());
        write(&csv, TraceFormat::Csv, &expected);
        prop_assert_eq!(read(&csv), expected);
    }
}

/// More records than the backward pass has in memory at once.
#[test]
fn next_accesses_reach_across_blocks() {
    let access = |number: u64| Access {
        time: number,
        object: number % 70_001,
        bytes: 1,
        next: NextAccess::Unknown,
        operation: AccessOperation::Read,
    };
    let path = place("across_blocks", "x.oracleGeneral");
    write(&path, TraceFormat::OracleGeneral, &(0..200_000).map(access).collect::<Vec<_>>());
    for (access, number) in read(&path).iter().zip(1..) {
        let later = number + 70_001;
        assert_eq!(access.next, if later > 200_000 { NextAccess::Never } else { NextAccess::Known(later) });
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let path = place("unfinished", "x.csv");
    let one = Access {
        time: 1 << 40,
        object: 1,
        bytes: 1,
        next: NextAccess::Never,
        operation: AccessOperation::Read,
    };
    let mut writer = create(&path, TraceFormat::Csv, None).unwrap();
    writer.write(&one).unwrap();
    drop(writer);
    let mut writer = create(&path, TraceFormat::OracleGeneral, Some(Compression::Zstd)).unwrap();
    let error = writer.write(&one).unwrap_err().to_string();
    assert!(error.contains("time 1099511627776 is over 32 bits") && error.contains("use csv"), "{error}");
    drop(writer);
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    write(&path, TraceFormat::OracleGeneral, &[Access { time: 5, ..one }]);
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn what_cannot_be_written_is_refused() {
    let refused = |name: &str, format| match create(name, format, None) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert!(
        refused("x", TraceFormat::Vscsi).contains("vscsi is read but not written; use oracle-general or csv")
    );
    assert!(refused("x.csv.xz", TraceFormat::Csv).contains("xz is read but not written"));
    assert!(refused("/nowhere/at/all/x.csv", TraceFormat::Csv).starts_with("/nowhere/at/all/x.csv: "));
}
