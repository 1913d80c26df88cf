//! Which clients CLIENT LIST shows and CLIENT KILL ends: the filters of both, in the words of Redis. Not what is done.

use bytes::Bytes;
use wire::resp::Command;

use crate::router::front::session::Session;
use crate::router::{replies, words};
use commands::integer;

const SYNTAX: &str = "ERR syntax error";

/// All that are given must fit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientFilter {
    ids: Vec<u64>,
    kind: Option<ClientKind>,
    address: Option<Bytes>,
    local_address: Option<Bytes>,
    /// Not of CLIENT KILL address:port.
    pub(crate) spares_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientKind {
    Normal,
    Subscriber,
    /// Replicas and primaries are never a router's clients.
    None,
}

impl ClientFilter {
    /// CLIENT LIST [TYPE type | ID id...]
    pub(crate) fn list(command: &Command) -> Result<ClientFilter, Bytes> {
        let mut filter = ClientFilter::default();
        match command.len() {
            2 => {}
            4 if words::is(command, 2, "TYPE") => filter.kind = Some(kind(command.arg(3))?),
            4.. if words::is(command, 2, "ID") => {
                for argument in 3..command.len() {
                    let id = integer(command.arg(argument));
                    let id = id.ok_or_else(|| replies::error("ERR Invalid client ID"))?;
                    filter.ids.push(u64::try_from(id).unwrap_or(0));
                }
            }
            _ => return Err(replies::error(SYNTAX)),
        }
        Ok(filter)
    }

    /// CLIENT KILL address:port, or filters with their values.
    pub(crate) fn kill(command: &Command) -> Result<ClientFilter, Bytes> {
        if command.len() == 3 {
            let address = Some(command.arg_bytes(2));
            return Ok(ClientFilter { address, ..ClientFilter::default() });
        }
        let mut filter = ClientFilter { spares_own: true, ..ClientFilter::default() };
        for at in (2..command.len()).step_by(2) {
            let Some(value) = command.get(at + 1) else { return Err(replies::error(SYNTAX)) };
            match words::upper(command.arg(at)).as_slice() {
                b"ID" => match integer(value).filter(|id| *id > 0) {
                    Some(id) => filter.ids = vec![id as u64],
                    None => return Err(replies::error("ERR client-id should be greater than 0")),
                },
                b"TYPE" => filter.kind = Some(kind(value)?),
                b"ADDR" => filter.address = Some(command.arg_bytes(at + 1)),
                b"LADDR" => filter.local_address = Some(command.arg_bytes(at + 1)),
                b"USER" if value == b"default" => {}
                b"USER" => {
                    let user = String::from_utf8_lossy(value);
                    return Err(replies::error(&format!("ERR No such user '{user}'")));
                }
                b"SKIPME" => match words::upper(value).as_slice() {
                    b"YES" => filter.spares_own = true,
                    b"NO" => filter.spares_own = false,
                    _ => return Err(replies::error(SYNTAX)),
                },
                _ => return Err(replies::error(SYNTAX)),
            }
        }
        Ok(filter)
    }

    pub(crate) fn fits(&self, client: &Session) -> bool {
        let kind = match client.subscribed {
            Some(_) => ClientKind::Subscriber,
            None => ClientKind::Normal,
        };
        let is = |wanted: &Option<Bytes>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
        let (address, local_address) = client.addresses();
        (self.ids.is_empty() || self.ids.contains(&client.number))
            && self.kind.is_none_or(|wanted| wanted == kind)
            && is(&self.address, address)
            && is(&self.local_address, local_address)
    }
}

fn kind(name: &[u8]) -> Result<ClientKind, Bytes> {
    match words::upper(name).as_slice() {
        b"NORMAL" => Ok(ClientKind::Normal),
        b"PUBSUB" => Ok(ClientKind::Subscriber),
        b"MASTER" | b"REPLICA" | b"SLAVE" => Ok(ClientKind::None),
        _ => {
            let name = String::from_utf8_lossy(name);
            Err(replies::error(&format!("ERR Unknown client type '{name}'")))
        }
    }
}
