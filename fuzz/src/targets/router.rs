//! The router's machine between clients and peers that say anything: as long as peers send whole replies, so does it,
//! one for each command.

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use protocol::router::{
    ClientId, ClientLimits, CloseReason, Effect, Holdings, Input, Router, RouterConfig, RouterSettings,
    Routing,
};
use protocol::time::Time;
use wire::message::Reply;
use wire::resp::{ProtocolError, ReplyScanner};
use wire::{Message, NodeId, Peer, ShimId, Status};

use super::speech::{REPLIES, Speech, any_command, key_name, pause, peer, placement};

const CLIENTS: u32 = 3;
const EFFECTS_PER_INPUT_MAX: usize = 24;

pub(crate) fn run(data: &[u8]) {
    let _ = steps(&mut Unstructured::new(data));
}

/// One client as its driver sees it.
#[derive(Default)]
struct Client {
    open: bool,
    commands: usize,
    replies: usize,
}

fn config(bytes: &mut Unstructured<'_>) -> Result<RouterConfig> {
    let routing = *bytes.choose(&[Routing::Learned, Routing::OnPath])?;
    let pipeline_max = *bytes.choose(&[1, 4, 512])?;
    let pending_max = *bytes.choose(&[2, 1 << 10])?;
    let key_bytes_max = *bytes.choose(&[2, 1 << 10])?;
    let learned_max = *bytes.choose(&[1, 64])?;
    let streams = bytes.arbitrary()?;
    let settings = RouterSettings {
        pipeline_max,
        key_bytes_max,
        learned_max,
        client_limits: ClientLimits {
            held_bytes_max: *bytes.choose(&[1 << 10, u64::MAX])?,
            idle_max: bytes.choose(&[None, Some(Duration::from_secs(1))])?.to_owned(),
            unauthenticated_max: None,
        },
        ..RouterSettings::default()
    };
    Ok(RouterConfig { routing, pending_max, streams, settings, ..RouterConfig::default() })
}

fn steps(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut router = Router::new(config(bytes)?);
    let (mut speech, mut effects) = (Speech::new(), Vec::new());
    let (mut now, mut inputs, mut done) = (Time(10_000_000), 8, 0);
    let honest: bool = bytes.arbitrary()?;
    let mut clients: [Client; CLIENTS as usize] = Default::default();
    router.step(now, Input::Map(placement(true)), &mut effects);
    for id in [0, 1] {
        router.step(now, Input::Linked(Peer::Node(NodeId(id))), &mut effects);
        router.step(now, Input::Linked(Peer::Shim(ShimId(id))), &mut effects);
    }
    while !bytes.is_empty() {
        now.0 += pause(bytes)?;
        let Some(input) = input(bytes, (&router, now), &mut clients, &speech, honest)? else { continue };
        inputs += 1;
        router.step(now, input, &mut effects);
        done += effects.len();
        let mut gone = BTreeSet::new();
        assert!(done <= EFFECTS_PER_INPUT_MAX * inputs, "{done} effects of {inputs} inputs");
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { message, .. } => speech.hear(&message),
                Effect::Resume { client } => assert!(router.ready(client), "{client:?} is not ready"),
                Effect::Close { client, reason: CloseReason::Answered } => {
                    assert!(clients[client.0 as usize].open, "nobody is closed");
                }
                Effect::Close { client, .. } => assert!(gone.insert(client), "{client:?} is closed twice"),
                Effect::Push { client, .. } | Effect::Part { client, .. } => {
                    assert!(clients[client.0 as usize].open, "bytes to nobody");
                }
                Effect::Tell { .. } => panic!("a router of one thread tells nobody"),
                Effect::Reply { client, bytes } => {
                    let client = &mut clients[client.0 as usize];
                    assert!(client.open, "a reply to nobody");
                    client.replies += if honest { replies(&bytes) } else { 0 };
                    assert!(client.replies <= client.commands, "more replies than commands");
                }
            }
        }
    }
    Ok(())
}

fn input(
    bytes: &mut Unstructured<'_>,
    (router, now): (&Router, Time),
    clients: &mut [Client],
    speech: &Speech,
    honest: bool,
) -> Result<Option<Input>> {
    let id = bytes.int_in_range(0..=CLIENTS - 1)?;
    let (client, state) = (ClientId(id), &mut clients[id as usize]);
    Ok(Some(match bytes.int_in_range(0..=23)? {
        0 => Input::Tick,
        1 => Input::Linked(peer(bytes)?),
        2 => Input::Unlinked(peer(bytes)?),
        3 => Input::Map(placement(bytes.arbitrary()?)),
        _ if !state.open => {
            *state = Client { open: true, ..Client::default() };
            Input::Opened { client }
        }
        4 => {
            state.open = false;
            Input::Closed { client }
        }
        5 if bytes.arbitrary()? => Input::Drained { client },
        5 if bytes.arbitrary()? => {
            Input::Held { clients: held(bytes, clients, now)?, elsewhere_bytes: bytes.arbitrary()? }
        }
        5 => Input::Ended { client },
        6 => {
            state.commands += 1;
            Input::Malformed { client, error: ProtocolError::BulkLength }
        }
        7..=13 if router.ready(client) => {
            state.commands += 1;
            let key = key_name(bytes)?;
            Input::Command { client, command: any_command(bytes, key)? }
        }
        _ => {
            let from = peer(bytes)?;
            if !honest {
                return Ok(speech.message(bytes)?.map(|message| Input::Message { from, message }));
            }
            Input::Message { from, message: Message::Reply(reply(bytes, speech)?) }
        }
    }))
}

/// What the connections of those that are there may hold.
fn held(bytes: &mut Unstructured<'_>, clients: &[Client], now: Time) -> Result<Vec<Holdings>> {
    let open = (0..).zip(clients).filter(|(_, client)| client.open);
    open.map(|(id, _)| {
        Ok(Holdings {
            client: ClientId(id),
            kept_bytes: bytes.arbitrary::<u16>()?.into(),
            buffer_bytes: bytes.arbitrary::<u16>()?.into(),
            unread_bytes: bytes.arbitrary::<u16>()?.into(),
            waits_for_client: bytes.arbitrary()?,
            seen: Time(now.0.saturating_sub(bytes.arbitrary::<u32>()?.into())),
        })
    })
    .collect()
}

/// A reply as a peer may send it: the value fits the status.
fn reply(bytes: &mut Unstructured<'_>, speech: &Speech) -> Result<Reply> {
    let value: &'static [u8] = bytes.choose(REPLIES)?;
    let (status, value) = match bytes.ratio(1, 8)? {
        true => (Status::Nil, &b""[..]),
        false if value.starts_with(b"-") => (*bytes.choose(&[Status::Error, Status::Busy])?, value),
        false => (Status::Ok, value),
    };
    let value = bytes::Bytes::from_static(value);
    Ok(Reply { request: speech.number(bytes)?, status, hit: bytes.arbitrary()?, value, ..Reply::default() })
}

/// How many whole replies these bytes are.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let length = ReplyScanner::new().scan(bytes);
        let Ok(Some(length)) = length else { panic!("no whole reply: {}", bytes.escape_ascii()) };
        bytes = &bytes[length..];
        count += 1;
    }
    count
}
