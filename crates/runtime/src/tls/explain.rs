//! What went wrong on a TLS connection, in words for whoever runs it. Not whether to go on.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// `handshaking`: it happened before the connection was open.
pub(crate) fn explain(error: &Error, handshaking: bool) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) if handshaking => {
            "the other end does not speak TLS".to_owned()
        }
        Error::NoCertificatesPresented => {
            "the other end shows no certificate, and one is required".to_owned()
        }
        Error::InvalidCertificate(error) => {
            format!("the other end's certificate is refused: {}", fault(error))
        }
        Error::AlertReceived(alert) => format!("the other end refuses: {}", complaint(*alert)),
        Error::PeerIncompatible(reason) => format!("no common version or algorithm: {reason:?}"),
        error => format!("TLS: {error}"),
    }
}

/// Why a request over HTTP came to nothing; what is not about TLS in the client's own words.
pub fn explain_request(error: &ureq::Error) -> String {
    let inner = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()),
        _ => None,
    };
    // Whether the handshake was over it does not tell; what another protocol sends comes before that.
    inner.map_or_else(|| error.to_string(), |error| explain(error, true))
}

fn fault(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => "no CA in ca_file has signed it".to_owned(),
        CertificateError::BadSignature => "its signature is not that of the CA in ca_file".to_owned(),
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = presented.join(", ");
            let wanted = expected.to_str();
            format!("it is for another name: {wanted} is wanted, and it has {names}")
        }
        error => error.to_string(),
    }
}

fn complaint(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it wants a certificate, and none is configured".to_owned(),
        AlertDescription::CertificateExpired => "it takes our certificate for expired".to_owned(),
        AlertDescription::UnknownCA => "it does not know the CA of our certificate".to_owned(),
        AlertDescription::BadCertificate => {
            "it takes our certificate for bad, or wants one and none is configured".to_owned()
        }
        AlertDescription::ProtocolVersion => "it speaks no version of TLS that we do".to_owned(),
        alert => format!("alert {alert:?}"),
    }
}
