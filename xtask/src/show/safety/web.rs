//! What web pages and strangers send: a POST to a router's port, a name that was bound to this machine, changes without the
//! token. Each is refused, and the same with what it lacks is taken. Not connections that say nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::one_key;
use crate::cluster::{Layout, ProcessCluster, client, mortal};
use crate::show::Stage;
use crate::show::finding::Finding;

const TIMEOUT: Duration = Duration::from_secs(5);
const REFUSED: &str = "HTTP/1.1 403";
const TAKEN: &str = "HTTP/1.1 200";
/// Changes that the controller and a member take, the first without a body.
const CONTROLLER_CHANGES: [&str; 3] = ["/v1/reload", "/v1/drain", "/v1/purge"];
const MEMBER_CHANGES: [&str; 2] = ["/reload", "/certificates/reload"];

/// A request beside how its reply should begin.
struct Asked {
    what: String,
    expected: &'static str,
    reply: String,
}

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, Layout { routers: 1, ..one_key::layout() }, 1)?;
    let router = cluster.router(0);
    one_key::until_written(router, "before")?;
    let controller = cluster.member("controller-0")?.listen;
    let member = cluster.member("leaf-0")?.admin;
    let mut token = mortal(stage.binary);
    let token = token.arg("token").arg("--config").arg(cluster.config()).output()?;
    let token = String::from_utf8(token.stdout)?.trim().to_owned();
    anyhow::ensure!(token.len() == 64, "distcache token printed {token:?}");

    let mut asked = Vec::new();
    for (place, reads, changes) in
        [(controller, "/v1/hot", &CONTROLLER_CHANGES[..]), (member, "/status", &MEMBER_CHANGES)]
    {
        let own = format!("Host: {place}\r\n");
        let with_token = format!("{own}x-distcache-command: {token}\r\n");
        let mut ask = |method: &str, path: &str, fields: &str, what: &str, expected| -> anyhow::Result<()> {
            let reply = http(place, method, path, fields)?;
            asked.push(Asked { what: format!("{method} {path} {what}"), expected, reply });
            Ok(())
        };
        ask("GET", reads, &own, "", TAKEN)?;
        ask("GET", reads, "Host: rebound.example\r\n", "by a rebound name", REFUSED)?;
        ask("GET", reads, &format!("{own}Origin: http://{place}\r\n"), "by a page", REFUSED)?;
        for path in changes {
            ask("POST", path, &own, "without the token", REFUSED)?;
            ask(
                "POST",
                path,
                &format!("{own}x-distcache-command: {}\r\n", "0".repeat(64)),
                "with another token",
                REFUSED,
            )?;
            let rebound = with_token.replace(&place.to_string(), "rebound.example");
            ask("POST", path, &rebound, "with the token by a rebound name", REFUSED)?;
            ask("POST", path, &format!("{with_token}Origin: null\r\n"), "with the token by a page", REFUSED)?;
        }
        ask("POST", changes[0], &with_token, "with the token", TAKEN)?;
    }
    let wrong: Vec<String> = asked
        .iter()
        .filter(|asked| !asked.reply.starts_with(asked.expected))
        .map(|asked| format!("{}: {:?}", asked.what, asked.reply.lines().next().unwrap_or_default()))
        .collect();
    let refused = asked.iter().filter(|asked| asked.expected == REFUSED).count();
    finding.bound(
        wrong.is_empty(),
        format!(
            "{refused} requests over HTTP by rebound names, by pages and without the token are refused and {} others done {wrong:?}",
            asked.len() - refused
        ),
    );
    let posted = post(router)?;
    let mut connection = client::connect(router)?;
    let found: String = redis::cmd("GET").arg(one_key::KEY).query(&mut connection)?;
    finding.bound(
        posted.is_none_or(|text| text.starts_with("-ERR")) && found == "before",
        format!(
            "a page's POST with a SET in it to a router's port: the value is {found:?}, \"before\" wanted"
        ),
    );
    finding.figure("web", json!({ "requests": asked.len(), "wrong": wrong, "after_post": found }));
    Ok(())
}

/// The whole reply to one request.
fn http(place: SocketAddr, method: &str, path: &str, fields: &str) -> anyhow::Result<String> {
    let request =
        format!("{method} {path} HTTP/1.1\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).with_context(|| format!("{method} {path}"))?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// What a browser sends for a form of plain text whose only line is a command; what it is answered until it is closed.
fn post(router: SocketAddr) -> anyhow::Result<Option<String>> {
    let body = format!("SET {} page\r\n", one_key::KEY);
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {router}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(router)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        // It may be closed before it has been read to its end.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        read => drop(read.context("the connection stays open")?),
    }
    Ok((!reply.is_empty()).then(|| String::from_utf8_lossy(&reply).into_owned()))
}
