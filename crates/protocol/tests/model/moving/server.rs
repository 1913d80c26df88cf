//! A server with one key, and what is on its way to it: two connections in order, and what comes late. Not Redis.

use std::collections::VecDeque;

/// A command as its words.
pub(super) type Text = String;

/// Commands of one ticket that the machine has sent and not heard of again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SentCommands {
    pub(super) ticket: u64,
    pub(super) commands: Vec<Text>,
    /// Once the server has carried them out.
    pub(super) replies: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct MovingServer {
    pub(super) value: Option<String>,
    /// By RESP version.
    pub(super) lanes: [Vec<SentCommands>; 2],
    /// What connections that are gone had: it may still be carried out, until a fence.
    pub(super) late: Vec<VecDeque<Vec<Text>>>,
    pub(super) owes_fence: bool,
    /// The machine has been told of it.
    pub(super) up: bool,
    /// The machine wants to be told of it.
    pub(super) awaited: bool,
    /// Which one it is.
    pub(super) incarnation: u64,
    /// It takes no new key.
    pub(super) full: bool,
}

impl MovingServer {
    pub(super) fn run_all(&mut self, key: &str, commands: &[Text]) -> Vec<String> {
        commands.iter().map(|command| run(&mut self.value, self.full, key, command)).collect()
    }

    /// Ends a connection: what it had may come late.
    pub(super) fn strand(&mut self, lane: usize) -> Vec<u64> {
        let lost = std::mem::take(&mut self.lanes[lane]);
        let late: VecDeque<Vec<Text>> =
            lost.iter().filter(|sent| sent.replies.is_none()).map(|sent| sent.commands.clone()).collect();
        if !late.is_empty() {
            self.late.push(late);
            self.late.sort();
        }
        lost.into_iter().map(|sent| sent.ticket).collect()
    }

    pub(super) fn fence(&mut self) {
        self.late.clear();
        self.owes_fence = false;
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.late.is_empty() && self.lanes.iter().flatten().all(|sent| sent.replies.is_some())
    }
}

/// What one command does to the value of the only key, and its reply.
pub(super) fn run(value: &mut Option<String>, full: bool, key: &str, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let bulk = |text: Option<&String>| {
        text.map_or("$-1\r\n".to_owned(), |text| format!("${}\r\n{text}\r\n", text.len()))
    };
    match words[..] {
        ["PING"] => "+PONG\r\n".to_owned(),
        ["FUNCTION", ..] => "*0\r\n".to_owned(),
        ["DBSIZE"] => format!(":{}\r\n", u8::from(value.is_some())),
        ["SCAN", ..] => match value {
            Some(_) => format!("*2\r\n$1\r\n0\r\n*1\r\n${}\r\n{key}\r\n", key.len()),
            None => "*2\r\n$1\r\n0\r\n*0\r\n".to_owned(),
        },
        ["PTTL", _] => format!(":{}\r\n", if value.is_some() { -1 } else { -2 }),
        ["DUMP" | "GET", _] => bulk(value.as_ref()),
        ["EXISTS", _] => format!(":{}\r\n", u8::from(value.is_some())),
        ["RESTORE", ..] if full => "-OOM command not allowed when used memory > 'maxmemory'.\r\n".to_owned(),
        ["RESTORE", ..] if value.is_some() => "-BUSYKEY Target key name already exists.\r\n".to_owned(),
        ["RESTORE", _, _, dumped] => {
            *value = Some(dumped.to_owned());
            "+OK\r\n".to_owned()
        }
        ["UNLINK" | "DEL", _] => format!(":{}\r\n", u8::from(value.take().is_some())),
        ["APPEND", _, more] => {
            let text = value.get_or_insert_default();
            text.push_str(more);
            format!(":{}\r\n", text.len())
        }
        _ => panic!("the machine has sent {command:?}"),
    }
}
