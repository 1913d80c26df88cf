//! From values to pixels along one axis, and where its ticks are. Not what is drawn there.

use study::reproduce::Axis;

/// Ticks that an axis should have, about.
const TICKS: f64 = 6.0;

pub(super) struct AxisScale {
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Where `from` and `to` are.
    pixels: (f64, f64),
    pub(super) ticks: Vec<Tick>,
}

pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

impl AxisScale {
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> AxisScale {
        if !axis.names.is_empty() {
            let tick = |(name, value): (&String, f64)| Tick { value, label: name.clone() };
            let ticks = axis.names.iter().zip((0..).map(f64::from)).map(tick).collect();
            let to = axis.names.len() as f64 - 0.5;
            return AxisScale { from: -0.5, to, logarithmic: false, pixels, ticks };
        }
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| !axis.logarithmic || *value > 0.0) {
            (from, to) = (from.min(value), to.max(value));
        }
        (from, to) = (axis.from.unwrap_or(from), axis.to.unwrap_or(to));
        if !(from.is_finite() && to.is_finite()) {
            (from, to) = (1.0, 2.0);
        }
        let ticks = if axis.logarithmic { decades(from, &mut to) } else { steps(&mut from, &mut to, axis) };
        AxisScale { from, to, logarithmic: axis.logarithmic, pixels, ticks }
    }

    pub(super) fn pixel(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// The pixel where bars stand: 0, or what is shown that is nearest to it.
    pub(super) fn floor(&self) -> f64 {
        self.pixel(if self.logarithmic { self.from } else { self.from.max(0.0) })
    }
}

/// Round values; an end that the figure does not give moves out to the next of them.
fn steps(from: &mut f64, to: &mut f64, axis: &Axis) -> Vec<Tick> {
    if *to - *from < 1e-9 * to.abs().max(1e-9) {
        (*from, *to) = (*from - 0.5 * from.abs().max(1.0), *to + 0.5 * to.abs().max(1.0));
    }
    let rough = (*to - *from) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    let step = factor * power;
    let first =
        if axis.from.is_some() { (*from / step - 1e-9).ceil() } else { (*from / step + 1e-9).floor() };
    let last = if axis.to.is_some() { (*to / step + 1e-9).floor() } else { (*to / step - 1e-9).ceil() };
    (*from, *to) = (from.min(first * step), to.max(last * step));
    let count = (last - first) as i32;
    (0..=count).map(|index| tick((first + f64::from(index)) * step)).collect()
}

/// Powers of ten, and 2 and 5 times them where there are few.
fn decades(from: f64, to: &mut f64) -> Vec<Tick> {
    if *to <= from {
        *to = from * 10.0;
    }
    let few = (*to / from).log10() < 2.0;
    let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let values = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    let shown = |value: &f64| *value >= from * 0.999_999 && *value <= *to * 1.000_001;
    values.filter(shown).map(tick).collect()
}

fn tick(value: f64) -> Tick {
    Tick { value, label: short(value) }
}

/// A number as short as it can be: 0.05, 1.2, 850, 10k, 8.5M.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    let (divisor, unit) = match size {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    if size > 0.0 && size < 1e-4 {
        return format!("{value:.0e}");
    }
    let text = format!("{:.4}", value / divisor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let scale = AxisScale::new(axis, values.iter().copied(), (0.0, 100.0));
        scale.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(&Axis::from_zero("y"), &[3.0, 1024.0]),
            ["0", "200", "400", "600", "800", "1000", "1200"]
        );
        assert_eq!(
            labels(&Axis::linear("y").between(0.0, 1.0), &[0.5]),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(
            labels(&Axis::logarithmic("x"), &[1.0, 1e6]),
            ["1", "10", "100", "1000", "10k", "100k", "1M"]
        );
        assert_eq!(labels(&Axis::logarithmic("x"), &[10.0, 85.0]), ["10", "20", "50"]);
        assert_eq!(labels(&Axis::named("x", &["a", "b"]), &[]), ["a", "b"]);
    }

    #[test]
    fn values_lie_between_the_ends_even_when_they_are_all_the_same() {
        for axis in [Axis::linear("x"), Axis::logarithmic("x"), Axis::from_zero("x")] {
            for values in [&[7.0][..], &[1.0, 9.0], &[0.001, 0.0011], &[]] {
                let scale = AxisScale::new(&axis, values.iter().copied(), (10.0, 110.0));
                let pixels: Vec<f64> = values.iter().map(|value| scale.pixel(*value)).collect();
                assert!(
                    pixels.iter().all(|pixel| (10.0..=110.0).contains(pixel)),
                    "{axis:?} {values:?}: {pixels:?}"
                );
                assert!(scale.ticks.iter().all(|tick| (9.9..=110.1).contains(&scale.pixel(tick.value))));
            }
        }
    }
}
