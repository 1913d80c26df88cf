//! Which server has which key, beside what the other software answers. Not that members agree on it.

use wire::{Distribution, HashTag, PoolHash, PoolServer, StoragePool, WideHash};

use super::*;

const BRACES: HashTag = HashTag::Between(b'{', b'}');

/// What nutcracker 0.5.0 chooses, by distribution and hash.
const NUTCRACKER: [(Distribution, &str); 24] = [
    (
        Distribution::Ketama(PoolHash::OneAtATime),
        "224204204240441411111433314110410414124122144222442444412434224444144411434031241421112044244012340224142442334404444441",
    ),
    (
        Distribution::Ketama(PoolHash::Md5),
        "444004443244420120411143403413212423044212433144112424340044010414444240114414414434211344044244432444141444244121441244",
    ),
    (
        Distribution::Ketama(PoolHash::Crc16),
        "000000000022222222222222222222222222222200000000000000000000000000000000000000000000000000000000000041444424421413441312",
    ),
    (
        Distribution::Ketama(PoolHash::Crc32),
        "333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333",
    ),
    (
        Distribution::Ketama(PoolHash::Crc32a),
        "444441302144444441144110104121411443412144144401440240444441320121241413442444204211142411444234144144034322441444414314",
    ),
    (
        Distribution::Ketama(PoolHash::Fnv1_64),
        "111111111144444444444444444444444444444444444444444444444444444444444444444444444444444444444444444441304131412044224423",
    ),
    (
        Distribution::Ketama(PoolHash::Fnv1a64),
        "222222222211111111111111111111111111111111111111111111111111111111111111111111111111111111111111111122232234221444244432",
    ),
    (
        Distribution::Ketama(PoolHash::Fnv1_32),
        "222222222211111111114444444444444444444400000000001111111111222222222200000000002222222222333333333343324441410244444421",
    ),
    (
        Distribution::Ketama(PoolHash::Fnv1a32),
        "024343214424213341241444443244412444123444041432134424341204141411312431142421444022443124141431214444443211441224242132",
    ),
    (
        Distribution::Ketama(PoolHash::Hsieh),
        "211242241444441441404141444442122222144114114314044423244114404414420424144424404313444244044141434444010112144144423410",
    ),
    (
        Distribution::Ketama(PoolHash::Murmur),
        "442431111312411211141001424244232410102432442434422210124240324424141243241342234414144241141012410421124111342100421144",
    ),
    (
        Distribution::Ketama(PoolHash::Jenkins),
        "241234420144222222334320342441404113004221112444242123442213222344441141224212214111411241423344433112131302444413142444",
    ),
    (
        Distribution::Modula(PoolHash::OneAtATime),
        "324421030421402202413443414410440110420044442102142442102140442002142413120144421441412113441422414032402443433411400041",
    ),
    (
        Distribution::Modula(PoolHash::Md5),
        "311144241441114440440142442413211141221444144242114242101444304114413301424140002201441114414440244040444440401404414012",
    ),
    (
        Distribution::Modula(PoolHash::Crc16),
        "344041141244410224021110322432230144421120144431144424414144441032443211014444114223444401103224442412444244142444240143",
    ),
    (
        Distribution::Modula(PoolHash::Crc32),
        "434414404411411421123421240144441422143424340314242141341414344224444441141114344441111030301422430141302444144344141241",
    ),
    (
        Distribution::Modula(PoolHash::Crc32a),
        "111110242414424040114444134310242444411120243134014434244444444244231423140101124044413202114214101124144013404421244421",
    ),
    (
        Distribution::Modula(PoolHash::Fnv1_64),
        "444411012311103224441101234223444424322444444223011110444432110144444410112432440111422342322444444411343134314024404440",
    ),
    (
        Distribution::Modula(PoolHash::Fnv1a64),
        "214421442141344134411443144314344134413443144314434134413441144314431434413441344314431443413441344142124212424014401424",
    ),
    (
        Distribution::Modula(PoolHash::Fnv1_32),
        "234244441132244444114444110111243210111001114444421110444432444423422324324444104444011101111032243233334434441440441424",
    ),
    (
        Distribution::Modula(PoolHash::Fnv1a32),
        "444122441111302244222244110344144444223041440311032244113044224444411114443011444422031141224444141144222114424444242414",
    ),
    (
        Distribution::Modula(PoolHash::Hsieh),
        "134321010441344420233244242414124044422442444404404444413424440111412230114124044412311421443444132244412143444114244344",
    ),
    (
        Distribution::Modula(PoolHash::Murmur),
        "344442244411022111442434014312244114431434410141204204414024014124141114131100242041444414241242404444122344444411432212",
    ),
    (
        Distribution::Modula(PoolHash::Jenkins),
        "424432012431240401140414243040441104414223444211444424342044242412441224440234424110014414244442024144444343144414444042",
    ),
];

