//! Readers against bytes written out by hand, and against bytes that are wrong in every way. Not real traces.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::access::{AccessOperation, NextAccess};

pub(super) fn read(bytes: &[u8], format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
    TraceReader::new(Path::new("t"), Box::new(Cursor::new(bytes.to_vec())), format)
}

fn all(bytes: &[u8], format: Option<TraceFormat>) -> Result<Vec<Access>, TraceError> {
    read(bytes, format)?.collect()
}

fn error(bytes: &[u8], format: Option<TraceFormat>) -> String {
    all(bytes, format).unwrap_err().to_string()
}

fn access(time: u64, object: u64, bytes: u64, next: NextAccess, operation: AccessOperation) -> Access {
    Access { time, object, bytes, next, operation }
}

/// Twelve accesses to four objects, whose next accesses are right.
fn oracle_general() -> Vec<u8> {
    let record = |number: u64| {
        let next = if number <= 8 { number as i64 + 4 } else { -1 };
        let object = 0x1_0000_0000 + number % 4;
        let fields = [&(number as u32 * 10).to_le_bytes()[..], &object.to_le_bytes(), &512u32.to_le_bytes()];
        [fields.concat(), next.to_le_bytes().to_vec()].concat()
    };
    (1..=12).flat_map(record).collect()
}

fn vscsi_1() -> Vec<u8> {
    let record = |number: u64| {
        let command = if number.is_multiple_of(2) { 42u16 } else { 40 };
        let head = [number as u32, 4096, 1].map(u32::to_le_bytes).concat();
        let tail = [number % 4, number * 1_000_000].map(u64::to_le_bytes).concat();
        [head, command.to_le_bytes().to_vec(), 0x100u16.to_le_bytes().to_vec(), tail].concat()
    };
    (1..=12).flat_map(record).collect()
}

fn vscsi_2() -> Vec<u8> {
    let record = |number: u64| {
        let head = [42u16, 0x200].map(u16::to_le_bytes).concat();
        let middle = [number as u32, 4096, 1].map(u32::to_le_bytes).concat();
        [head, middle, [number % 4, number * 1_000_000, 77].map(u64::to_le_bytes).concat()].concat()
    };
    (1..=12).flat_map(record).collect()
}

fn lcs(version: u64, record: &[u8]) -> Vec<u8> {
    const MAGIC: u64 = 0x1234_5678_9abc_def0;
    let mut bytes = [MAGIC, version, 1, 2].map(u64::to_le_bytes).concat();
    bytes.resize(8192 - 8, 0);
    [&bytes[..], &MAGIC.to_le_bytes(), record, record].concat()
}

const META_2024: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
    604038471,82131353f9ddc8c6,48,GET,1,87,1,0,366387042,3003229276\n\
    604038473,7,67,SET_LEASE,3,65,0,7200,2777918327,655456894\n";
const META_2022: &str = "key,op,size,op_count,key_size\n1668757755,SET,82,1,40\n1668757755,GET,0,2,40\n";
const META_CDN: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL\n\
    1678838400123,99,1,5000,400,0,0,399,0\n1678838401,98,12,0,400,0,0,399,0\n";
const TWITTER: &str = "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n0,with,commas,11,27,6,set,86400\n1,q:q:1:8WTfjZU14ee,17,0,4,delete,0\n";
const CSV: &str = "time,obj_id,size,op,next\n1.5,7,512,read,3\n2,\"a,b\",1024,set,-1\n3,7,512,,\n";

