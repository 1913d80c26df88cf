//! Whether a row of observations grows: the drift against its own noise. Not what was observed.
//!
//! A stationary queue wanders about, and one near its limit wanders far and long, so that a straight line through it
//! often looks steep and its residuals small. The test is therefore against a random walk: the steps between
//! observations are taken as independent, and growth is seen if their mean is more than `ERRORS` standard errors
//! above zero. For a stationary queue steps are negatively correlated, which makes a false alarm rarer still. The price
//! is a blind spot: with T requests/s, a single overloaded node is seen from an overload of about 4 sqrt(2 / (T t)) on,
//! where t is the observed time; for T = 1000 and 50 s that is 2.5 %. What is overloaded by its known rates is found by
//! `overload`; what is left to this test is growth for other reasons, such as routers that know too little.

/// Observations, without the first.
pub(super) const STEPS: usize = 32;
/// Chosen so that of 1000 driftless walks fewer than one is called growing (Student's t with 31 degrees of freedom).
const ERRORS: f64 = 4.0;

/// The mean step, and whether it is no more than noise.
pub(super) fn drift(observed: &[f64]) -> (f64, bool) {
    let steps: Vec<f64> = observed.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let count = steps.len() as f64;
    let mean = steps.iter().sum::<f64>() / count;
    let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, mean <= ERRORS * (variance / count).sqrt())
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::seeds;

    /// How many of 2000 walks with this drift per step are called steady.
    fn steady(drift_of_walk: f64) -> usize {
        let one = |seed| {
            let mut random = seeds::random(seed, 0);
            let mut at = 0.0;
            let mut walk = vec![at];
            for _ in 0..STEPS {
                // Twelve uniform numbers have a variance of 1.
                let noise: f64 = (0..12).map(|_| random.random::<f64>() - 0.5).sum();
                at += noise + drift_of_walk;
                walk.push(at);
            }
            drift(&walk).1
        };
        seeds::each(1, 2000, one).into_iter().filter(|steady| *steady).count()
    }

    #[test]
    fn drift_is_told_from_noise() {
        assert_eq!(drift(&[5.0, 5.0, 5.0]), (0.0, true));
        assert_eq!(drift(&[5.0, 6.0, 7.0]), (1.0, false));
        assert_eq!(drift(&[5.0, 4.0, 3.0]), (-1.0, true));
        assert!(steady(0.0) >= 1995);
        assert!(steady(-0.5) == 2000);
        assert!(steady(1.5) <= 5);
    }
}
