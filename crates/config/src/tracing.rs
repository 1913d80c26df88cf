//! `[tracing]`: where spans go and how many commands have any. Not the spans.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

/// `[tracing]`: OpenTelemetry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracingConfig {
    /// The collector: `http://HOST:PORT`, to which OTLP's own path is added, or a whole URL.
    pub otlp_endpoint: Option<String>,
    /// About one of so many commands is traced; 0 for none.
    pub sample_one_in: u64,
    /// `service.name`
    pub service_name: String,
    /// `NAME: VALUE` lines for the collector, passwords among them; relative to the configuration file.
    pub headers_file: Option<PathBuf>,
    /// What it says.
    #[serde(skip)]
    pub headers: Arc<Vec<(String, String)>>,
}

/// Where OTLP over HTTP takes spans.
const PATH: &str = "/v1/traces";
impl Default for TracingConfig {
    fn default() -> TracingConfig {
        TracingConfig {
            otlp_endpoint: None,
            sample_one_in: 0,
            service_name: "distcache".to_owned(),
            headers_file: None,
            headers: Arc::default(),
        }
    }
}

impl TracingConfig {
    /// A router follows one of so many commands: none without anybody who takes the spans.
    pub fn one_in(&self) -> u64 {
        if self.otlp_endpoint.is_some() { self.sample_one_in } else { 0 }
    }

    pub fn url(&self) -> Option<String> {
        let endpoint = self.otlp_endpoint.as_deref()?;
        let path_begins = endpoint.strip_prefix("http://").and_then(|rest| rest.find('/'));
        Some(match path_begins.map(|at| at + "http://".len()) {
            Some(at) if at + 1 < endpoint.len() => endpoint.to_owned(),
            _ => format!("{}{PATH}", endpoint.trim_end_matches('/')),
        })
    }

    pub(super) fn read_headers(&mut self, directory: &Path) -> Result<(), String> {
        let Some(path) = &self.headers_file else { return Ok(()) };
        let at = format!("[tracing] headers_file = {:?}", path.display().to_string());
        let text = std::fs::read_to_string(directory.join(path)).map_err(|error| format!("{at}: {error}"))?;
        let mut headers = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let header = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
            match header.filter(|(name, value)| is_name(name) && !value.chars().any(char::is_control)) {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                // The line may hold a password.
                None => return Err(format!("{at}: line {} is no NAME: VALUE", index + 1)),
            }
        }
        self.headers = Arc::new(headers);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(endpoint) = &self.otlp_endpoint {
            let at = format!("[tracing] otlp_endpoint = {endpoint:?}");
            if !cfg!(feature = "otel") {
                return Err(format!("{at}: this binary was built without the feature `otel`"));
            }
            let host = endpoint.strip_prefix("http://").and_then(|rest| rest.split('/').next());
            if host.is_none_or(str::is_empty) || endpoint.chars().any(|c| c.is_control() || c == ' ') {
                return Err(format!(
                    "{at}: write http://HOST:PORT; TLS is what a collector near this process does for it"
                ));
            }
        }
        if self.sample_one_in > 0 && self.otlp_endpoint.is_none() {
            return Err("[tracing] sample_one_in needs an otlp_endpoint to send spans to".to_owned());
        }
        Ok(())
    }
}

/// A header's, as HTTP wants it.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::TracingConfig;

    fn at(endpoint: &str) -> TracingConfig {
        TracingConfig { otlp_endpoint: Some(endpoint.to_owned()), ..TracingConfig::default() }
    }

    #[test]
    fn a_collector_without_a_path_has_otlp_s_own() {
        let url = |endpoint: &str| at(endpoint).url().unwrap();
        assert_eq!(url("http://h:4318"), "http://h:4318/v1/traces");
        assert_eq!(url("http://h:4318/"), "http://h:4318/v1/traces");
        assert_eq!(url("http://h:4318/in/spans"), "http://h:4318/in/spans");
    }

    #[cfg(feature = "otel")]
    #[test]
    fn what_is_wrong_is_named() {
        for endpoint in ["https://h:4318", "h:4318", "http://", "http:///v1", "http://a b"] {
            let error = at(endpoint).check().unwrap_err();
            assert!(error.contains("otlp_endpoint") && error.contains("http://HOST:PORT"), "{error}");
        }
        assert!(at("http://h:4318").check().is_ok());
        let nowhere = TracingConfig { sample_one_in: 5, ..TracingConfig::default() };
        assert!(nowhere.check().unwrap_err().contains("sample_one_in"));
        assert_eq!(nowhere.one_in(), 0);
    }

    #[test]
    fn headers_are_read_and_never_repeated_in_errors() {
        let directory = std::env::temp_dir().join(format!("distcache-headers-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let read = |text: &str| {
            std::fs::write(directory.join("headers"), text).unwrap();
            let mut config =
                TracingConfig { headers_file: Some("headers".into()), ..TracingConfig::default() };
            config.read_headers(&directory).map(|()| config.headers.as_ref().clone())
        };
        let headers = read("authorization: Basic abc:def\n\nx-tenant: one\n").unwrap();
        let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [owned("authorization", "Basic abc:def"), owned("x-tenant", "one")]);
        for wrong in ["secret", "a b: secret", ": secret"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("headers_file") && error.contains("line 1") && !error.contains("secret"));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
