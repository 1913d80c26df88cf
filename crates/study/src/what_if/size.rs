//! Cache sizes as people write them: `8000`, `64MiB`, `0.1ws`. Not what they are compared with.

use std::fmt;
use std::str::FromStr;

use trace::bytes_with_unit;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Bytes, or objects where sizes are ignored.
    Units(u64),
    /// Bytes written with a unit, which make no sense where sizes are ignored.
    Bytes(u64),
    /// A share of the working set.
    WorkingSet(f64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?}: write a size above 0 such as 8000, 64MiB or 0.1ws (of the working set); units are B, kB, MB, GB, TB, KiB, \
     MiB, GiB, TiB and ws"
)]
pub struct SizeError(String);

impl Size {
    /// As a number of bytes or objects, at least 1; the working set is in the same unit.
    pub fn resolve(self, working_set: u64) -> u64 {
        match self {
            Size::Units(units) | Size::Bytes(units) => units,
            Size::WorkingSet(share) => ((working_set as f64 * share) as u64).max(1),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let wrong = || SizeError(text.to_owned());
        if let Some(share) = text.strip_suffix("ws") {
            let share = share.trim().parse::<f64>().ok();
            return share
                .filter(|share| share.is_finite() && *share > 0.0)
                .map(Size::WorkingSet)
                .ok_or_else(wrong);
        }
        let size = match bytes_with_unit(text) {
            Some(bytes) => Size::Bytes(bytes as u64),
            None => Size::Units(text.parse().map_err(|_| wrong())?),
        };
        if size.resolve(1) > 0 { Ok(size) } else { Err(wrong()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Units(units) => write!(f, "{units}"),
            Size::Bytes(bytes) => write!(f, "{bytes}B"),
            Size::WorkingSet(share) => write!(f, "{share}ws"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("8000", Size::Units(8000)),
            ("64MiB", Size::Bytes(64 << 20)),
            ("1.5GiB", Size::Bytes(3 << 29)),
            ("2TB", Size::Bytes(2_000_000_000_000)),
            ("100B", Size::Bytes(100)),
            ("0.1ws", Size::WorkingSet(0.1)),
            ("2ws", Size::WorkingSet(2.0)),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
            assert_eq!(size.to_string().parse(), Ok(size), "{text}");
        }
        assert_eq!(Size::WorkingSet(0.1).resolve(2_029_769_728), 202_976_972);
        assert_eq!(Size::WorkingSet(1e-9).resolve(100), 1);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "0", "-1", "0ws", "-0.1ws", "ws", "MiB", "0MiB", "0.1", "1e3", "8000x", "infws", "0.1B"]
        {
            assert_eq!(text.parse::<Size>(), Err(SizeError(text.to_owned())), "{text}");
        }
    }
}
