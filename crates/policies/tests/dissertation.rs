//! What the dissertation says of its policies (003: Table 3.4, Table 4.2, section 4.3.3), sentence by sentence. Their naive
//! twins are elsewhere.

use policies::{NEVER, ObjectRequest, PolicySpec, Simulation};

/// A cache and what is asked of it by name; sizes are 1 unless they are given.
struct Cache(Box<dyn Simulation>);

impl Cache {
    fn new(policy: &str, capacity: u64) -> Cache {
        let mut simulation = policy.parse::<PolicySpec>().unwrap().simulation(capacity);
        simulation.reserve(100);
        Cache(simulation)
    }

    fn sized(&mut self, object: u32, bytes: u32) -> bool {
        self.0.run(&[ObjectRequest { object, bytes, next: NEVER }]).requests == 0
    }

    /// One letter for each object; returns a `+` for each hit and a `-` for each miss.
    fn ask(&mut self, objects: &str) -> String {
        let hit = |letter: u8| if self.sized(u32::from(letter - b'a'), 1) { '+' } else { '-' };
        objects.bytes().map(hit).collect()
    }
}

/// Table 3.4: "On a cache miss, the item is inserted at the head of queue 0", which has a quarter of the cache, though the
/// other queues are empty.
#[test]
fn s4lru_inserts_into_queue_0() {
    let mut cache = Cache::new("s4lru", 8);
    assert_eq!(cache.ask("abc"), "---");
    assert_eq!(cache.ask("cb"), "++", "queue 0 holds two objects");
    assert_eq!(cache.ask("a"), "-", "the third has left the cache, not the queue alone");
    let mut filling = Cache::new("s4lru-fill", 8);
    assert_eq!(filling.ask("abcdefgh"), "--------");
    assert_eq!(filling.ask("abcdefgh"), "++++++++", "others use what room there is");
}

/// Table 3.4: "On a cache hit, the item is moved to the head of the next higher queue (items in queue 3 move to the head of
/// queue 3)."
#[test]
fn s4lru_moves_a_hit_one_queue_up() {
    let mut cache = Cache::new("s4lru", 4);
    // In queues of one object each, a is in queue 3 after three hits, and stays there when it is hit again.
    assert_eq!(cache.ask("aaaaaaa"), "-++++++");
    // b reaches queue 2 and c queue 1, so that d is alone in queue 0: the whole cache is in use.
    assert_eq!(cache.ask("bbbccd"), "-++-+-");
    assert_eq!(cache.ask("abcd"), "++++");
}

/// Table 3.4: "items are evicted from the tail of a queue to the head of the next lower queue to maintain the size
/// invariants. Items evicted from queue 0 are evicted from the cache."
#[test]
fn s4lru_lets_tails_fall_queue_by_queue() {
    let mut cache = Cache::new("s4lru", 4);
    assert_eq!(cache.ask("aaaabbbbccccdddd"), "-+++-+++-+++-+++");
    // Each took queue 3 from the one before, which fell into queue 2, 1 and 0.
    assert_eq!(cache.ask("e"), "-", "and e puts a out of queue 0");
    assert_eq!(cache.ask("dcb"), "+++");
    assert_eq!(Cache::new("s4lru", 4).ask("aaaabbbbccccddddea"), "-+++-+++-+++-+++--");
}

/// Section 4.3.3: "Segmented-L LRU maintains L LRU caches of equal size"; with one of them it is LRU, with four S4LRU.
#[test]
fn slru_has_lru_and_s4lru_at_its_ends() {
    let requests = "abcabdacebdfaabcgdhaibcjadkbacelfabmdcnaoabpcdqa";
    for capacity in 4..20 {
        assert_eq!(Cache::new("slru:1", capacity).ask(requests), Cache::new("lru", capacity).ask(requests));
        assert_eq!(Cache::new("slru:4", capacity).ask(requests), Cache::new("s4lru", capacity).ask(requests));
    }
}

