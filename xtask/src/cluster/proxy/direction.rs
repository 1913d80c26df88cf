//! One direction of one proxied connection: what came in, when it may leave, what is left to write. Not the sockets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _};

use super::stream::{self, Piece, ProxiedChannel};
use super::weather::{MessageFate, Weather, WeatherKind};

/// Above it the source is not read any more, so that it feels the pressure that a network would give it.
const HELD_BYTES_MAX: usize = 1 << 20;
/// So many bytes make one step of a slow line.
const STEP_BYTES: usize = 1024;

/// Counts of what the rules did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Harm {
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) held: u64,
}

/// When and under which rules bytes come in, and what counts the harm that these do.
pub(super) struct Passage<'a> {
    pub(super) now: Instant,
    pub(super) weather: &'a Weather,
    pub(super) random: &'a mut SmallRng,
    pub(super) harm: &'a mut Harm,
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Bytes of a control connection that are no whole piece yet.
    partial: Vec<u8>,
    /// By due time and number.
    waiting: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    waiting_bytes: usize,
    number: u64,
    /// Nothing of the ordinary flow leaves before what came earlier.
    last_due: Option<Instant>,
    /// Due, and not written yet.
    pub(super) out: Vec<u8>,
    /// The source has ended.
    pub(super) ended: bool,
    /// The end was told to the destination.
    pub(super) shut: bool,
}