#[test]
fn every_format_is_found_and_read() {
    use AccessOperation::{Delete, Read, Write};
    use NextAccess::{Known, Never, Unknown};
    let check = |bytes: &[u8], format, length, index: usize, expected| {
        let accesses = all(bytes, None).unwrap();
        assert_eq!((accesses.len(), accesses[index]), (length, expected), "{format}");
        assert_eq!(read(bytes, None).unwrap().format(), format);
        assert_eq!(all(bytes, Some(format)).unwrap(), accesses, "{format}");
    };
    let object = 0x1_0000_0001;
    check(&oracle_general(), TraceFormat::OracleGeneral, 12, 0, access(10, object, 512, Known(5), Read));
    check(&oracle_general(), TraceFormat::OracleGeneral, 12, 8, access(90, object, 512, Never, Read));
    check(&vscsi_1(), TraceFormat::Vscsi, 12, 1, access(2, 2, 4096, Unknown, Write));
    check(&vscsi_1(), TraceFormat::Vscsi, 12, 4, access(5, 1, 4096, Unknown, Read));
    check(&vscsi_2(), TraceFormat::Vscsi, 12, 4, access(5, 1, 4096, Unknown, Write));
    let narrow: Vec<u8> = [1u32, 2, 9, 1, 2, 7].repeat(4).into_iter().flat_map(u32::to_be_bytes).collect();
    check(&narrow, TraceFormat::KeysBe32, 24, 2, access(0, 9, 1, Unknown, Read));
    let wide: Vec<u8> = (0..64u64).flat_map(|key| (key % 17).to_be_bytes()).collect();
    check(&wide, TraceFormat::KeysBe64, 64, 20, access(0, 3, 1, Unknown, Read));
    check(b"apple\n17\n\napple\r\n", TraceFormat::Text, 3, 1, access(0, 17, 1, Unknown, Read));
    check(
        TWITTER.as_bytes(),
        TraceFormat::Twitter,
        3,
        2,
        access(1, object_of("q:q:1:8WTfjZU14ee"), 17, Unknown, Delete),
    );
    check(
        TWITTER.as_bytes(),
        TraceFormat::Twitter,
        3,
        1,
        access(0, object_of("with,commas"), 38, Unknown, Write),
    );
    check(
        META_2024.as_bytes(),
        TraceFormat::Meta,
        4,
        0,
        access(604_038_471, object_of("82131353f9ddc8c6"), 135, Unknown, Read),
    );
    check(META_2024.as_bytes(), TraceFormat::Meta, 4, 3, access(604_038_473, 7, 132, Unknown, Write));
    check(META_2022.as_bytes(), TraceFormat::Meta, 3, 2, access(0, 1_668_757_755, 40, Unknown, Read));
    check(META_CDN.as_bytes(), TraceFormat::Meta, 2, 0, access(1_678_838_400, 99, 5000, Unknown, Read));
    check(META_CDN.as_bytes(), TraceFormat::Meta, 2, 1, access(1_678_838_401, 98, 400, Unknown, Read));
    check(CSV.as_bytes(), TraceFormat::Csv, 3, 0, access(1, 7, 512, Known(3), Read));
    check(CSV.as_bytes(), TraceFormat::Csv, 3, 1, access(2, object_of("a,b"), 1024, Never, Write));
    check(CSV.as_bytes(), TraceFormat::Csv, 3, 2, access(3, 7, 512, Unknown, Read));
}

fn object_of(key: &str) -> u64 {
    crate::object_id(key.as_bytes())
}

#[test]
fn all_versions_of_lcs_are_read_and_others_refused() {
    let check = |version, record: &[u8], operation| {
        let expected = access(5, 6, 7, NextAccess::Never, operation);
        assert_eq!(all(&lcs(version, record), None).unwrap(), [expected; 2], "version {version}");
    };
    let head = [&5u32.to_le_bytes()[..], &6u64.to_le_bytes()].concat();
    let (narrow, wide) = (7u32.to_le_bytes(), 7u64.to_le_bytes());
    let never = (-1i64).to_le_bytes();
    check(1, &[&head[..], &narrow, &never].concat(), AccessOperation::Read);
    check(2, &[&head[..], &narrow, &[9, 1, 1, 1], &never].concat(), AccessOperation::Delete);
    for (version, features) in [(3, 0), (4, 1), (5, 2), (6, 4), (7, 8), (8, 16)] {
        let record =
            [&head[..], &wide, &[3, 1, 1, 1], &[60, 0, 0, 0], &never, &vec![9; 4 * features]].concat();
        check(version, &record, AccessOperation::Write);
    }
    assert!(error(&lcs(9, &[0; 24]), None).contains("lcs version 9 is not known"));
    let mut old = lcs(1, &[0; 24]);
    old[8184] = 0;
    assert!(error(&old, None).contains("traceConv"));
    assert!(error(&lcs(1, &[0; 24])[..8000], None).contains("cut off: 8000 of 8192"));
    assert!(error(&lcs(1, &[])[..], None).contains("promises 2 records"));
}