fn server(name: &str, weight: u32) -> PoolServer {
    PoolServer { name: (!name.is_empty()).then(|| name.to_owned()), weight, slots: Vec::new() }
}

fn pool(distribution: Distribution, servers: &[(&str, u32)]) -> PoolServers {
    let servers = servers.iter().map(|&(name, weight)| server(name, weight)).collect();
    PoolServers::new(&StoragePool { distribution, hash_tag: HashTag::Whole, servers })
}

fn check(pool: &PoolServers, expected: &str) {
    let got: String =
        (0..expected.len()).map(|key| pool.shim(format!("key-{key}").as_bytes()).0.to_string()).collect();
    assert_eq!(got, expected);
}

/// What libmemcached 1.1.4 answers; with weights it does what twemproxy does with MD5.
#[test]
fn servers_are_those_that_libmemcached_chooses() {
    let servers = [("10.0.0.1", 1), ("10.0.0.2", 1), ("cache.example:11212", 1)];
    check(
        &pool(Distribution::Libmemcached, &servers),
        "201201220211022112000110121222202201011112101121201202101112112002120210111010201220000211221022000120100002122110001112",
    );
    let weighted = Distribution::Ketama(PoolHash::Md5);
    check(
        &pool(weighted, &servers),
        "110220202210001120011021122021221101121210102220010210021012102200120002222002011211012120201221110122101120222101011102",
    );
    check(
        &pool(weighted, &[("10.0.0.1", 1), ("10.0.0.2", 3), ("10.0.0.3:11212", 2)]),
        "120221221220001120011121111021121101101110102112110110121112120112110222111201011111121110101111112111221122101121021222",
    );
    let seven: Vec<(String, u32)> = ["a", "b", "c", "d", "e", "f", "g"]
        .into_iter()
        .zip(1..)
        .map(|(host, port)| (format!("{host}:{port}"), 1))
        .collect();
    let seven: Vec<(&str, u32)> = seven.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
    check(
        &pool(weighted, &seven),
        "244111604241200212555161036064661124305412155104430462630220500655440241421416536646334215462616212424621604305026015463",
    );
}

/// What the Ring of go-redis 9.23 chooses, and jump hash over the xxHash of Go.
#[test]
fn servers_are_those_that_go_redis_chooses() {
    check(
        &pool(Distribution::Rendezvous, &[("shard1", 1), ("shard2", 1), ("shard3", 1)]),
        "100200221112110211002012110102101220222021012000112122012112110012201200021110022020111110210200101220022110012011121212",
    );
    check(
        &pool(Distribution::Jump(WideHash::Xxh64), &[("", 1); 7]),
        "635160025510535343223122204251512610665566524464641622425060251202045455464005103312365065463535621040224614600645062243",
    );
}

#[test]
fn modula_counts_through_the_weights_in_the_order_of_names() {
    let pool = pool(Distribution::Modula(PoolHash::Fnv1a32), &[("b", 2), ("aa", 1), ("a", 4)]);
    for number in 0..1000 {
        let key = format!("k{number}");
        let place = [2, 2, 2, 2, 0, 0, 1][(pool_hash(PoolHash::Fnv1a32, key.as_bytes()) % 7) as usize];
        assert_eq!(pool.shim(key.as_bytes()).0, place);
    }
    assert_eq!(pool.shim(b"").0, 2, "nothing at all hashes to 0");
}

/// As `CLUSTER KEYSLOT` has them.
#[test]
fn slots_are_dealt_in_equal_ranges_or_as_servers_say() {
    let mut servers: Vec<PoolServer> = [server("", 1), server("", 1), server("", 1)].to_vec();
    let placed = |servers: &[PoolServer]| {
        let pool = StoragePool {
            distribution: Distribution::Slots,
            hash_tag: BRACES,
            servers: servers.to_vec().into(),
        };
        let pool = PoolServers::new(&pool);
        ["foo", "{foo}bar", "123456789", ""].map(|key| pool.shim(key.as_bytes()).0)
    };
    // Slots 12182, 12182, 12739 and 0.
    assert_eq!(placed(&servers), [2, 2, 2, 0]);
    servers[0].slots = vec![(12_000, 12_200), (14_000, 16_383)];
    servers[1].slots = vec![(0, 11_999)];
    servers[2].slots = vec![(12_201, 13_999)];
    assert_eq!(placed(&servers), [0, 0, 2, 1]);
    let dealt = |servers: &[PoolServer]| slot::are_dealt(servers.iter().map(|server| &server.slots));
    assert!(dealt(&servers) && dealt(&[server("", 1)]));
    for (first, last) in [(12_202, 13_999), (12_200, 13_999), (12_201, 13_998), (12_201, 16_384)] {
        servers[2].slots = vec![(first, last)];
        assert!(!dealt(&servers), "{first}-{last}");
    }
}