impl Direction {
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes + self.out.len() > HELD_BYTES_MAX
    }

    /// Nothing is left to write, now or later.
    pub(super) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.out.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((due, ..))| *due)
    }

    /// Bytes have come from the source.
    pub(super) fn take_in(&mut self, bytes: &[u8], channel: ProxiedChannel, passage: &mut Passage<'_>) {
        // What is due goes first: what comes now may pass at once.
        self.release(passage.now, passage.weather);
        if channel != ProxiedChannel::Control {
            return self.pass(bytes.to_vec(), passage);
        }
        self.partial.extend_from_slice(bytes);
        while let Some(piece) = stream::take(&mut self.partial) {
            match piece {
                Piece::Plain(bytes) => self.pass(bytes, passage),
                Piece::Control(kind, bytes) => self.message(kind, bytes, passage),
            }
        }
    }

    fn message(&mut self, kind: WeatherKind, bytes: Vec<u8>, passage: &mut Passage<'_>) {
        let now = passage.now;
        let applies = |rule: &&super::weather::WeatherRule| rule.kind.is_none_or(|wanted| wanted == kind);
        let mut rules = passage.weather.rules.iter().filter(applies);
        let rule = rules.find(|rule| passage.random.random_bool(rule.chance));
        match rule.map(|rule| rule.fate) {
            None => self.pass(bytes, passage),
            Some(MessageFate::Drop) => passage.harm.dropped += 1,
            Some(MessageFate::Duplicate(after)) => {
                passage.harm.duplicated += 1;
                self.pass(bytes.clone(), passage);
                self.wait(now + after, bytes);
            }
            Some(MessageFate::Hold(time)) => {
                passage.harm.held += 1;
                self.wait(now + time, bytes);
            }
        }
    }

    /// Through the ordinary flow, which keeps its order.
    fn pass(&mut self, bytes: Vec<u8>, passage: &mut Passage<'_>) {
        let Passage { now, weather, ref mut random, .. } = *passage;
        let clear = weather.delay.is_zero() && weather.jitter.is_zero() && weather.bytes_per_second.is_none();
        if clear && self.last_due.is_none_or(|due| due <= now) {
            self.out.extend_from_slice(&bytes);
            return;
        }
        let jitter = weather.jitter.as_micros() as u64;
        let jitter = if jitter == 0 { 0 } else { random.next_u64() % jitter };
        let arrival = now + weather.delay + Duration::from_micros(jitter);
        let step = weather.bytes_per_second.map_or(bytes.len().max(1), |_| STEP_BYTES);
        for part in bytes.chunks(step) {
            let line = match weather.bytes_per_second {
                Some(rate) => Duration::from_secs_f64(part.len() as f64 / rate.max(1) as f64),
                None => Duration::ZERO,
            };
            let due = self.last_due.map_or(arrival, |last| arrival.max(last + line));
            self.last_due = Some(due);
            self.wait(due, part.to_vec());
        }
    }

    fn wait(&mut self, due: Instant, bytes: Vec<u8>) {
        self.number += 1;
        self.waiting_bytes += bytes.len();
        self.waiting.push(Reverse((due, self.number, bytes)));
    }

    /// Moves what is due to the output; during a cut nothing is.
    pub(super) fn release(&mut self, now: Instant, weather: &Weather) {
        if weather.cut {
            return;
        }
        while self.next_due().is_some_and(|due| due <= now) {
            let Some(Reverse((_, _, bytes))) = self.waiting.pop() else { return };
            self.waiting_bytes -= bytes.len();
            self.out.extend_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::weather::WeatherRule;
    use super::{Direction, Harm, MessageFate, Passage, ProxiedChannel, Weather, WeatherKind};
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;
    use std::time::{Duration, Instant};
    use wire::Message;
    use wire::message::{Grant, Revoke};

    const SECOND: Duration = Duration::from_secs(1);

    fn take_in(
        direction: &mut Direction,
        now: Instant,
        bytes: &[u8],
        channel: ProxiedChannel,
        weather: &Weather,
    ) -> Harm {
        let (mut random, mut harm) = (SmallRng::seed_from_u64(1), Harm::default());
        let mut passage = Passage { now, weather, random: &mut random, harm: &mut harm };
        direction.take_in(bytes, channel, &mut passage);
        harm
    }

    #[test]
    fn delayed_bytes_keep_their_order_and_slow_lines_their_rate() {
        let (mut direction, start) = (Direction::default(), Instant::now());
        let slow = Weather { delay: SECOND, ..Weather::default() };
        take_in(&mut direction, start, b"ab", ProxiedChannel::Data, &slow);
        take_in(&mut direction, start, b"cd", ProxiedChannel::Data, &Weather::default());
        direction.release(start, &slow);
        assert!(direction.out.is_empty());
        direction.release(start + SECOND, &slow);
        assert_eq!(direction.out, b"abcd");

        let mut direction = Direction::default();
        let narrow = Weather { bytes_per_second: Some(1024), ..Weather::default() };
        take_in(&mut direction, start, &[0; 3072], ProxiedChannel::Data, &narrow);
        direction.release(start + SECOND, &narrow);
        assert_eq!(direction.out.len(), 2048);
        assert!(!direction.is_drained());
    }

    #[test]
    fn what_comes_when_the_weather_has_cleared_stays_behind_what_was_delayed() {
        let (mut direction, start) = (Direction::default(), Instant::now());
        let slow = Weather { delay: SECOND, ..Weather::default() };
        take_in(&mut direction, start, b"ab", ProxiedChannel::Data, &slow);
        take_in(&mut direction, start + 2 * SECOND, b"cd", ProxiedChannel::Data, &Weather::default());
        direction.release(start + 2 * SECOND, &Weather::default());
        assert_eq!(direction.out, b"abcd");
    }

    #[test]
    fn a_cut_holds_everything_and_loses_nothing() {
        let (mut direction, start) = (Direction::default(), Instant::now());
        let weather = Weather { cut: true, delay: SECOND, ..Weather::default() };
        take_in(&mut direction, start, b"ab", ProxiedChannel::Data, &weather);
        direction.release(start + 10 * SECOND, &weather);
        assert!(direction.out.is_empty());
        direction.release(start + 10 * SECOND, &Weather::default());
        assert_eq!(direction.out, b"ab");
    }

    #[test]
    fn rules_pick_their_messages() {
        let (mut grant, mut revoke) = (Vec::new(), Vec::new());
        wire::encode(
            &Message::Grant(Grant { session: 1, sent: 2, duration: 3, guard: 4, leave: None }),
            &mut grant,
        );
        wire::encode(&Message::Revoke(Revoke { session: 1, number: 1, spares: false }), &mut revoke);
        let both = [grant.clone(), revoke.clone()].concat();
        let rule = |kind, fate| Weather {
            rules: vec![WeatherRule { kind: Some(kind), chance: 1.0, fate }],
            ..Weather::default()
        };
        let start = Instant::now();
        let run = |weather: &Weather| {
            let mut direction = Direction::default();
            let harm = take_in(&mut direction, start, &both, ProxiedChannel::Control, weather);
            direction.release(start + SECOND, weather);
            (direction.out, harm)
        };
        let (out, harm) = run(&rule(WeatherKind::Grant, MessageFate::Drop));
        assert_eq!((out, harm.dropped), (revoke.clone(), 1));
        let (out, harm) = run(&rule(WeatherKind::Grant, MessageFate::Hold(SECOND)));
        assert_eq!((out, harm.held), ([revoke.clone(), grant.clone()].concat(), 1));
        let (out, harm) = run(&rule(WeatherKind::Revoke, MessageFate::Duplicate(SECOND)));
        assert_eq!((out, harm.duplicated), ([grant, revoke.clone(), revoke].concat(), 1));
        assert_eq!(run(&rule(WeatherKind::Ack, MessageFate::Drop)).0, both);
    }
}
