//! The shim's machine among peers that say anything, over a storage that may lose and delay what it was given: only
//! whole commands reach storage, and nothing is done that nobody asked for.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::shim::{Bounded, Effect, Input, PurgeTarget, Shim, ShimConfig, ShimSettings};
use protocol::storage::{CommandControl, StorageEvent, StorageTraits};
use protocol::time::Time;
use wire::resp::Command;

use super::node::{heat, request_limits, terms};
use super::speech::{REPLIES, Speech, pause, peer, placement};

/// One input may let go whatever waited for it, and a tick repeats what is not acknowledged; each was an input before.
const EFFECTS_PER_INPUT_MAX: usize = 8;
const EFFECTS_PER_STEP_MIN: usize = 64;

pub(crate) fn run(data: &[u8]) {
    let _ = steps(&mut Unstructured::new(data));
}

fn config(bytes: &mut Unstructured<'_>) -> Result<ShimConfig> {
    let mut settings = ShimSettings {
        heat: heat(),
        heat_min: *bytes.choose(&[1, u32::MAX])?,
        operations_max: *bytes.choose(&[4, 1000])?,
        key_queue_max: *bytes.choose(&[2, 100])?,
        ..ShimSettings::default()
    };
    let config = ShimConfig {
        lease: terms(),
        blocking_max: *bytes.choose(&[1, 10])?,
        early_value_bytes_max: *bytes.choose(&[0, 1 << 16])?,
        cache_expiring_hashes: false,
        tracked_max: 1000,
        seed: 1,
        ..ShimConfig::default()
    };
    settings.requests = request_limits(bytes)?;
    let bounded = if bytes.arbitrary()? {
        let staleness = Duration::from_millis(bytes.int_in_range(0..=2000)?);
        Some(Bounded { staleness, age: Duration::from_millis(bytes.int_in_range(0..=2000)?) })
    } else {
        None
    };
    Ok(ShimConfig { bounded, settings, ..config })
}

fn scope(bytes: &mut Unstructured<'_>) -> Result<PurgeTarget> {
    let scopes =
        [PurgeTarget::All, PurgeTarget::Prefix(Bytes::new()), PurgeTarget::Prefix(Bytes::from_static(b"k"))];
    bytes.choose(&scopes).cloned()
}

fn settings(bytes: &mut Unstructured<'_>) -> Result<ShimSettings> {
    let cache = *bytes.choose(&[Eligibility::Never, Eligibility::Always, Eligibility::Heat])?;
    let rule = Rule { cache, ttl_ms_max: *bytes.choose(&[1, u64::MAX])?, ..Rule::default() };
    let policies = Policies::new(vec![(Bytes::from_static(b"k"), rule)]);
    let ShimConfig { settings, .. } = config(bytes)?;
    let observes = *bytes.choose(&[None, None, Some(2)])?;
    Ok(ShimSettings { policies, observes, ..settings })
}

/// What a subscriber connection may bring.
const PUSHES: [&[u8]; 5] = [
    b">3\r\n$7\r\nmessage\r\n$2\r\ns0\r\n$1\r\nm\r\n",
    b">4\r\n$8\r\npmessage\r\n$1\r\nh\r\n$1\r\nh\r\n$1\r\nm\r\n",
    b">3\r\n$8\r\nsmessage\r\n$2\r\ns0\r\n$1\r\nm\r\n",
    b">1\r\n$7\r\nmessage\r\n",
    b"",
];

/// What the feed may bring.
const REPORTS: [&[u8]; 4] = [
    b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\nh\r\n$2\r\ns0\r\n",
    b">2\r\n$10\r\ninvalidate\r\n_\r\n",
    b">2\r\n$10\r\ninvalidate\r\n:1\r\n",
    b"",
];

/// What storage was given and has not answered: ticket and number of commands.
type Pending = Vec<(u64, usize)>;

