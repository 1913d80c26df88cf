//! The tables of what machines count: from a row follow a plain field and all that status, metrics and their page say of it.
//! Not how they show it.

/// What the number of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticKind {
    /// A total since the start.
    Counter,
    /// What there is now; 0 in a machine's own copy, which only counts.
    Gauge,
    /// Requests refused since the start, by one rule.
    Shed,
}

/// A row of a machine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// The field's, and the metric's after its role; a counter's metric ends with `_total`.
    pub name: &'static str,
    /// The key in the JSON of a status; a shed's is its rule, among all others of `sheds_total`.
    pub key: &'static str,
    pub kind: StatisticKind,
    /// What is counted, in one word; empty for a shed.
    pub unit: &'static str,
    /// What the metric says of itself; of a shed, what the rule refuses.
    pub help: &'static str,
    /// What it means to those who operate it, and when to worry, in Markdown; empty for a shed.
    pub meaning: &'static str,
}

/// The numbers of a table.
pub trait Statistics: Default {
    const TABLE: &'static [Statistic];

    /// The numbers in the order of [`Statistics::TABLE`].
    fn values(&self) -> impl Iterator<Item = u64>;

    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64>;

    /// Each row with its number.
    fn walk(&self) -> impl Iterator<Item = (&'static Statistic, u64)> {
        Self::TABLE.iter().zip(self.values())
    }
}

/// Makes a struct of `u64` fields from rows of the form `name: counter("unit", "help", "meaning"),` with `gauge` for what there
/// is now, or `name: shed("rule", "what it refuses"),`. The key of a counter is `name_total` and that of a gauge its name, if
/// no `as "key"` follows.
macro_rules! statistics {
    ($(#[$of_table:meta])* pub struct $table:ident {
        $($(#[$of_row:meta])* $name:ident:
            $kind:ident($first:literal, $help:literal $(, $meaning:literal)?) $(as $key:literal)?,)*
    }) => {
        $(#[$of_table])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $table {
            $(#[doc = $help] $(#[$of_row])* pub $name: u64,)*
        }

        impl $crate::statistics::Statistics for $table {
            const TABLE: &'static [$crate::statistics::Statistic] = &[$($crate::statistics::Statistic {
                name: stringify!($name),
                help: $help,
                meaning: concat!($($meaning)?),
                ..$crate::statistics::statistics!(@$kind $name $first $($key)?)
            },)*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$name),*].into_iter()
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter()
            }
        }
    };
    (@counter $name:ident $unit:literal) => {
        $crate::statistics::row($crate::statistics::StatisticKind::Counter, concat!(stringify!($name), "_total"), $unit)
    };
    (@counter $name:ident $unit:literal $key:literal) => {
        $crate::statistics::row($crate::statistics::StatisticKind::Counter, $key, $unit)
    };
    (@gauge $name:ident $unit:literal) => {
        $crate::statistics::row($crate::statistics::StatisticKind::Gauge, stringify!($name), $unit)
    };
    (@gauge $name:ident $unit:literal $key:literal) => {
        $crate::statistics::row($crate::statistics::StatisticKind::Gauge, $key, $unit)
    };
    (@shed $name:ident $rule:literal) => {
        $crate::statistics::row($crate::statistics::StatisticKind::Shed, $rule, "")
    };
}

pub(crate) use statistics;

pub(crate) const fn row(kind: StatisticKind, key: &'static str, unit: &'static str) -> Statistic {
    Statistic { name: "", key, kind, unit, help: "", meaning: "" }
}
