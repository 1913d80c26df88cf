//! Statistics as JSON: the keys of their table with numbers, among the other fields of a status. Sheds stand elsewhere, by rule.

use std::collections::HashMap;

use protocol::statistics::{StatisticKind, Statistics};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;

pub(crate) fn serialize<T: Statistics, S: Serializer>(
    statistics: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let told = statistics.walk().filter(|(row, _)| row.kind != StatisticKind::Shed);
    serializer.collect_map(told.map(|(row, value)| (row.key, value)))
}

/// What is missing is 0, what is not known is left: the other member may be older or newer.
pub(crate) fn deserialize<'de, T: Statistics, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let mut told = HashMap::<String, Value>::deserialize(deserializer)?;
    let mut statistics = T::default();
    for (row, number) in T::TABLE.iter().zip(statistics.values_mut()) {
        if row.kind != StatisticKind::Shed
            && let Some(value) = told.remove(row.key)
        {
            *number = u64::deserialize(value).map_err(D::Error::custom)?;
        }
    }
    Ok(statistics)
}
