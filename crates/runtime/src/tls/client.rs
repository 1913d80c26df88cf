//! An HTTP client that keeps its connections for as long as its certificates hold. Not what is asked.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::TlsConfig;
use ureq::unversioned::transport::DefaultConnector;

use super::Asker;
use crate::resolver::ThreadlessResolver;

/// An HTTP client with the certificates of now. A request with certificates of its own would make a connection for itself each
/// time, so it is the client that has them, and there is another one after they were loaded again.
#[derive(Debug)]
pub struct HttpClient {
    timeout: Duration,
    tls: Option<Asker>,
    current: RefCell<(Option<Arc<TlsConfig>>, Agent)>,
}

impl HttpClient {
    /// A client whose requests take at most `timeout`, and which goes by no proxy and follows nowhere; `tls` secures it.
    pub fn new(timeout: Duration, tls: Option<&Asker>) -> HttpClient {
        let certificates = tls.and_then(Asker::certificates);
        let current = RefCell::new((certificates.clone(), agent(timeout, certificates.as_deref())));
        HttpClient { timeout, tls: tls.cloned(), current }
    }

    /// What the next request is made with.
    pub fn agent(&self) -> Agent {
        let certificates = self.tls.as_ref().and_then(Asker::certificates);
        let mut current = self.current.borrow_mut();
        if certificates.as_ref().map(Arc::as_ptr) != current.0.as_ref().map(Arc::as_ptr) {
            *current = (certificates.clone(), agent(self.timeout, certificates.as_deref()));
        }
        current.1.clone()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

fn agent(timeout: Duration, certificates: Option<&TlsConfig>) -> Agent {
    let config = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
    let config = config.proxy(None).max_redirects(0);
    let config = match certificates {
        Some(certificates) => config.tls_config(certificates.clone()),
        None => config,
    };
    Agent::with_parts(config.build(), DefaultConnector::default(), ThreadlessResolver::default())
}