#[test]
fn every_compression_is_undone_frame_by_frame() {
    let plain = oracle_general();
    let (first, second) = plain.split_at(100);
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |part: &[u8]| zstd::encode_all(part, 1).unwrap();
    let xz = |part: &[u8]| {
        let mut encoder =
            lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let mut long = zstd::Encoder::new(Vec::new(), 1).unwrap();
    long.window_log(28).unwrap();
    long.write_all(&plain).unwrap();
    let skipped = [&0x184d_2a50_u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
    for (compression, bytes) in [
        (Compression::None, plain.clone()),
        (Compression::Gzip, [gzip(first), gzip(second)].concat()),
        (Compression::Zstd, [zstd(first), zstd(second)].concat()),
        (Compression::Zstd, [skipped, zstd(&plain)].concat()),
        (Compression::Zstd, long.finish().unwrap()),
        (Compression::Xz, [xz(first), xz(second)].concat()),
    ] {
        let reader = read(&bytes, None).unwrap();
        assert_eq!(reader.compression(), compression);
        let accesses: Result<Vec<Access>, TraceError> = reader.collect();
        assert_eq!(accesses.unwrap(), all(&plain, None).unwrap(), "{compression}");
        let cut = all(&bytes[..bytes.len() - 10], Some(TraceFormat::OracleGeneral)).unwrap_err().to_string();
        let expected = match compression {
            Compression::None => "it is cut off: 14 of 24 bytes".to_owned(),
            _ => format!("the {compression} stream is cut off"),
        };
        // Of a single frame nothing may come out before it breaks off.
        assert!(cut.ends_with(&expected), "{compression}: {cut}");
        let trailing = all(&[&bytes[..], b"trailing"].concat(), Some(TraceFormat::OracleGeneral))
            .unwrap_err()
            .to_string();
        let expected =
            if compression == Compression::None { "it is cut off: 8" } else { "stream is damaged: " };
        assert!(trailing.contains(expected), "{compression}: {trailing}");
        if compression == Compression::Gzip {
            assert_eq!(
                trailing,
                "t: record 13 at byte 288: the gzip stream is damaged: other bytes follow its end"
            );
            assert!(error(&gzip(&bytes), None).contains("this is compressed twice; decompress it first"));
        }
    }
}

#[test]
fn errors_name_the_place_and_the_problem() {
    let check = |bytes: &[u8], format, expected: &str| {
        let error = error(bytes, format);
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    let oracle = oracle_general();
    check(&oracle[..oracle.len() - 5], None, "t: record 12 at byte 264: it is cut off: 19 of 24 bytes");
    let mut backwards = oracle.clone();
    backwards[24 + 16] = 1;
    check(
        &backwards,
        Some(TraceFormat::OracleGeneral),
        "record 2 at byte 24: its next access is 1, which is not a later",
    );
    let mut mixed = vscsi_1();
    mixed[3 * 32 + 15] = 2;
    check(&mixed, Some(TraceFormat::Vscsi), "record 4 at byte 96: it is of vscsi version 2");
    check(b"", None, "this trace is empty");
    check(
        &oracle,
        Some(TraceFormat::Vscsi),
        "its first record is neither of vscsi version 1 nor of version 2",
    );
    check(&oracle, Some(TraceFormat::Lcs), "its first eight bytes are others");
    check(b"1,get\n", Some(TraceFormat::Twitter), "line 1 at byte 0: it has fewer than the seven columns");
    check(b"time,size\n1,2\n", Some(TraceFormat::Csv), "names no column object");
    check(b"id,size\n7,1\n\n8\n", None, "line 4 at byte 13: it has 1 columns, and column 2 is missing");
    check(b"id,size\n7,-1\n", None, "line 2 at byte 8: size \"-1\" is not a number from 0");
    check(b"id;time\n7;noon\n", None, "time \"noon\" is not a time in seconds");
    check(b"id,op\n7,fly\n", None, "operation \"fly\" is not an operation");
    check(b"id,next\n7,1\n", None, "next access \"1\" is not -1 or the number of a later one");
    check(b"a,b\n", Some(TraceFormat::Meta), "neither a header nor a row of Meta's traces");
    check(b"key,op,size,op_count,key_size\n1,GET,1,0,1\n", None, "line 2 at byte 30: an op_count of 0");
    check(&[b'x'; 3 << 20], Some(TraceFormat::Text), "a line of over 1048576 bytes");
    let reader = read(&oracle[..30], None).unwrap();
    assert_eq!(reader.map(|read| read.is_ok()).collect::<Vec<_>>(), [true, false], "nothing after an error");
}

#[test]
fn what_fits_several_formats_is_not_guessed_at() {
    let check = |bytes: &[u8], expected: &str| {
        let error = error(bytes, None);
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    check(b"1,2,3\n4,5,6\n", "the first does not say which is the object");
    check(b"1 2 3\n4 5 6\n", "write a header such as time,object,bytes, or name it with --format (text: ");
    let random: Vec<u8> = (0..999u64).flat_map(|n| crate::permutation::mix(n).to_be_bytes()).collect();
    check(&random, "could be keys-be32 or keys-be64; say which with --format");
    check(&random[..random.len() - 1], "no known format fits");
    let named = |name: &str| TraceReader::new(Path::new(name), Box::new(Cursor::new(random.clone())), None);
    assert_eq!(named("x.be64.zst").unwrap().format(), TraceFormat::KeysBe64);
    assert_eq!(named("x.keys-be32").unwrap().format(), TraceFormat::KeysBe32);
    assert!(named("be64").is_err() && named("x.vscsi").is_err(), "a name cannot make a format fit");
}

#[test]
fn compressions_that_are_not_read_are_refused_by_name() {
    for (head, name) in [
        (&b"BZh91AY&SY"[..], "bzip2"),
        (&[4, 0x22, 0x4d, 0x18], "lz4"),
        (&[2, 0x21, 0x4c, 0x18], "lz4"),
        (&[0x5d, 0, 0, 0x80, 0, 255, 255, 255, 255, 255, 255, 255, 255], "lzma"),
        (b"PK\x03\x04", "zip"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
    ] {
        let bytes = [head, &[0; 80]].concat();
        let expected = format!("t: {name} is not read here; decompress it first");
        assert_eq!(error(&bytes, None), expected);
        assert_eq!(error(&bytes, Some(TraceFormat::KeysBe32)), expected);
    }
}

#[test]
fn damage_in_the_part_that_decides_is_named_too() {
    let damaged = |mut bytes: Vec<u8>, at: usize, byte: u8| {
        bytes[at] = byte;
        error(&bytes, None)
    };
    let nearest = "t: no known format fits; ";
    let found = damaged(oracle_general(), 10 * 24 + 16, 1);
    let expected = "oracle-general is nearest, but record 11 at byte 240: its next access is -255, which is not a later one";
    assert_eq!(found, format!("{nearest}{expected}"));
    let found = damaged(oracle_general(), 9 * 24, 0);
    assert_eq!(
        found,
        format!(
            "{nearest}oracle-general is nearest, but record 10 at byte 216: its time 0 is before the last one, 90"
        )
    );
    let found = damaged(vscsi_1(), 9 * 32 + 15, 9);
    assert!(
        found.contains("vscsi is nearest, but record 10 at byte 288: it is of vscsi version 9"),
        "{found}"
    );
    let found = damaged(CSV.as_bytes().to_vec(), CSV.find("1.5").unwrap(), 0);
    assert!(found.contains("line 2 at byte 25: time \"\\0.5\" is not a time"), "{found}");
    let twitter = format!("{}0,key,17,x,4,get,0\n", "0,key,17,213,4,get,0\n".repeat(20));
    assert!(error(twitter.as_bytes(), None).contains("line 21 at byte 420: size \"x\" is not a number"));
}

/// Whatever the keys are and however popular, as long as they are asked for again or lie close together.
#[test]
fn bare_keys_are_told_apart_by_what_they_are() {
    use crate::permutation::mix;
    let keys = |distribution: &str, objects| {
        let distribution = distribution.parse().unwrap();
        let workload =
            crate::Workload { keys: objects, distribution, write_ratio: 0.0, value_bytes: 0, seed: 1 };
        workload.requests(0).unwrap().map(|request| request.key)
    };
    for count in [40, 1000, 100_000] {
        for (name, keys) in [
            ("zipf", keys("zipf:0.9", 10_000).take(count).collect::<Vec<u64>>()),
            ("adversary", keys("adversary:3", 3).take(count).collect()),
            ("scan", (0..count as u64).collect()),
            ("scans", (0..count as u64).map(|key| key % 30 + 5_000_000).collect()),
            ("hashed", keys("zipf:1.2", 500).take(count).map(mix).collect()),
        ] {
            let narrow: Vec<u8> = keys.iter().flat_map(|key| (*key as u32).to_be_bytes()).collect();
            let wide: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
            let found = |bytes: &[u8]| read(bytes, None).unwrap().format();
            assert_eq!(found(&narrow), TraceFormat::KeysBe32, "{name}, {count}");
            assert_eq!(found(&wide), TraceFormat::KeysBe64, "{name}, {count}");
        }
    }
}

/// One trace of each format that a hand or a disk may then damage.
fn samples() -> Vec<(TraceFormat, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (TraceFormat::OracleGeneral, oracle_general()),
        (TraceFormat::Vscsi, vscsi_1()),
        (TraceFormat::Vscsi, vscsi_2()),
        (TraceFormat::KeysBe32, oracle_general()),
        (TraceFormat::KeysBe64, oracle_general()),
        (TraceFormat::Lcs, lcs(1, &[255; 24])),
        (TraceFormat::Lcs, lcs(3, &[255; 36])),
        (TraceFormat::Text, text(TWITTER)),
        (TraceFormat::Twitter, text(TWITTER)),
        (TraceFormat::Meta, text(META_2024)),
        (TraceFormat::Meta, text(META_2022)),
        (TraceFormat::Csv, text(CSV)),
    ]
}

/// Reads to the end; whatever the bytes are, that neither panics nor goes on after an error.
fn survives(bytes: &[u8], format: Option<TraceFormat>) -> Result<(), TestCaseError> {
    let Ok(mut reader) = read(bytes, format) else { return Ok(()) };
    let failed = reader.by_ref().take(1 << 22).any(|read| read.is_err());
    prop_assert!(reader.next().is_none(), "goes on, failed: {failed}");
    Ok(())
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        survives(&bytes, None)?;
        for format in TraceFormat::ALL {
            survives(&bytes, Some(format))?;
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "([0-9a-z,;|\"\\.-]{0,30}(\n|\r\n)){0,30}") {
        survives(text.as_bytes(), None)?;
        for format in TraceFormat::ALL {
            survives(text.as_bytes(), Some(format))?;
            let headed = format!("time,id,size,op,next\n{text}");
            survives(headed.as_bytes(), Some(format))?;
        }
    }

    #[test]
    fn no_damage_makes_a_reader_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        end in any::<prop::sample::Index>(),
    ) {
        for (format, mut bytes) in samples() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(end.index(bytes.len() + 1));
            survives(&bytes, Some(format))?;
            survives(&bytes, None)?;
        }
    }

    /// Decompressors get damaged data, too.
    #[test]
    fn no_damaged_compression_makes_a_reader_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let plain = oracle_general();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&plain).unwrap();
        for mut bytes in [gzip.finish().unwrap(), zstd::encode_all(&plain[..], 1).unwrap()] {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            survives(&bytes, Some(TraceFormat::OracleGeneral))?;
        }
    }
}
