//! Each fault does what it says and nothing else, and a seed repeats a run.

use std::io::ErrorKind;

use flash::device::{Device, DeviceFault, FaultRates, FaultyDevice, MemoryDevice, SECTOR};

use super::{content, fill};

const SECTORS: usize = 64;

fn device(seed: u64) -> FaultyDevice<MemoryDevice> {
    FaultyDevice::new(MemoryDevice::new((SECTORS * SECTOR) as u64).unwrap(), seed)
}

fn write(device: &dyn Device, first: usize, sectors: usize, version: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; sectors * SECTOR];
    fill(&mut buffer, first, version);
    device.write((first * SECTOR) as u64, &buffer)
}

/// Which write each sector holds, of versions 1 to 9; 0 where it is none of them.
fn versions(device: &dyn Device) -> Vec<u64> {
    let mut buffer = vec![0; SECTORS * SECTOR];
    device.read(0, &mut buffer).unwrap();
    let version =
        |(sector, bytes): (usize, &[u8])| (1..10).find(|version| content(sector, *version) == bytes);
    buffer.chunks_exact(SECTOR).enumerate().map(version).map(|version| version.unwrap_or(0)).collect()
}

fn fails_next(device: &FaultyDevice<MemoryDevice>, fault: DeviceFault) {
    device.plan(device.operations(), fault);
}

#[test]
fn an_error_leaves_everything_as_it_was() {
    let device = device(1);
    write(&device, 0, SECTORS, 1).unwrap();
    fails_next(&device, DeviceFault::Error);
    assert!(write(&device, 0, SECTORS, 2).unwrap_err().to_string().contains("injected"));
    fails_next(&device, DeviceFault::Error);
    assert!(device.read(0, &mut [0; SECTOR]).is_err());
    for fault in [DeviceFault::Error, DeviceFault::Full, DeviceFault::Torn] {
        fails_next(&device, fault);
        assert!(device.sync().is_err());
        fails_next(&device, fault);
        assert!(device.discard(0, SECTOR as u64).is_err());
    }
    fails_next(&device, DeviceFault::Full);
    assert_eq!(write(&device, 0, 1, 3).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(versions(&device), [1; SECTORS]);
}

#[test]
fn a_torn_write_is_a_prefix() {
    let mut prefixes = Vec::new();
    for case in cases::seeds(400) {
        for (fault, fails) in [(DeviceFault::Torn, true), (DeviceFault::TornUnnoticed, false)] {
            let device = device(case.seed);
            write(&device, 0, SECTORS, 1).unwrap();
            fails_next(&device, fault);
            assert_eq!(write(&device, 8, 16, 2).is_err(), fails);
            let versions = versions(&device);
            let torn = versions.iter().filter(|version| **version == 2).count();
            assert!(torn < 16);
            assert!(versions[8..8 + torn].iter().all(|version| *version == 2), "{versions:?}");
            prefixes.push(torn);
        }
    }
    assert!(cases::alone() || prefixes.contains(&0) && prefixes.iter().any(|torn| *torn > 8));
}

#[test]
fn corruption_is_silent_and_of_one_bit() {
    let device = device(2);
    let wrong_bits = |bytes: &[u8], version: u64| -> u32 {
        let expected = content(0, version);
        bytes.iter().zip(expected).map(|(byte, expected)| (byte ^ expected).count_ones()).sum()
    };
    write(&device, 0, 1, 1).unwrap();
    let mut buffer = [0; SECTOR];
    fails_next(&device, DeviceFault::Corrupted);
    device.read(0, &mut buffer).unwrap();
    assert_eq!(wrong_bits(&buffer, 1), 1);
    device.read(0, &mut buffer).unwrap();
    assert_eq!(wrong_bits(&buffer, 1), 0, "what is stored is whole");
    fails_next(&device, DeviceFault::Corrupted);
    write(&device, 0, 1, 2).unwrap();
    for _ in 0..2 {
        device.read(0, &mut buffer).unwrap();
        assert_eq!(wrong_bits(&buffer, 2), 1);
    }
    write(&device, 0, 2, 3).unwrap();
    device.corrupt(0, 2 * SECTOR as u64).unwrap();
    assert_eq!(versions(&device)[..2], [0, 0]);
    write(&device, 0, 2, 4).unwrap();
    assert_eq!(versions(&device)[..2], [4, 4]);
}

#[test]
fn a_power_cut_spares_what_was_synced_and_nothing_else_for_sure() {
    let mut fates = [0; 3];
    for case in cases::seeds(60) {
        let device = device(case.seed);
        write(&device, 0, 32, 1).unwrap();
        device.sync().unwrap();
        write(&device, 8, 8, 2).unwrap();
        write(&device, 40, 8, 3).unwrap();
        device.cut_power().unwrap();
        assert_eq!(device.read(0, &mut [0; SECTOR]).unwrap_err().kind(), ErrorKind::NotConnected);
        assert!(write(&device, 0, 1, 4).is_err() && device.sync().is_err());
        device.restart();
        let versions = versions(&device);
        let kept = versions[8..16].iter().filter(|version| **version == 2).count();
        assert_eq!(versions[8..8 + kept], vec![2; kept]);
        assert_eq!(versions[8 + kept..16], vec![1; 8 - kept]);
        fates[if kept == 0 {
            0
        } else if kept == 8 {
            1
        } else {
            2
        }] += 1;
        let rest: Vec<u64> = versions[..8].iter().chain(&versions[16..32]).copied().collect();
        assert_eq!(rest, [1; 24]);
        assert!(versions[40..48].iter().all(|version| [0, 3].contains(version)));
        device.sync().unwrap();
        device.cut_power().unwrap();
        device.restart();
        assert_eq!(versions, self::versions(&device), "what survived stays");
    }
    assert!(
        cases::alone() || fates.iter().all(|fate| *fate > 5),
        "lost, kept and torn all happen: {fates:?}"
    );
}

#[test]
fn power_can_go_in_the_middle_of_any_operation() {
    for operation in 0..5 {
        let device = device(9);
        device.plan(operation, DeviceFault::PowerCut);
        let results = [
            write(&device, 0, 8, 1).is_ok(),
            device.sync().is_ok(),
            write(&device, 0, 8, 2).is_ok(),
            device.read(0, &mut [0; SECTOR]).is_ok(),
            device.discard(32 * SECTOR as u64, SECTOR as u64).is_ok(),
        ];
        let expected: Vec<bool> = (0..5).map(|number| number < operation).collect();
        assert_eq!(results.to_vec(), expected);
        device.restart();
        if operation > 1 {
            assert!(versions(&device)[..8].iter().all(|version| [1, 2].contains(version)));
        }
    }
}

#[test]
fn a_seed_repeats_a_run() {
    let run = |seed| {
        let device = device(seed);
        device.set_rates(FaultRates {
            error: 0.1,
            torn: 0.2,
            torn_unnoticed: 0.1,
            corrupted: 0.1,
            full: 0.1,
        });
        let outcomes: Vec<bool> =
            (0..200).map(|number| write(&device, number % 50, 9, 1 + number as u64 % 9).is_ok()).collect();
        device.set_rates(FaultRates::default());
        device.cut_power().unwrap();
        device.restart();
        (outcomes, versions(&device))
    };
    let (outcomes, versions) = run(1);
    assert_eq!((&outcomes, &versions), (&run(1).0, &run(1).1));
    assert_ne!(outcomes, run(2).0);
    let failed = outcomes.iter().filter(|worked| !**worked).count();
    assert!((50..110).contains(&failed), "errors, torn and full: 80 of 200 expected, {failed}");
}
