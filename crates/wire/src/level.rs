//! Feature levels: what members of different releases may say to each other. Not what each level brings.
//!
//! The header and the first 56 bytes of a greeting are frozen. A release that adds something which members before it would not
//! understand raises [`LEVELS`]`.max`; members use it over a link once both ends of the link speak it, and for what concerns all
//! once the cluster map's level says that everybody does. A release may give up levels that the release before it did not need.

/// The levels that a release speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    pub min: u8,
    pub max: u8,
}

/// The levels that this build speaks.
///
/// | level | since | brings |
/// |-------|-------|--------|
/// | 1     | 0.1.0 | everything that is there |
///
/// With the feature `next` it stands for the release to come: one level more, and fields that this release does not know in
/// all that members tell each other or leave behind. Tests let both serve together.
pub const LEVELS: Levels = Levels { min: 1, max: if NEXT { 2 } else { 1 } };

/// The level of the first release, which is meant where none is told.
pub const fn first() -> u8 {
    1
}

/// The release that this build is of, as members tell each other and people.
pub const RELEASE: &str =
    if NEXT { concat!(env!("CARGO_PKG_VERSION"), "+next") } else { env!("CARGO_PKG_VERSION") };

/// Whether this build stands for the release to come.
pub const NEXT: bool = cfg!(feature = "next");

impl Levels {
    /// The highest level that both speak.
    pub fn common(self, other: Levels) -> Option<u8> {
        let max = self.max.min(other.max);
        (max >= self.min.max(other.min)).then_some(max)
    }
}

impl std::fmt::Display for Levels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Levels { min, max } if min == max => write!(f, "feature level {min}"),
            Levels { min, max } => write!(f, "feature levels {min} to {max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;

    #[test]
    fn the_highest_level_of_both_is_the_common_one() {
        let common = |a: (u8, u8), b: (u8, u8)| {
            let levels = |(min, max)| Levels { min, max };
            assert_eq!(levels(a).common(levels(b)), levels(b).common(levels(a)));
            levels(a).common(levels(b))
        };
        assert_eq!(common((1, 1), (1, 2)), Some(1));
        assert_eq!(common((1, 3), (2, 4)), Some(3));
        assert_eq!(common((2, 2), (2, 2)), Some(2));
        assert_eq!(common((1, 2), (3, 4)), None);
    }
}
