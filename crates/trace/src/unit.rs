//! Numbers of bytes as people write them: `64MiB`, `1.5GB`. Never bare numbers.

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// A positive number with a unit, in bytes; None for anything else.
pub fn bytes_with_unit(text: &str) -> Option<f64> {
    let (number, bytes) = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))?;
    let number = number.trim().parse::<f64>().ok();
    number.filter(|number| number.is_finite() && *number > 0.0).map(|number| number * bytes as f64)
}