/// Section 4.3.3 has segments of equal size, and does not say how they come to be full. Where the lowest may borrow what
/// room the others leave, nothing stays empty, and once they are full nothing is borrowed.
#[test]
fn slru_may_borrow_until_its_segments_are_full() {
    let mut strict = Cache::new("slru:2", 8);
    assert_eq!(strict.ask("abcdeabcd"), "---------", "the lowest segment has four objects");
    let mut borrowing = Cache::new("slru-borrow:2", 8);
    assert_eq!(borrowing.ask("abcdefghabcd"), "--------++++", "or the whole cache");
    assert_eq!(borrowing.ask("ijklefgh"), "--------", "of which requests take the upper half");
    let requests = "abcabdacebdfaabcgdhaibcjadkbacelfabmdcnaoabpcdqa";
    for capacity in [4, 6, 8, 20] {
        let [mut strict, mut borrowing] =
            ["slru:2", "slru-borrow:2"].map(|policy| Cache::new(policy, capacity));
        let filling = "abcdefghijklmnopqrst"[..capacity as usize / 2].chars().flat_map(|letter| [letter; 2]);
        let filling = filling.collect::<String>();
        assert_eq!(strict.ask(&filling), borrowing.ask(&filling));
        assert_eq!(strict.ask(requests), borrowing.ask(requests), "{capacity} objects");
    }
}

/// Table 3.4: LFU is "ordered first by number of hits and then by last-access time".
#[test]
fn lfu_breaks_ties_by_the_last_access() {
    let mut cache = Cache::new("lfu", 3);
    assert_eq!(cache.ask("aabbcd"), "-+-+--", "d puts c out, which was never hit");
    assert_eq!(cache.ask("ab"), "++");
    let mut ties = Cache::new("lfu", 3);
    assert_eq!(ties.ask("abcbacd"), "---+++-", "all were hit once, b longest ago");
    assert_eq!(ties.ask("acb"), "++-");
}

/// Section 4.3.3: p(x) = Lowest + min(L, n(x)) c(x) / s(x) with c(x) = 1: small objects outrank large ones, and requests
/// beyond L do not count.
#[test]
fn gdsf_weighs_requests_against_size_up_to_its_cap() {
    for (policy, large_stays) in [("gdsf", true), ("gdsf:4", true), ("gdsf:3", false)] {
        let mut cache = Cache::new(policy, 100);
        // 4 / 90 against 1 / 25; with the cap 3 / 90.
        for hit in [false, true, true, true] {
            assert_eq!(cache.sized(0, 90), hit);
        }
        cache.sized(1, 25);
        assert_eq!(cache.sized(0, 90), large_stays, "{policy}");
    }
}

/// Section 4.3.3: "Lowest" makes what was popular once leave in the end.
#[test]
fn gdsf_ages() {
    let mut cache = Cache::new("gdsf", 2);
    assert_eq!(cache.ask("aaaa"), "-+++");
    // Newcomers put each other out, ever two with the same priority, and raise the lowest until it is that of a.
    assert_eq!(cache.ask("bcdefghi"), "--------");
    assert_eq!(cache.ask("a"), "-");
    let mut never = Cache::new("lfu", 2);
    assert_eq!(never.ask("aaaabcdefghia"), "-+++--------+", "LFU keeps it for ever");
}

/// The footnote to section 3.7: "It will choose to store an object of size 2x next accessed at time t over storing 2 objects
/// of size x next accessed at times t + 1 and t + 2."
#[test]
fn the_clairvoyant_knows_no_sizes() {
    let mut cache = Cache::new("clairvoyant", 2);
    let mut missed =
        |object, bytes, next| cache.0.run(&[ObjectRequest { object, bytes, next }]).requests == 1;
    assert!(missed(0, 1, 5) && missed(1, 1, 6), "requests 1 and 2");
    assert!(missed(2, 2, 4), "request 3 puts both out");
    assert!(!missed(2, 2, NEVER), "request 4");
    assert!(missed(0, 1, NEVER) && missed(1, 1, NEVER), "requests 5 and 6");
}
