//! The users that storage servers have told, put together. Not when they are asked.

use bytes::Bytes;
use wire::Status;
use wire::resp::Value;

use crate::router::flow::reply::PartReply;
use crate::time::Time;
use commands::acl::Users;

/// What the servers said last.
#[derive(Debug, Default)]
pub(crate) struct StorageUsers {
    servers: Vec<UsersOfServer>,
    pub(crate) next: Time,
    /// Users that are not the same everywhere.
    pub(crate) differing: Vec<String>,
    /// Questions of other threads, which wait until every server has been asked since they came.
    pub(crate) waiters: Vec<(u16, u64)>,
}

#[derive(Clone, Debug, Default)]
struct UsersOfServer {
    asked: bool,
    /// To be asked once more when it has answered.
    again: bool,
    reply: Bytes,
    /// Lists of each server there, when it has told them.
    lists: Vec<Vec<Bytes>>,
}

impl StorageUsers {
    fn server(&mut self, index: usize) -> &mut UsersOfServer {
        if self.servers.len() <= index {
            self.servers.resize_with(index + 1, UsersOfServer::default);
        }
        &mut self.servers[index]
    }

    /// Whether the server is to be asked: not while it has not answered.
    pub(crate) fn begins_to_ask(&mut self, index: usize) -> bool {
        !std::mem::replace(&mut self.server(index).asked, true)
    }

    /// Every server is to be asked from now on, whatever is on its way.
    pub(crate) fn ask_again(&mut self) {
        self.servers.iter_mut().for_each(|server| server.again = true);
    }

    /// Whether the server, which can be asked, is to be asked once more now.
    pub(crate) fn begins_to_ask_again(&mut self, index: usize) -> bool {
        let server = self.server(index);
        !server.asked && std::mem::take(&mut server.again) && self.begins_to_ask(index)
    }

    /// Whether nothing is on its way. What cannot be asked tells nothing.
    pub(crate) fn is_fresh(&self) -> bool {
        self.servers.iter().all(|server| !server.asked)
    }

    /// It has answered the question, or is gone. Whether that is news.
    pub(crate) fn answered(&mut self, index: usize, reply: &PartReply) -> bool {
        self.server(index).asked = false;
        self.take(index, reply)
    }

    /// The users of all servers together, once any has told its own.
    pub(crate) fn together(&mut self) -> Option<Users> {
        let lists: Vec<Vec<Bytes>> = self.servers.iter().flat_map(|server| server.lists.clone()).collect();
        if lists.is_empty() {
            return None;
        }
        let (users, differing) = Users::of_storage(&lists);
        self.differing = differing;
        Some(users)
    }

    /// Whether this is news.
    pub(crate) fn take(&mut self, index: usize, reply: &PartReply) -> bool {
        let server = self.server(index);
        if reply.status != Status::Ok || server.reply == reply.value {
            return false;
        }
        let Ok(value) = Value::parse(&reply.value) else { return false };
        let Some(elements) = value.elements() else { return false };
        // The shim of a Redis Cluster speaks for several servers, or for none.
        server.lists = match elements.iter().map(Value::elements).collect::<Option<Vec<_>>>() {
            Some(servers) => servers.into_iter().map(lines).collect(),
            None => vec![lines(elements)],
        };
        server.reply = Bytes::copy_from_slice(&reply.value);
        true
    }
}

fn lines(list: &[Value]) -> Vec<Bytes> {
    // Copies: slices would keep the buffer of a whole read alive.
    list.iter().filter_map(Value::bytes).map(|line| Bytes::copy_from_slice(line)).collect()
}
