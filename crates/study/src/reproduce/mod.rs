//! The papers' claims, computed again: what each says, what comes out here, and the figures. Not how they are drawn.

mod capacity;
mod catalogue;
mod closed_loop;
mod figure;
mod hot_keys;
mod matching;
mod small_cache;
mod small_cache_nodes;
mod stability;
mod writes_and_failures;

pub use catalogue::{CLAIMS, Stated, parse};
pub use figure::{Axis, Figure, FigurePoint, FigureSeries, Style};

/// How much work a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Fewer seeds and smaller sizes: minutes.
    Quick,
    Full,
}

impl Effort {
    /// The first of two numbers for a quick run, the second for a full one.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}

/// What came out of checking one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The paper's number or statement comes out.
    Holds,
    /// The ordering or the form of a curve comes out, its numbers or one of its parts do not.
    HoldsInShape,
    DoesNotHold,
}

impl ClaimVerdict {
    pub fn word(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::HoldsInShape => "holds in shape",
            ClaimVerdict::DoesNotHold => "does not hold",
        }
    }

    /// All of the statement, the main part of it, or not even that.
    pub fn of(main: bool, rest: bool) -> ClaimVerdict {
        match (main, rest) {
            (true, true) => ClaimVerdict::Holds,
            (true, false) => ClaimVerdict::HoldsInShape,
            (false, _) => ClaimVerdict::DoesNotHold,
        }
    }
}

/// One claim with its outcome.
#[derive(Clone, Debug)]
pub struct Claim {
    pub id: &'static str,
    /// What the paper says, with its numbers.
    pub paper: &'static str,
    /// Our numbers; where they do not agree, the reason too.
    pub ours: String,
    pub verdict: ClaimVerdict,
    /// What shows it.
    pub command: String,
}

/// What checking one claim yields.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub ours: String,
    pub verdict: ClaimVerdict,
    pub command: String,
    pub figures: Vec<Figure>,
}

/// One claim's check and its share of the work.
#[derive(Clone, Copy)]
pub struct ClaimCheck {
    pub id: &'static str,
    /// Seconds that it takes, about, in a full run.
    pub cost: f64,
    pub run: fn(Effort) -> Evidence,
}

/// Every claim's check, in the order of the catalogue.
pub fn checks() -> Vec<ClaimCheck> {
    let mut checks = vec![closed_loop::CHECK];
    checks.extend(capacity::CHECKS);
    checks.extend(writes_and_failures::CHECKS);
    checks.extend(matching::CHECKS);
    checks.extend(stability::CHECKS);
    checks.extend(small_cache::CHECKS);
    checks.extend(small_cache_nodes::CHECKS);
    checks.extend(hot_keys::CHECKS);
    let place = |check: &ClaimCheck| CLAIMS.iter().position(|claim| claim.id == check.id);
    checks.sort_by_key(place);
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that take no time, in the order of the catalogue.
    const FAST: [&str; 7] = ["D10", "S1", "S6", "M2", "M3", "M4", "M6"];

    #[test]
    fn every_claim_has_one_check() {
        let checked: Vec<&str> = checks().iter().map(|check| check.id).collect();
        let stated: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        assert_eq!(checked, stated);
    }

    #[test]
    fn evidence_has_numbers_a_command_and_figures_of_finite_points() {
        for check in checks().iter().filter(|check| FAST.contains(&check.id)) {
            let evidence = (check.run)(Effort::Quick);
            assert!(evidence.command.starts_with("distcache "), "{}", check.id);
            assert!(evidence.ours.contains(|letter: char| letter.is_ascii_digit()), "{}", check.id);
            for figure in evidence.figures {
                let points: Vec<&FigurePoint> =
                    figure.series.iter().flat_map(|series| &series.points).collect();
                assert!(points.len() > 3, "{}", figure.id);
                let finite = |point: &&FigurePoint| point.x.is_finite() && point.y.is_finite();
                assert!(points.iter().all(finite), "{}", figure.id);
            }
        }
    }

    #[test]
    fn the_numbers_that_the_papers_print_come_out() {
        for id in ["S1", "M2", "M4"] {
            let check = checks().into_iter().find(|check| check.id == id).expect("a claim");
            assert_eq!((check.run)(Effort::Quick).verdict, ClaimVerdict::Holds, "{id}");
        }
    }
}
