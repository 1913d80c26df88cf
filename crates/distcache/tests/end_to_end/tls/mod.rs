//! TLS in every direction with the programs that people use: redis-cli, redis-py, redis-server. Not the transport.

#[path = "../../../../runtime/tests/tls/authority.rs"]
mod authority;
mod client;
mod front;
mod groups;
mod http;
mod members;
mod reload;

use std::process::{Command, Output, Stdio};

pub(crate) use authority::Authority;
pub(crate) use client::TlsClient;

/// `[tls.TABLE]` with the certificate `NAME.crt` and its key.
pub(crate) fn table(authority: &Authority, table: &str, name: &str, more: &str) -> String {
    let path = |name: &str| authority.path(name).display().to_string();
    let (certificate, key) = (path(&format!("{name}.crt")), path(&format!("{name}.key")));
    format!("[tls.{table}]\ncertificate_file = {certificate:?}\nkey_file = {key:?}\n{more}\n")
}

fn ca(authority: &Authority) -> String {
    format!("ca_file = {:?}", authority.path("ca.crt").display().to_string())
}

/// redis-cli over TLS; `shows` is the name of its certificate.
fn redis_cli(authority: &Authority, port: u16, shows: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls", "--cacert"])
        .arg(authority.path("ca.crt"));
    if let Some(name) = shows {
        command.arg("--cert").arg(authority.path(&format!("{name}.crt")));
        command.arg("--key").arg(authority.path(&format!("{name}.key")));
    }
    command.args(arguments).stdin(Stdio::null()).output().expect("redis-cli runs")
}

fn printed(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).trim_end().to_owned()
}
