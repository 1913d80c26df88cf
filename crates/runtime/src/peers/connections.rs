//! Which of a reactor's connections belong to peers, and as what. Not the links they form.

use crate::peers::frame::Channel;
use crate::peers::handshake::Handshake;
use crate::reactor::ConnectionId;

/// What a peer's connection is.
pub(crate) enum Role {
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
    slots: Vec<Option<(ConnectionId, Role)>>,
    deadlines: Vec<(ConnectionId, u64)>,
    /// Accepted and unproven.
    unproven: usize,
}

impl Slots {
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<&Role> {
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
        deadline_us: u64,
    ) {
        self.unproven += usize::from(link.is_none());
        self.deadlines.push((connection, deadline_us));
        self.put(connection, Role::Unproven { handshake: handshake.map(Box::new), link });
    }

    pub(crate) fn set_handshake(&mut self, connection: ConnectionId, begun: Handshake) {
        if let Some(Role::Unproven { handshake, .. }) = self.role_mut(connection) {
            *handshake = Some(Box::new(begun));
        }
    }

    /// The handshake of an unproven connection, and its place if it was dialled.
    pub(crate) fn handshake(
        &mut self,
        connection: ConnectionId,
    ) -> Option<(&mut Handshake, Option<(u32, Channel)>)> {
        match self.role_mut(connection)? {
            Role::Unproven { handshake, link } => Some((handshake.as_deref_mut()?, *link)),
            Role::Proven { .. } => None,
        }
    }

    pub(crate) fn prove(&mut self, connection: ConnectionId, link: u32, channel: Channel) {
        self.remove(connection);
        self.put(connection, Role::Proven { link, channel });
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) {
        if let Some(Role::Unproven { link, .. }) = self.role(connection) {
            self.unproven -= usize::from(link.is_none());
            self.deadlines.retain(|&(id, _)| id != connection);
        }
        if self.has(connection) {
            self.slots[connection.index()] = None;
        }
    }

    /// Unproven connections whose time is over.
    pub(crate) fn take_overdue(&mut self, now_us: u64) -> Vec<ConnectionId> {
        let overdue = |&(_, deadline_us): &(ConnectionId, u64)| now_us >= deadline_us;
        self.deadlines.iter().filter(|entry| overdue(entry)).map(|&(connection, _)| connection).collect()
    }

    fn role_mut(&mut self, connection: ConnectionId) -> Option<&mut Role> {
        let (id, role) = self.slots.get_mut(connection.index())?.as_mut()?;
        (*id == connection).then_some(role)
    }

    fn put(&mut self, connection: ConnectionId, role: Role) {
        if self.slots.len() <= connection.index() {
            self.slots.resize_with(connection.index() + 1, || None);
        }
        self.slots[connection.index()] = Some((connection, role));
    }
}
