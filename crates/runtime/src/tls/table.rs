//! One `[tls]` table in use: what is made of its files, and made again on a reload. Not who uses it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsProvider};

use super::files::{self, Chain};
use super::provider;
use super::tally::HandshakeTally;
use config::ClientCertificates;

#[derive(Clone, Debug)]
pub(super) struct Files {
    /// With its key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) ca: Option<PathBuf>,
    /// What is asked of those who connect.
    pub(super) demanded: ClientCertificates,
}

impl Files {
    /// For servers of others, which may want a certificate or not.
    pub(super) fn toward(ca: &Path, certificate: &Option<PathBuf>, key: &Option<PathBuf>) -> Files {
        let certificate = certificate.clone().zip(key.clone());
        Files { certificate, ca: Some(ca.to_owned()), demanded: ClientCertificates::None }
    }
}

/// Which ends of connections a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Accepting,
    Dialling,
    Both,
    /// Asking over HTTPS, for which the client makes its connections itself.
    Asking,
    /// Answering and asking over HTTPS.
    Web,
}

#[derive(Debug)]
pub(super) struct Table {
    name: &'static str,
    files: Files,
    ends: Ends,
    current: Mutex<Configs>,
    pub(super) tally: Arc<HandshakeTally>,
}

#[derive(Clone, Debug, Default)]
struct Configs {
    server: Option<Arc<ServerConfig>>,
    client: Option<Arc<ClientConfig>>,
    asking: Option<Arc<ureq::tls::TlsConfig>>,
}

impl Table {
    pub(super) fn load(name: &'static str, files: Files, ends: Ends) -> Result<Table, String> {
        let tally = Arc::new(HandshakeTally::new(name));
        let table = Table { name, files, ends, current: Mutex::default(), tally };
        table.read()?;
        Ok(table)
    }

    /// Reads the files again. What is in use stays in use if there is anything wrong with them.
    pub(super) fn reload(&self) -> Result<(), String> {
        let outcome = self.read();
        self.tally.reloaded(outcome.is_ok());
        outcome
    }

    pub(super) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).server.clone()
    }

    pub(super) fn client(&self) -> Option<Arc<ClientConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    pub(super) fn asking(&self) -> Option<Arc<ureq::tls::TlsConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).asking.clone()
    }

    fn read(&self) -> Result<(), String> {
        let chain = match &self.files.certificate {
            Some((certificate, _)) => Some(files::chain(&self.at("certificate_file"), certificate)?),
            None => None,
        };
        let not_after_s = chain.as_ref().map(|chain| chain.not_after_s);
        let mut configs = Configs::default();
        if matches!(self.ends, Ends::Accepting | Ends::Both | Ends::Web) {
            configs.server = Some(Arc::new(self.server_config(chain.as_ref())?));
        }
        if self.ends != Ends::Accepting {
            configs.client = Some(Arc::new(self.client_config(chain.as_ref())?));
        }
        if matches!(self.ends, Ends::Asking | Ends::Web) {
            configs.asking = Some(Arc::new(self.asking_config(chain.as_ref())?));
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = configs;
        self.tally.set_not_after(not_after_s);
        Ok(())
    }

    fn at(&self, key: &str) -> String {
        format!("[tls.{}] {key}", self.name)
    }

    fn server_config(&self, chain: Option<&Chain>) -> Result<ServerConfig, String> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.misfit(&error))?;
        let builder = match self.client_verifier()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let (certificates, key) =
            self.identity(chain)?.ok_or_else(|| self.at("certificate_file is missing"))?;
        let mut config = builder.with_single_cert(certificates, key).map_err(|error| self.misfit(&error))?;
        // Whoever comes back is known by a ticket and spares both sides the signatures. Its keys die with this
        // configuration: a reload that changes the CA must not be got round by an old ticket.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|error| self.misfit(&error))?;
        Ok(config)
    }

    fn client_config(&self, chain: Option<&Chain>) -> Result<ClientConfig, String> {
        let ca = self.files.ca.as_ref().ok_or_else(|| self.at("ca_file is missing"))?;
        let roots = files::roots(&self.at("ca_file"), ca)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| format!("{} = {:?}: {error}", self.at("ca_file"), ca.display().to_string()))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.misfit(&error))?
            .with_webpki_verifier(verifier);
        match self.identity(chain)? {
            Some((certificates, key)) => {
                builder.with_client_auth_cert(certificates, key).map_err(|error| self.misfit(&error))
            }
            None => Ok(builder.with_no_client_auth()),
        }
    }

    /// What `client_config` has found good, for the HTTP client.
    fn asking_config(&self, chain: Option<&Chain>) -> Result<ureq::tls::TlsConfig, String> {
        let ca = self.files.ca.as_ref().ok_or_else(|| self.at("ca_file is missing"))?;
        let roots = files::certificates(&self.at("ca_file"), ca)?;
        let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        let own = match (&self.files.certificate, chain) {
            (Some((_, key_file)), Some(chain)) => {
                let at = self.at("key_file");
                let key = PrivateKey::from_pem(&files::read(&at, key_file)?);
                let key =
                    key.map_err(|error| format!("{at} = {:?}: {error}", key_file.display().to_string()))?;
                let links = chain.certificates.iter();
                let chain: Vec<_> = links.map(|link| Certificate::from_der(link).to_owned()).collect();
                Some(ClientCert::new_with_certs(&chain, key))
            }
            _ => None,
        };
        Ok(ureq::tls::TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider())
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(own)
            .build())
    }

    fn identity(&self, chain: Option<&Chain>) -> Result<Option<files::TlsIdentity>, String> {
        let (Some((_, key_file)), Some(chain)) = (&self.files.certificate, chain) else { return Ok(None) };
        let key = files::key(&self.at("key_file"), key_file)?;
        Ok(Some((chain.certificates.clone(), key)))
    }

    fn misfit(&self, error: &rustls::Error) -> String {
        let Some((certificate, key)) = &self.files.certificate else {
            return format!("[tls.{}]: {error}", self.name);
        };
        let at = format!("{} = {:?}", self.at("key_file"), key.display().to_string());
        let certificate = certificate.display();
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{at}: this key does not belong to the certificate in {certificate}")
            }
            error => format!("{at} with {certificate}: {error}"),
        }
    }

    fn client_verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        let demanded = self.files.demanded;
        let Some(ca) = self.files.ca.as_ref().filter(|_| demanded != ClientCertificates::None) else {
            return Ok(None);
        };
        let roots = files::roots(&self.at("ca_file"), ca)?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let builder = match demanded {
            ClientCertificates::Optional => builder.allow_unauthenticated(),
            _ => builder,
        };
        let built = builder.build().map(Some);
        built.map_err(|error| format!("{} = {:?}: {error}", self.at("ca_file"), ca.display().to_string()))
    }
}
