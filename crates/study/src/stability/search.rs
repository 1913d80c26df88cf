//! The largest alpha at which simulated queues do not grow, by halving. Not the exact limit, which `matching` computes.

use super::{StabilityError, StabilityRun, StabilitySettings, run};

/// The largest stationary load for one seed. Where several groups of nodes are full at nearly the same rate, a run of `settings.seconds` may not tell
/// which of them is first, and the result lies above the exact limit by a little.
pub fn alpha_stationary(
    settings: &StabilitySettings,
    seed: u64,
    tolerance: f64,
) -> Result<f64, StabilityError> {
    let (mut low, mut high) = (0.0, settings.model.alpha_bound());
    while high - low > tolerance {
        let alpha = f64::midpoint(low, high);
        let StabilityRun { stationary, .. } = run(&StabilitySettings { alpha, ..settings.clone() }, seed)?;
        if stationary { low = alpha } else { high = alpha }
    }
    Ok(f64::midpoint(low, high))
}
