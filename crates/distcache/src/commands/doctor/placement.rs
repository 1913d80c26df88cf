//! Whether keys lie where the configuration looks for them, and if not, by which other `[placement]` they would. A sample tells.

use std::time::Duration;

use config::{Config, DistributionName, HashName, PlacementConfig};
use runtime::tls::Certificates;
use shim::survey::{ServerSeen, survey};
use wire::ShimId;

use super::finding::DoctorFindings;

const SUBJECT: &str = "[placement]";
/// A placement fits from this part of the sample on; the rest somebody has written past it.
const FITS_PERCENT_MIN: usize = 95;
/// Equally good ones that are named.
const NAMED_MAX: usize = 3;

/// A way to lay out keys, and how many of the sample lie as it says.
struct Fit {
    placement: PlacementConfig,
    at_home: usize,
}

pub(super) fn check(
    config: &Config,
    certificates: &Certificates,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let is_plain =
        |shim: &config::ShimConfig| shim.storage.redis().is_some() && !shim.storage.is_redis_cluster();
    if config.shims.len() < 2 || !config.shims.iter().all(is_plain) {
        return Ok(());
    }
    let shims: Vec<ShimId> = (0..config.shims.len()).map(|index| ShimId(index as u16)).collect();
    let seen = survey(config, certificates, &shims, patience)?;
    judge(config, &seen, findings);
    Ok(())
}

fn judge(config: &Config, seen: &[ServerSeen], findings: &mut DoctorFindings) {
    let sampled: usize = seen.iter().map(|seen| seen.sample.len()).sum();
    if sampled == 0 {
        return;
    }
    let (word, own) = (config.placement_word(), at_home(config, config, seen));
    let what =
        format!("{own} of {sampled} sampled keys of {} servers lie where {word} puts them", seen.len());
    if own == sampled {
        return findings.good(SUBJECT, &what);
    }
    let fits = others(config, seen);
    let best = fits.iter().map(|fit| fit.at_home).max().unwrap_or(0);
    let does_fit = |count: usize| count * 100 >= sampled * FITS_PERCENT_MIN;
    if does_fit(own) && own >= best {
        let advice = "they are not found: who has written them has written past DistCache; look at the log of `distcache up`";
        return findings.doubt(SUBJECT, &what, advice);
    }
    let equal: Vec<String> =
        fits.iter().filter(|fit| fit.at_home == best).map(|fit| fit.placement.toml()).collect();
    let advice = match (does_fit(best), equal.as_slice()) {
        (true, [first, rest @ ..]) => {
            let named: Vec<&str> = rest.iter().take(NAMED_MAX).map(String::as_str).collect();
            let as_well = match rest.len() {
                0 => String::new(),
                count => format!(
                    "; {count} others fit as well, for this sample does not tell them apart: {}",
                    named.join("; or ")
                ),
            };
            format!("write [placement] {first}, where {best} lie as it says{as_well}")
        }
        (_, [first, ..]) => format!(
            "no placement that is known fits; the nearest is {first}, with {best}. Have the [[shim]] entries the order, the weight \
             and the server_name that the other software has, and are these all of its servers? If DistCache wrote the keys, bring \
             its secret and its list of servers back"
        ),
        _ => "bring the secret and the list of servers back with which DistCache wrote the keys".to_owned(),
    };
    findings.wrong(SUBJECT, &what, &advice);
}

/// How many of the sample lie where `config` would look for them; they were drawn for the shims of `drawn`.
fn at_home(config: &Config, drawn: &Config, seen: &[ServerSeen]) -> usize {
    let Ok(placement) = config.placement(config.map()) else { return 0 };
    let count = |seen: &ServerSeen| {
        let here = config.shim_id(&drawn.shim(seen.shim).id);
        let is_home = |key: &&bytes::Bytes| Some(placement.shim(&placement.key(0, (*key).clone()))) == here;
        seen.sample.iter().filter(is_home).count()
    };
    seen.iter().map(count).sum()
}

