//! The formats of traces and their names on the command line. Not their bytes.

use std::fmt;
use std::str::FromStr;

/// How a trace is stored; whether it is compressed besides is always found out by looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceFormat {
    /// libCacheSim's packed 24-byte records, with the next access of each object.
    OracleGeneral,
    /// Block requests of VMware's vscsiStats, versions 1 and 2.
    Vscsi,
    /// Columns that a header names.
    Csv,
    /// One key per line.
    Text,
    /// Keys only, big-endian.
    KeysBe32,
    KeysBe64,
    /// twitter/cache-trace.
    Twitter,
    /// The key-value and CDN traces of CacheLib.
    Meta,
    /// libCacheSim's own records behind a header.
    Lcs,
}

/// Why a text is not the name of a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {text:?}; use {}", names(&TraceFormat::ALL))]
pub struct FormatError {
    text: String,
}

impl TraceFormat {
    pub const ALL: [TraceFormat; 9] = [
        TraceFormat::OracleGeneral,
        TraceFormat::Vscsi,
        TraceFormat::Csv,
        TraceFormat::Text,
        TraceFormat::KeysBe32,
        TraceFormat::KeysBe64,
        TraceFormat::Twitter,
        TraceFormat::Meta,
        TraceFormat::Lcs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::OracleGeneral => "oracle-general",
            TraceFormat::Vscsi => "vscsi",
            TraceFormat::Csv => "csv",
            TraceFormat::Text => "text",
            TraceFormat::KeysBe32 => "keys-be32",
            TraceFormat::KeysBe64 => "keys-be64",
            TraceFormat::Twitter => "twitter",
            TraceFormat::Meta => "meta",
            TraceFormat::Lcs => "lcs",
        }
    }
}

/// `a, b or c`.
pub(crate) fn names(formats: &[TraceFormat]) -> String {
    let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl FromStr for TraceFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<TraceFormat, FormatError> {
        let named = TraceFormat::ALL.into_iter().find(|format| format.name() == text);
        named.ok_or_else(|| FormatError { text: text.to_owned() })
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_are_refused_with_the_list() {
        for format in TraceFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "oracleGeneral".parse::<TraceFormat>().unwrap_err().to_string();
        assert!(error.starts_with("unknown format \"oracleGeneral\"; use oracle-general, vscsi"), "{error}");
        assert!(error.ends_with("meta or lcs"), "{error}");
    }
}