#[test]
fn tags_are_those_of_redis_cluster_and_of_twemproxy() {
    for (key, expected) in [
        ("{user1}.name", Some("user1")),
        ("a{b}{c}", Some("b")),
        ("a{}{c}", None),
        ("plain", None),
        ("open{brace", None),
        ("{{x}}", Some("{x")),
        ("}{x}", Some("x")),
    ] {
        assert_eq!(KeyPart::REDIS.tag(key.as_bytes()), expected.map(str::as_bytes), "{key}");
        assert_eq!(
            KeyPart::REDIS.tag(key.as_bytes()).unwrap_or(key.as_bytes()),
            wire::key::hash_tag(key.as_bytes())
        );
    }
    let dollars = KeyPart { tag: HashTag::Between(b'$', b'$'), by_pattern: false };
    assert_eq!(dollars.tag(b"a$b$c$"), Some(&b"b"[..]));
    assert_eq!(dollars.tag(b"a$$c$"), None);
    assert_eq!(KeyPart { tag: HashTag::Whole, by_pattern: false }.tag(b"{a}b"), None);
}

#[test]
fn tags_of_jedis_are_those_of_its_pattern() {
    let part = KeyPart { tag: BRACES, by_pattern: true };
    for (key, expected) in [
        ("{user1}.name", Some("user1")),
        ("{}", None),
        ("{}a}", Some("}a")),
        ("{}{b}", Some("}{b")),
        ("{a\n}{b}", Some("b")),
        ("{a\u{2028}}", None),
        ("{ä}", Some("ä")),
        ("x{", None),
    ] {
        assert_eq!(part.tag(key.as_bytes()), expected.map(str::as_bytes), "{key:?}");
    }
}

#[test]
fn every_server_has_its_share() {
    let servers = [("10.0.0.1", 1), ("10.0.0.2", 3), ("10.0.0.3:11212", 1)];
    let thirds = [33, 33, 33];
    for (distribution, expected) in [
        (Distribution::Libmemcached, thirds),
        (Distribution::Ketama(PoolHash::Fnv1a64), [20, 60, 20]),
        (Distribution::Modula(PoolHash::Md5), [20, 60, 20]),
        (Distribution::Slots, thirds),
        (Distribution::Jump(WideHash::Murmur64a), thirds),
        (Distribution::Jedis, [20, 60, 20]),
        (Distribution::Jedis2, [20, 60, 20]),
        (Distribution::Rendezvous, thirds),
    ] {
        let pool = pool(distribution, &servers);
        let mut counts = [0; 3];
        // The numbers themselves are too much alike for some of the hashes.
        let key = |number: u32| Md5::digest(number.to_be_bytes());
        (0..100_000).for_each(|number| counts[usize::from(pool.shim(&key(number)).0)] += 1);
        for ((count, share), due) in counts.iter().zip(expected).zip(pool.shares(3)) {
            let percent = f64::from(*count) / 1000.0;
            assert!((percent - f64::from(share)).abs() < 9.0, "{counts:?}, {distribution:?}");
            assert!((percent - 100.0 * due).abs() < 1.5, "{counts:?}, {distribution:?} {due}");
        }
    }
}

#[test]
fn servers_are_those_that_nutcracker_chooses() {
    let servers = [("alpha", 1), ("beta", 3), ("gamma", 2), ("delta", 1), ("epsilon", 5)];
    for (distribution, expected) in NUTCRACKER {
        let pool = pool(distribution, &servers);
        let odd = (0..20).map(|number| {
            let bytes = format!("schlüssel-€{number}").into_bytes();
            [bytes, vec![0xff; number % 4]].concat()
        });
        let keys = (0..100).map(|number| format!("key-{number}").into_bytes()).chain(odd);
        let got: String = keys.map(|key| pool.shim(&key).0.to_string()).collect();
        assert_eq!(got, expected, "{distribution:?}");
    }
}

/// What `ShardedJedis` of Jedis 2.9.3 and of 3.10.0 chooses.
#[test]
fn servers_are_those_that_jedis_chooses() {
    let unnamed = |weights: [u32; 4]| weights.map(|weight| ("", weight));
    for distribution in [Distribution::Jedis, Distribution::Jedis2] {
        check(
            &pool(distribution, &unnamed([1, 1, 1, 1])),
            "301203001022230333333102011121200231220012032300123313121113101222333123031213102313232213223300330313210003320003033133",
        );
        check(
            &pool(distribution, &unnamed([1, 3, 2, 1])),
            "301213001022230123333101111111201221220012211300113313211111101222322111011221222313132213223302232311211003110123231131",
        );
    }
    let named = [("node0", 1), ("node1", 3), ("node2", 2), ("node3", 1)];
    check(
        &pool(Distribution::Jedis2, &named),
        "121111213021122121011222111112302310132202130211213012013311011221113312113111221102113133112101112231121222022123111110",
    );
    check(
        &pool(Distribution::Jedis, &named),
        "121212013111211101112010111132100313130101011231212310031111012121013311111323223302133203122101112212121221112011031112",
    );
}
