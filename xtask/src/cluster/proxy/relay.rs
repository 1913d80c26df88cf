//! The proxy's thread: accepts, dials on, and moves bytes between sockets as the weather allows.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::direction::{Direction, Harm, Passage};
use super::stream::{self, ProxiedChannel};
use super::weather::Weather;
use super::{ProxiedLink, ProxyOrder, WAKER, Way};

/// Tokens of listeners; those of connections count from zero, two for each.
const LISTENERS: usize = 1 << 40;
const READ_BYTES: usize = 64 << 10;

struct RelayListener {
    link: ProxiedLink,
    socket: TcpListener,
    target: SocketAddr,
    framed: bool,
    weather: [Weather; 2],
}

struct RelayConnection {
    listener: usize,
    /// The dialling side's and the target's.
    sockets: [TcpStream; 2],
    readable: [bool; 2],
    writable: [bool; 2],
    channel: ProxiedChannel,
    /// The first bytes of the dialling side, until they tell the channel.
    first: Vec<u8>,
    /// By the side that is read.
    directions: [Direction; 2],
}

pub(super) struct Relay {
    poll: Poll,
    inbox: Receiver<ProxyOrder>,
    random: SmallRng,
    listeners: Vec<RelayListener>,
    connections: Vec<Option<RelayConnection>>,
    harm: Harm,
    buffer: Vec<u8>,
}

/// Whether a connection goes on.
#[derive(PartialEq)]
enum RelayVerdict {
    Lives,
    Ends,
}

impl Relay {
    pub(super) fn new(poll: Poll, inbox: Receiver<ProxyOrder>, seed: u64) -> Relay {
        Relay {
            poll,
            inbox,
            random: SmallRng::seed_from_u64(seed),
            listeners: Vec::new(),
            connections: Vec::new(),
            harm: Harm::default(),
            buffer: vec![0; READ_BYTES],
        }
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.timeout())
                && error.kind() != io::ErrorKind::Interrupted
            {
                return;
            }
            for event in &events {
                match event.token() {
                    WAKER => {}
                    Token(token) if token >= LISTENERS => self.accept(token - LISTENERS),
                    Token(token) => {
                        let Some(Some(connection)) = self.connections.get_mut(token / 2) else { continue };
                        connection.readable[token % 2] |= event.is_readable() || event.is_read_closed();
                        connection.writable[token % 2] |= event.is_writable();
                        self.serve(token / 2);
                    }
                }
            }
            while let Ok(order) = self.inbox.try_recv() {
                if matches!(order, ProxyOrder::End) {
                    return;
                }
                self.obey(order);
            }
            self.serve_due();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let open = self.connections.iter().flatten();
        let due = open.flat_map(|connection| {
            let listener = &self.listeners[connection.listener];
            let ways = connection.directions.iter().zip(&listener.weather);
            ways.filter(|(_, weather)| !weather.cut).filter_map(|(direction, _)| direction.next_due())
        });
        due.min().map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn serve_due(&mut self) {
        let now = Instant::now();
        for index in 0..self.connections.len() {
            let due = self.connections[index].as_ref().is_some_and(|connection| {
                connection
                    .directions
                    .iter()
                    .any(|direction| direction.next_due().is_some_and(|due| due <= now))
            });
            if due {
                self.serve(index);
            }
        }
    }

    fn obey(&mut self, order: ProxyOrder) {
        match order {
            ProxyOrder::Listen { at, link, target, framed, answer } => {
                let _ = answer.send(self.listen(at, link, target, framed));
            }
            ProxyOrder::Retarget { to, target } => {
                let listeners = self.listeners.iter_mut().filter(|listener| listener.link.to == to);
                listeners.for_each(|listener| listener.target = target);
            }
            ProxyOrder::Weather { from, to, weather } => {
                let is =
                    |wanted: &Option<String>, id: &str| wanted.as_ref().is_none_or(|wanted| wanted == id);
                for listener in &mut self.listeners {
                    let ProxiedLink { from: dialling, to: answering } = &listener.link;
                    if is(&from, dialling) && is(&to, answering) {
                        listener.weather[Way::Forth as usize] = weather.clone();
                    }
                    if is(&from, answering) && is(&to, dialling) {
                        listener.weather[Way::Back as usize] = weather.clone();
                    }
                }
                self.serve_all();
            }
            ProxyOrder::Clear => {
                self.listeners.iter_mut().for_each(|listener| listener.weather = Default::default());
                self.serve_all();
            }
            ProxyOrder::Reset { one, other } => self.reset(one.as_deref(), other.as_deref()),
            ProxyOrder::Harm(answer) => drop(answer.send(self.harm)),
            ProxyOrder::End => {}
        }
    }