fn steps(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut shim = Shim::new(config(bytes)?, placement(true));
    let (mut speech, mut effects, mut pending) = (Speech::new(), Vec::new(), Pending::new());
    let (mut now, mut inputs) = (Time(10_000_000), 1);
    let mut taken = Vec::new();
    let up = StorageEvent::Up {
        incarnation: 7,
        traits: StorageTraits::default(),
        earlier: EarlierIncarnations::NONE,
    };
    shim.step(now, Input::Storage(up), &mut effects);
    while !bytes.is_empty() {
        now.0 += pause(bytes)?;
        let input = match bytes.int_in_range(0..=15)? {
            0 | 1 => Input::Tick,
            2 => Input::Linked(peer(bytes)?),
            3 => Input::Unlinked(peer(bytes)?),
            4 if bytes.ratio(1, 4)? => Input::Purge { number: 1, scope: scope(bytes)? },
            4 => rare(bytes)?,
            5 if bytes.ratio(1, 4)? => Input::Storage(change(bytes)?),
            5..=8 if !pending.is_empty() => Input::Storage(answer(bytes, &mut pending, &mut taken)?),
            _ => {
                let from = peer(bytes)?;
                let Some(message) = speech.message(bytes)? else { continue };
                Input::Message { from, message }
            }
        };
        inputs += 1;
        shim.step(now, input, &mut effects);
        assert!(
            effects.len() <= EFFECTS_PER_STEP_MIN + EFFECTS_PER_INPUT_MAX * inputs,
            "{} effects",
            effects.len()
        );
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { message, .. } => speech.hear(&message),
                Effect::Store(store) => {
                    for frame in &store.commands {
                        assert!(
                            Command::parse(frame.clone()).is_ok(),
                            "no command: {}",
                            frame.escape_ascii()
                        );
                    }
                    assert!(
                        pending.iter().all(|(ticket, _)| *ticket != store.ticket),
                        "a ticket is used twice"
                    );
                    pending.push((store.ticket, store.commands.len()));
                }
                Effect::Control { ticket, control: CommandControl::Skip } => {
                    let index = pending.iter().position(|(known, _)| *known == ticket);
                    pending.swap_remove(index.expect("only what storage answers is skipped"));
                }
                Effect::Control { ticket, control: CommandControl::Take { .. } } => taken.push(ticket),
                Effect::Control {
                    ticket,
                    control: CommandControl::Unblock { .. } | CommandControl::Abort,
                } => {
                    assert!(pending.iter().any(|(known, _)| *known == ticket), "there is no ticket {ticket}");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn rare(bytes: &mut Unstructured<'_>) -> Result<Input> {
    Ok(match bytes.int_in_range(0..=15)? {
        0 => Input::HandOver,
        1..=4 => Input::Settings(Box::new(settings(bytes)?)),
        _ => Input::Map(placement(bytes.arbitrary()?)),
    })
}

fn change(bytes: &mut Unstructured<'_>) -> Result<StorageEvent> {
    Ok(match bytes.int_in_range(0..=10)? {
        10 => StorageEvent::ReadFeedDown,
        9 => StorageEvent::ReadChanged((*bytes.choose(&REPORTS)?).into()),
        8 => StorageEvent::Moving(vec![bytes.arbitrary()?, bytes.arbitrary()?]),
        4 => StorageEvent::Unsubscribed,
        6 => StorageEvent::FeedDown,
        7 => StorageEvent::Changed((*bytes.choose(&REPORTS)?).into()),
        5 => StorageEvent::Published((*bytes.choose(&PUSHES)?).into()),
        0 => StorageEvent::Down { reason: "it was told to".into(), gone: true },
        1 => StorageEvent::Fenced,
        _ => {
            let traits = StorageTraits {
                hash_field_expiry: bytes.arbitrary()?,
                many_servers: bytes.arbitrary()?,
                short_leases: bytes.arbitrary()?,
                tracks_reads: bytes.arbitrary()?,
                reports_no_changes: bytes.arbitrary()?,
                unfenced: bytes.arbitrary()?,
                divided: bytes.ratio(1, 16)?,
                keys_left: bytes.ratio(1, 16)?,
            };
            let recorded = Duration::from_millis(bytes.int_in_range(0..=70_000)?);
            let unrecorded = match bytes.int_in_range(0..=2)? {
                0 => Unrecorded::Nobody,
                1 => Unrecorded::Within(Duration::from_millis(bytes.int_in_range(0..=8_000_000)?)),
                _ => Unrecorded::Unknown,
            };
            let earlier = EarlierIncarnations { recorded, unrecorded, same_data: bytes.arbitrary()? };
            StorageEvent::Up { incarnation: bytes.int_in_range(7..=9)?, traits, earlier }
        }
    })
}

/// One outcome for each ticket, in any order, as the contract of `Store` has it.
fn answer(bytes: &mut Unstructured<'_>, pending: &mut Pending, taken: &mut Vec<u64>) -> Result<StorageEvent> {
    let index = bytes.choose_index(pending.len())?;
    let ticket = pending[index].0;
    if taken.contains(&ticket) {
        let last = bytes.ratio(1, 4)?;
        if last || bytes.ratio(1, 8)? {
            taken.retain(|other| *other != ticket);
            pending.swap_remove(index);
            if !last {
                return Ok(StorageEvent::Lost { ticket, sent: true });
            }
        }
        return Ok(StorageEvent::Part { ticket, bytes: Bytes::from_static(b"$9\r\nbeg"), last });
    }
    if bytes.ratio(1, 8)? {
        return Ok(StorageEvent::Large { ticket });
    }
    let (ticket, commands) = pending.swap_remove(index);
    if bytes.ratio(1, 8)? {
        return Ok(StorageEvent::Lost { ticket, sent: bytes.arbitrary()? });
    }
    let mut replies = Vec::with_capacity(commands);
    for _ in 0..commands {
        replies.push(Bytes::from_static(bytes.choose(REPLIES)?));
    }
    Ok(StorageEvent::Replies { ticket, replies: replies.into() })
}
