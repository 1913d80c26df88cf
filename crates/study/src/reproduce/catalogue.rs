//! Every claim with its number, and what the paper says in short. Not whether it is true.

/// A claim before it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Stated {
    pub id: &'static str,
    pub paper: &'static str,
}

const fn claim(id: &'static str, paper: &'static str) -> Stated {
    Stated { id, paper }
}

/// D: DistCache. S: Small Cache, Big Effect. M: MBalancer.
pub const CLAIMS: [Stated; 23] = [
    claim(
        "D1",
        "Under the uniform workload NoCache, CachePartition, CacheReplication and DistCache have the same throughput \
         (fig. 9a; 1024 servers, so 1024).",
    ),
    claim(
        "D2",
        "Under Zipf 0.9, 0.95 and 0.99: NoCache < CachePartition < DistCache, and DistCache is comparable to \
         CacheReplication, which is optimal for reads (fig. 9a).",
    ),
    claim(
        "D3",
        "With more cached objects DistCache and CacheReplication gain much, then their curves become flat; \
         CachePartition gains little (fig. 9b).",
    ),
    claim(
        "D4",
        "NoCache stops to improve after a few hundred servers, CachePartition when there are many racks; DistCache \
         scales linearly and like CacheReplication (fig. 9c).",
    ),
    claim(
        "D5",
        "With writes CacheReplication drops very quickly and DistCache slowly; in the end all three caches are below \
         NoCache, which does not change (fig. 10a: Zipf 0.9, 640 entries; 10b: Zipf 0.99, 6400 entries).",
    ),
    claim(
        "D6",
        "Four of 32 spine switches fail: throughput falls to 87.5 %. At half of the maximum rate, once their \
         partitions are moved, everything is served again (fig. 11).",
    ),
    claim(
        "D7",
        "Lemma 1: a perfect matching exists with high probability for R = (1 - e) alpha m T, any distribution with \
         max p_i R <= T/2; in practice alpha is close to 1.",
    ),
    claim("D8", "Lemma 2: if a perfect matching exists, the power of two choices is stationary."),
    claim(
        "D9",
        "Lemma 3, section 3.3: with one hash, or a random one of the two places, the system is not stationary with \
         constant probability; two choices are life or death, not a factor of log n.",
    ),
    claim(
        "D10",
        "Section 3.3: the layers may have different numbers of nodes, and nodes different throughputs (a large node \
         is several small ones).",
    ),
    claim(
        "D11",
        "Section 3.1: O(l log l) objects per leaf and O(m log m) in the whole spine layer are enough, l servers in \
         each of m racks.",
    ),
    claim(
        "S1",
        "Eq. 8-12, 14, 17 and figures 4-6: k = 8 gives a normalised load of about 1.2; 100 nodes and entries of \
         1 KiB need about 4 MB of cache.",
    ),
    claim(
        "S2",
        "The bound of Eq. 8 with alpha = 2 has a small gap to the simulated maximum, and one worst x exists \
         (fig. 4; n = 100, c = 1000, 1000 runs).",
    ),
    claim(
        "S3",
        "Up to 85 nodes of 10,000 requests/s: without a cache only the uniform workload scales, Zipf 1.01 flattens, \
         the adversary gets 10,000; with 8 n ln n + 1 entries every workload scales at least like the uniform one \
         (fig. 7).",
    ),
    claim(
        "S4",
        "Without a cache throughput grows with the number x of keys asked for, from one node's; at x = 100, 28 of \
         85 nodes are idle (figs. 8, 9).",
    ),
    claim(
        "S5",
        "With c = 3000 and 85 nodes the cache's part shrinks as x grows and the total converges to what the nodes \
         can do (fig. 10); the worst case is above the bound but for the smallest cache (fig. 11).",
    ),
    claim(
        "S6",
        "Section 4.4, Eq. 17: v virtual nodes per node need a cache larger by the factor v + v log_n v for the same \
         bound.",
    ),
    claim(
        "M1",
        "The 10 hottest of 1000 keys on every server raise the imbalance factor (average over maximum; 40-60 % \
         without, for 10 servers) and Jain's index and lower the coefficient of variation (figs. 2-4; mean of \
         100 runs).",
    ),
    claim(
        "M2",
        "10 of 1000 keys carry 0.39 of the requests; with them on all of 10 servers the imbalance factor is about \
         0.8 (figs. 6, 7).",
    ),
    claim("M3", "About 10 copied keys are worth 2-10 more servers (fig. 5; replicating the busiest ones)."),
    claim(
        "M4",
        "One group of all servers and two groups of half of them cannot be told apart; more groups cost a little, \
         less the more servers there are (fig. 10).",
    ),
    claim("M5", "Moving keys between servers without copies almost never helps."),
    claim(
        "M6",
        "Throughput follows the imbalance factor; MBalancer raises it and lowers latency (figs. 12, 13: 64 clients, \
         2 memcached servers, a skewed hash).",
    ),
];

/// Claims by their numbers, with commas; in the order of the catalogue.
pub fn parse(list: &str) -> Result<Vec<&'static str>, String> {
    let wanted: Vec<&str> = list.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    if wanted.is_empty() {
        return Err("no claim is named".to_owned());
    }
    if let Some(id) = wanted.iter().find(|id| !CLAIMS.iter().any(|claim| claim.id.eq_ignore_ascii_case(id))) {
        return Err(format!("there is no claim {id:?}; there are D1 to D11, S1 to S6 and M1 to M6"));
    }
    let is_wanted = |claim: &&Stated| wanted.iter().any(|id| claim.id.eq_ignore_ascii_case(id));
    Ok(CLAIMS.iter().filter(is_wanted).map(|claim| claim.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_three_papers_stands_there_once() {
        let due = (1..=11).map(|number| format!("D{number}"));
        let due = due.chain((1..=6).map(|number| format!("S{number}")));
        let due: Vec<String> = due.chain((1..=6).map(|number| format!("M{number}"))).collect();
        let own: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        assert_eq!(own, due);
    }

    #[test]
    fn lists_are_read_and_what_is_wrong_with_them_is_said() {
        assert_eq!(parse("S3,D1, d2,D1").unwrap(), ["D1", "D2", "S3"]);
        assert!(parse("D12").unwrap_err().contains("no claim \"D12\"; there are D1 to D11"));
        assert!(parse(" ,").unwrap_err().contains("no claim is named"));
    }
}