    fn reset(&mut self, one: Option<&str>, other: Option<&str>) {
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            let ProxiedLink { from, to } = &self.listeners[connection.listener].link;
            let is = |wanted: Option<&str>, id: &str| wanted.is_none_or(|wanted| wanted == id);
            if is(one, from) && is(other, to) || is(one, to) && is(other, from) {
                *slot = None;
            }
        }
    }

    fn listen(
        &mut self,
        at: IpAddr,
        link: ProxiedLink,
        target: SocketAddr,
        framed: bool,
    ) -> io::Result<SocketAddr> {
        let mut address = crate::cluster::free_address().map_err(io::Error::other)?;
        address.set_ip(at);
        let mut socket = TcpListener::bind(address)?;
        let token = Token(LISTENERS + self.listeners.len());
        self.poll.registry().register(&mut socket, token, Interest::READABLE)?;
        self.listeners.push(RelayListener { link, socket, target, framed, weather: Default::default() });
        Ok(address)
    }

    fn accept(&mut self, index: usize) {
        while let Ok((socket, _)) = self.listeners[index].socket.accept() {
            // A target that is not there ends the connection, like any other error.
            let Ok(onward) = TcpStream::connect(self.listeners[index].target) else { continue };
            let free = self.connections.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.connections.len());
            let mut sockets = [socket, onward];
            let registered = sockets.iter_mut().enumerate().try_for_each(|(side, socket)| {
                drop(socket.set_nodelay(true));
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(socket, Token(slot * 2 + side), interest)
            });
            if registered.is_err() {
                continue;
            }
            let channel =
                if self.listeners[index].framed { ProxiedChannel::Unknown } else { ProxiedChannel::Data };
            let connection = RelayConnection {
                listener: index,
                sockets,
                readable: [false; 2],
                writable: [false; 2],
                channel,
                first: Vec::new(),
                directions: Default::default(),
            };
            if slot == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[slot] = Some(connection);
        }
    }

    fn serve_all(&mut self) {
        (0..self.connections.len()).for_each(|index| self.serve(index));
    }

    /// Moves whatever can be moved now.
    fn serve(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let weather = &self.listeners[connection.listener].weather;
        let now = Instant::now();
        for side in [0, 1] {
            if weather[side].cut {
                continue;
            }
            // Until there is nothing to read or no room for it: no event will say that there is room again.
            loop {
                let (weather, buffer) = (&weather[side], &mut self.buffer);
                let (random, harm) = (&mut self.random, &mut self.harm);
                let read = connection.read(side, buffer, Passage { now, weather, random, harm });
                if read == RelayVerdict::Ends || connection.write(side, now, weather) == RelayVerdict::Ends {
                    self.connections[index] = None;
                    return;
                }
                if !connection.has_more(side) {
                    break;
                }
            }
        }
        if connection.directions.iter().all(|direction| direction.shut) {
            self.connections[index] = None;
        }
    }
}

impl RelayConnection {
    fn read(&mut self, side: usize, buffer: &mut [u8], mut passage: Passage<'_>) -> RelayVerdict {
        while self.has_more(side) {
            match self.sockets[side].read(buffer) {
                Ok(0) => self.directions[side].ended = true,
                Ok(count) => {
                    let Some(bytes) = self.recognize(side, &buffer[..count]) else { continue };
                    self.directions[side].take_in(&bytes, self.channel, &mut passage);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable[side] = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Not connected yet.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => self.readable[side] = false,
                Err(_) => return RelayVerdict::Ends,
            }
        }
        RelayVerdict::Lives
    }

    /// The bytes to go on with; none while the first ones do not tell the channel yet. The answering side says
    /// nothing before.
    fn recognize(&mut self, side: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.channel != ProxiedChannel::Unknown || side != Way::Forth as usize {
            return Some(bytes.to_vec());
        }
        self.first.extend_from_slice(bytes);
        self.channel = stream::channel(&self.first);
        (self.channel != ProxiedChannel::Unknown).then(|| std::mem::take(&mut self.first))
    }

    fn write(&mut self, side: usize, now: Instant, weather: &Weather) -> RelayVerdict {
        let (direction, to) = (&mut self.directions[side], 1 - side);
        direction.release(now, weather);
        let mut written = 0;
        while self.writable[to] && written < direction.out.len() {
            match self.sockets[to].write(&direction.out[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable[to] = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return RelayVerdict::Ends,
            }
        }
        direction.out.drain(..written);
        if direction.ended && direction.is_drained() && self.writable[to] && !direction.shut {
            direction.shut = true;
            if self.sockets[to].shutdown(Shutdown::Write).is_err() {
                return RelayVerdict::Ends;
            }
        }
        RelayVerdict::Lives
    }

    fn has_more(&self, side: usize) -> bool {
        let direction = &self.directions[side];
        self.readable[side] && !direction.ended && !direction.is_full()
    }
}
