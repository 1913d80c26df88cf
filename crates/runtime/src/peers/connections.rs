//! Which of a reactor's connections belong to peers, and as what. Not the links they form.

use protocol::time::Time;

use crate::peers::frame::Channel;
use crate::peers::handshake::Handshake;
use crate::reactor::ConnectionId;

/// What a peer's connection is.
pub(crate) enum LinkRole {
    /// `link` is known from the start on the dialling side; its handshake begins when it is connected.
    Unproven {
        handshake: Option<Box<Handshake>>,
        link: Option<(u32, Channel)>,
    },
    Proven {
        link: u32,
        channel: Channel,
    },
}

#[derive(Default)]
pub(crate) struct Slots {
    /// By the connection's index; the id tells whether it is still that connection.
    slots: Vec<Option<(ConnectionId, LinkRole)>>,
    deadlines: Vec<(ConnectionId, Time)>,
    /// Accepted and unproven.
    unproven: usize,
}

impl Slots {
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<&LinkRole> {
        let (id, role) = self.slots.get(connection.index())?.as_ref()?;
        (*id == connection).then_some(role)
    }

    pub(crate) fn has(&self, connection: ConnectionId) -> bool {
        self.role(connection).is_some()
    }

    /// Accepted connections whose handshake is not over.
    pub(crate) fn unproven_count(&self) -> usize {
        self.unproven
    }

    pub(crate) fn add_unproven(
        &mut self,
        connection: ConnectionId,
        handshake: Option<Handshake>,
        link: Option<(u32, Channel)>,
        deadline: Time,
    ) {
        self.unproven += usize::from(link.is_none());
        self.deadlines.push((connection, deadline));
        self.put(connection, LinkRole::Unproven { handshake: handshake.map(Box::new), link });
    }

    pub(crate) fn set_handshake(&mut self, connection: ConnectionId, begun: Handshake) {
        if let Some(LinkRole::Unproven { handshake, .. }) = self.role_mut(connection) {
            *handshake = Some(Box::new(begun));
        }
    }

    /// The handshake of an unproven connection, and its place if it was dialled.
    pub(crate) fn handshake(
        &mut self,
        connection: ConnectionId,
    ) -> Option<(&mut Handshake, Option<(u32, Channel)>)> {
        match self.role_mut(connection)? {
            LinkRole::Unproven { handshake, link } => Some((handshake.as_deref_mut()?, *link)),
            LinkRole::Proven { .. } => None,
        }
    }

    pub(crate) fn prove(&mut self, connection: ConnectionId, link: u32, channel: Channel) {
        self.remove(connection);
        self.put(connection, LinkRole::Proven { link, channel });
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) {
        if let Some(LinkRole::Unproven { link, .. }) = self.role(connection) {
            self.unproven -= usize::from(link.is_none());
            self.deadlines.retain(|&(id, _)| id != connection);
        }
        if self.has(connection) {
            self.slots[connection.index()] = None;
        }
    }

    /// Unproven connections whose time is over.
    pub(crate) fn overdue(&mut self, now: Time) -> Vec<ConnectionId> {
        let overdue = |&(_, deadline): &(ConnectionId, Time)| now >= deadline;
        self.deadlines.iter().filter(|entry| overdue(entry)).map(|&(connection, _)| connection).collect()
    }

    fn role_mut(&mut self, connection: ConnectionId) -> Option<&mut LinkRole> {
        let (id, role) = self.slots.get_mut(connection.index())?.as_mut()?;
        (*id == connection).then_some(role)
    }

    fn put(&mut self, connection: ConnectionId, role: LinkRole) {
        if self.slots.len() <= connection.index() {
            self.slots.resize_with(connection.index() + 1, || None);
        }
        self.slots[connection.index()] = Some((connection, role));
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkRole, Slots};
    use crate::peers::frame::Channel;
    use crate::reactor::{ConnectionId, Io};
    use protocol::time::Time;

    fn connection(io: &mut Io) -> ConnectionId {
        io.dial(&"unix:///nowhere".parse().unwrap())
    }

    #[test]
    fn unproven_connections_are_counted_and_overdue_in_time() {
        let mut io = Io::new().unwrap();
        let mut slots = Slots::default();
        let (first, second, dialled) = (connection(&mut io), connection(&mut io), connection(&mut io));
        slots.add_unproven(first, None, None, Time(10));
        slots.add_unproven(second, None, None, Time(20));
        slots.add_unproven(dialled, None, Some((0, Channel::Data)), Time(15));
        assert_eq!((slots.unproven_count(), slots.overdue(Time(9))), (2, vec![]));
        assert_eq!(slots.overdue(Time(15)), [first, dialled]);
        slots.prove(first, 3, Channel::Control);
        assert_eq!((slots.unproven_count(), slots.overdue(Time(30))), (1, vec![second, dialled]));
        slots.remove(second);
        slots.remove(dialled);
        assert_eq!((slots.unproven_count(), slots.overdue(Time(30))), (0, vec![]));
        assert!(matches!(slots.role(first), Some(LinkRole::Proven { link: 3, channel: Channel::Control })));
        assert!(!slots.has(second));
    }

    #[test]
    fn a_later_connection_in_the_same_place_is_nobody() {
        let mut io = Io::new().unwrap();
        let mut slots = Slots::default();
        let old = connection(&mut io);
        slots.prove(old, 0, Channel::Data);
        io.close(old);
        let new = connection(&mut io);
        assert_eq!(new.index(), old.index());
        assert!(slots.has(old) && !slots.has(new));
    }
}
