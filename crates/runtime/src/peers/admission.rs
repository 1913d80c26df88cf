//! Connections on their way to become parts of links: who is at the other end, and whether it is let in. Not the links.

use bytes::Bytes;
use protocol::time::Time;
use wire::LEVELS;

use crate::peers::connections::LinkRole;
use crate::peers::frame::{self, Channel, Name, PeerHello, PeerRefusal};
use crate::peers::handshake::Handshake;
use crate::peers::{MemberIdentity, Peers, UNPROVEN_MAX};
use crate::reactor::{ConnectionId, Io};

impl Peers {
    pub(super) fn accept(&mut self, io: &mut Io, connection: ConnectionId) {
        let now = io.now();
        if self.slots.unproven_count() >= UNPROVEN_MAX {
            io.close(connection);
            self.complain(now, &format_args!("{UNPROVEN_MAX} connections wait for their handshake already"));
            return;
        }
        let handshake = Handshake::answer(&self.key, self.hello(Channel::Data, 0));
        self.slots.add_unproven(connection, Some(handshake), None, now.after(self.handshake_max));
    }

    /// A dialled connection is there: say hello.
    pub(super) fn greet(&mut self, io: &mut Io, connection: ConnectionId) {
        let Some(LinkRole::Unproven { link: Some((position, channel)), .. }) = self.slots.role(connection)
        else {
            return;
        };
        let (link, channel) = (&self.links[*position as usize], *channel);
        let own = self.hello(channel, link.attempt);
        let handshake = Handshake::dial(&self.key, own, link.peer, io.out(connection));
        self.slots.set_handshake(connection, handshake);
    }

    fn hello(&self, channel: Channel, attempt: u64) -> PeerHello {
        let (MemberIdentity { peer, agreement, .. }, place) = (self.identity, self.place);
        PeerHello {
            peer,
            place,
            channel,
            instance: self.instance,
            attempt,
            nonce: rand::random(),
            agreement,
            levels: LEVELS,
        }
    }

    pub(super) fn shake(&mut self, io: &mut Io, connection: ConnectionId, mut bytes: Bytes, now: Time) {
        let Some((handshake, dialled)) = self.slots.handshake(connection) else { return };
        handshake.vouch(io.vouched_roles(connection));
        let stepped = handshake.step(&mut bytes, io.out(connection));
        let admitted = match stepped {
            Ok(None) => return io.unread(connection, bytes),
            Ok(Some(hello)) => self.admit(io, connection, hello, dialled, now),
            Err(refusal) => Err(refusal),
        };
        match admitted {
            Ok(place) => self.receive(io, connection, place, bytes, now),
            Err(refusal) => self.refuse(io, connection, &refusal, now),
        }
    }

    /// A connection is proven and takes its place in a link.
    fn admit(
        &mut self,
        io: &mut Io,
        connection: ConnectionId,
        hello: PeerHello,
        dialled: Option<(u32, Channel)>,
        now: Time,
    ) -> Result<(usize, Channel), PeerRefusal> {
        let position = match dialled {
            Some((position, _)) => position as usize,
            None => self.make_room(io, hello, now)?,
        };
        if let Some((handshake, _)) = self.slots.handshake(connection) {
            handshake.accept(io.out(connection));
        }
        let link = &mut self.links[position];
        (link.instance, link.attempt) = (hello.instance, hello.attempt);
        link.attach(hello.channel, connection);
        self.slots.prove(connection, position as u32, hello.channel);
        if link.prove(hello.channel) {
            link.started = now;
            tracing::debug!(peer = %link.name(), "linked");
            self.counts.peers += 1;
            for channel in Channel::BOTH {
                link.connection(channel).into_iter().for_each(|connection| io.resume(connection));
            }
            link.connection(Channel::Control).into_iter().for_each(|connection| io.set_urgent(connection));
            self.link_made(io, position);
        }
        Ok((position, hello.channel))
    }

    /// The link that an accepted connection belongs to. An older pair of the same process gives way; that of another process with
    /// the same id does once it has fallen silent.
    fn make_room(&mut self, io: &mut Io, hello: PeerHello, now: Time) -> Result<usize, PeerRefusal> {
        let position = match hello.peer == self.identity.peer {
            true if hello.place == self.place => return Err(PeerRefusal::Duplicate(Name(hello.peer))),
            true => self.sibling(hello.place),
            false => self.position(hello.peer),
        };
        let link = &self.links[position];
        let same_process = link.instance == hello.instance;
        if link.dial.is_some() || (!same_process && link.is_heard()) {
            return Err(PeerRefusal::Duplicate(Name(hello.peer)));
        }
        let same_pair = same_process && link.attempt == hello.attempt;
        if !link.is_idle() && (!same_pair || link.connection(hello.channel).is_some()) {
            let reason = match same_process {
                true => "it has connected anew",
                false => "it says nothing, and another process of it has connected",
            };
            self.unlink(io, position, &reason);
        }
        let link = &mut self.links[position];
        if link.is_idle() {
            link.started = now;
        }
        Ok(position)
    }

    fn refuse(&mut self, io: &mut Io, connection: ConnectionId, refusal: &PeerRefusal, now: Time) {
        self.counts.links_refused_total += 1;
        self.taken |= matches!(refusal, PeerRefusal::Taken(_));
        let (theirs, dialled) = match self.slots.handshake(connection) {
            Some((handshake, dialled)) => (handshake.theirs(), dialled),
            None => (None, None),
        };
        // Only who has proven the secret is known to be who it says it is.
        let told = match refusal {
            PeerRefusal::Disagreement { difference, .. } => Some(difference.to_string()),
            PeerRefusal::Role { .. } | PeerRefusal::Duplicate(_) | PeerRefusal::Levels { .. } => {
                Some(refusal.to_string())
            }
            _ => None,
        };
        let theirs = theirs.filter(|theirs| *theirs != self.identity.peer);
        if let (Some(theirs), Some(told)) = (theirs, told) {
            let position = self.position(theirs);
            self.links[position].refuse(now, told);
        }
        frame::write_refusal(refusal, io.out(connection));
        io.close_flushed(connection);
        self.slots.remove(connection);
        match dialled {
            Some((position, _)) => {
                let position = position as usize;
                self.links[position].refuse(now, refusal.to_string());
                if let Some(dial) = &mut self.links[position].dial {
                    // This is no member that has yet to start.
                    dial.quiet_until = Time(0);
                }
                self.links[position].release(connection);
                self.unlink(io, position, refusal);
            }
            None => self.complain(now, refusal),
        }
    }
}