/// All other ways, the usual ones first.
fn others(config: &Config, seen: &[ServerSeen]) -> Vec<Fit> {
    let mut fits = Vec::new();
    for &name in DistributionName::ALL {
        let hashes = HashName::ALL.iter().copied().filter(|hash| name.takes(*hash)).map(Some);
        let hashes: Vec<Option<HashName>> = if name.takes_hash() { hashes.collect() } else { vec![None] };
        for hash in hashes {
            for hash_tag in [None, Some("{}"), Some("")] {
                let (distribution, hash_tag) = (Some(name), hash_tag.map(str::to_owned));
                let placement = PlacementConfig { distribution, hash, hash_tag };
                let laid_out = config.laid_out(placement.clone());
                // What says the same in other words is no other way.
                let is_other = |laid_out: &Config| laid_out.placement_word() != config.placement_word();
                let Some(laid_out) = laid_out.filter(is_other) else { continue };
                if placement.hash_tag.is_some() && laid_out.has_default_tag() {
                    continue;
                }
                fits.push(Fit { placement, at_home: at_home(&laid_out, config, seen) });
            }
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::commands::doctor::finding::Level;

    fn config(placement: &str) -> Config {
        let mut text = format!("[cluster]\nsecret = \"{}\"\n{placement}\n", "01".repeat(16));
        for port in 1..=4 {
            text += &format!(
                "[[shim]]\nid = \"s{}\"\nstorage = \"redis://127.0.0.1:{port}\"\n",
                // Another order than by number.
                9 - port
            );
        }
        Config::parse(&text).expect("a configuration")
    }

    /// Keys at the servers where this configuration would have put them, for the shims of the other.
    fn filled(placed: &Config, drawn: &Config, keys: usize) -> Vec<ServerSeen> {
        let placement = placed.placement(placed.map()).expect("a map");
        let seen = |index: usize| ServerSeen {
            shim: ShimId(index as u16),
            address: "127.0.0.1:1".parse().expect("an address"),
            keys: Some(0),
            others_untold: None,
            sample: (0..keys)
                .map(|key| Bytes::from(format!("key-{{{}}}:{key}", key % 97)))
                .filter(|key| {
                    let shim = placement.shim(&placement.key(0, key.clone()));
                    placed.shim(shim).id == drawn.shim(ShimId(index as u16)).id
                })
                .collect(),
            strays: Vec::new(),
            others: Vec::new(),
            other_mark: None,
            has_answered: true,
            trouble: None,
        };
        (0..drawn.shims.len()).map(seen).collect()
    }

    fn found(placed: &str, asked: &str) -> (Level, String, String) {
        let (placed, asked) = (config(placed), config(asked));
        let mut findings = DoctorFindings::default();
        judge(&asked, &filled(&placed, &asked, 400), &mut findings);
        let finding = findings.0.pop().expect("a finding");
        (finding.level, finding.what, finding.advice.unwrap_or_default())
    }

    #[test]
    fn the_placement_that_fits_is_found_from_any_other() {
        let placements = [
            "distribution = \"ketama\"\nhash = \"murmur\"",
            "distribution = \"ketama\"\nhash = \"hsieh\"\nhash_tag = \"{}\"",
            "distribution = \"modula\"\nhash = \"fnv1_64\"",
            "distribution = \"slots\"",
            "distribution = \"jump\"\nhash = \"xxh64\"",
        ];
        for placed in placements {
            let toml = placed.replace('\n', ", ");
            let placed = format!("[placement]\n{placed}");
            let (level, what, advice) = found(&placed, "");
            assert_eq!(level, Level::Wrong, "{what}");
            assert!(what.contains("of 400 sampled keys of 4 servers lie where ring puts them"), "{what}");
            assert!(advice.starts_with(&format!("write [placement] {toml}, where 400 lie")), "{advice}");
            assert_eq!(found(&placed, &placed).0, Level::Ok);
        }
        let (level, _, advice) = found("[placement]\ndistribution = \"jedis\"", "");
        assert!(level == Level::Wrong && advice.contains("distribution = \"jedis-2\""), "{advice}");
        let (level, _, advice) = found("", "[placement]\ndistribution = \"jedis\"");
        assert!(level == Level::Wrong && advice.contains("distribution = \"ring\""), "{advice}");
        assert_eq!(found("", "").0, Level::Ok);
    }

    #[test]
    fn what_nothing_fits_is_said() {
        let asked = config("");
        let mut seen = filled(&asked, &asked, 400);
        let first = std::mem::take(&mut seen[0].sample);
        let others = std::mem::replace(&mut seen[1].sample, first);
        seen[0].sample = others;
        let mut findings = DoctorFindings::default();
        judge(&asked, &seen, &mut findings);
        let advice = findings.0.pop().and_then(|finding| finding.advice).expect("advice");
        assert!(advice.starts_with("no placement that is known fits"), "{advice}");
        seen.iter_mut().for_each(|seen| seen.sample.clear());
        judge(&asked, &seen, &mut findings);
        assert!(findings.0.is_empty(), "no keys, nothing to say");
    }
}
