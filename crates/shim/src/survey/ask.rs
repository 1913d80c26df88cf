//! Asks many servers at once, each on a connection for that alone, and waits for their answers. Not what they are asked.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::{Address, Login};
use runtime::reactor::{ConnectionId, Driver, Event, Io, Reactor};
use runtime::tls::Dialer;
use wire::resp::{Command, ReplyScanner, Value};

/// One server and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct SurveyedServer {
    pub(super) address: Address,
    pub(super) tls: Option<Dialer>,
    pub(super) login: Login,
}

/// The replies to all questions, errors among them; or why there are none.
pub(super) type SurveyAnswers = Result<Vec<Value>, String>;

struct SurveyCall {
    connection: ConnectionId,
    scanner: ReplyScanner,
    logging_in: bool,
    replies: Vec<Value>,
    questions_count: usize,
    outcome: Option<Result<(), String>>,
}

struct SurveyCalls(Vec<SurveyCall>);

/// Asks each server its questions; the answers in the order of the servers.
///
/// # Errors
/// Only if the kernel refuses to wait for sockets.
pub(super) fn ask(
    calls: &[(SurveyedServer, Vec<Command>)],
    patience: Duration,
) -> io::Result<Vec<SurveyAnswers>> {
    let mut io = Io::new()?;
    let deadline = Instant::now() + patience;
    let mut calls =
        SurveyCalls(calls.iter().map(|(server, questions)| dial(&mut io, server, questions)).collect());
    let mut reactor = Reactor::new(io);
    while calls.0.iter().any(|call| call.outcome.is_none()) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        reactor.turn(&mut calls, Some(left))?;
    }
    let late = || Err(format!("no answer within {} s", patience.as_secs()));
    let answers = calls.0.into_iter().map(|call| call.outcome.unwrap_or_else(late).map(|()| call.replies));
    Ok(answers.collect())
}

fn dial(io: &mut Io, server: &SurveyedServer, questions: &[Command]) -> SurveyCall {
    let connection = io.dial_tls(&server.address, server.tls.as_ref());
    let out = io.out(connection);
    let login = server.login.command();
    for command in login.iter().chain(questions) {
        out.extend_from_slice(command.frame());
    }
    SurveyCall {
        connection,
        scanner: ReplyScanner::new(),
        logging_in: login.is_some(),
        replies: Vec::new(),
        questions_count: questions.len(),
        outcome: None,
    }
}

impl Driver for SurveyCalls {
    fn event(&mut self, io: &mut Io, event: Event) {
        let (Event::Data { connection, .. } | Event::Closed { connection, .. }) = &event else { return };
        let Some(call) = self.0.iter_mut().find(|call| call.connection == *connection) else { return };
        if call.outcome.is_some() {
            return;
        }
        match event {
            Event::Data { connection, bytes, .. } => call.data(io, connection, bytes),
            Event::Closed { error, .. } => {
                let closed = || "the server closed the connection".to_owned();
                call.outcome = Some(Err(error.map_or_else(closed, |error| error.to_string())));
            }
            _ => {}
        }
        if call.outcome.is_some() {
            io.close(call.connection);
        }
    }
}

impl SurveyCall {
    fn data(&mut self, io: &mut Io, connection: ConnectionId, mut bytes: Bytes) {
        loop {
            let value = match self.scanner.scan(&bytes) {
                Ok(Some(length)) => Value::parse(&bytes.split_to(length)),
                Ok(None) => return io.unread(connection, bytes),
                Err(error) => Err(error),
            };
            match value {
                Err(_) => self.outcome = Some(Err("RESP expected, this is something else".to_owned())),
                Ok(Value::Error(error)) if self.logging_in => {
                    self.outcome = Some(Err(format!("AUTH: {}", String::from_utf8_lossy(&error))));
                }
                Ok(_) if self.logging_in => self.logging_in = false,
                Ok(value) => self.replies.push(value),
            }
            if self.replies.len() == self.questions_count {
                self.outcome = Some(Ok(()));
            }
            if self.outcome.is_some() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use config::Password;

    use super::*;

    fn server(address: std::net::SocketAddr, password: Option<&str>) -> SurveyedServer {
        let password = password.map(|password| Password(password.to_owned()));
        let login = Login { user: None, password };
        SurveyedServer { address: Address::Tcp(address), tls: None, login }
    }

    /// One that answers its first caller `text`, once it has read something.
    fn answering(text: &'static str) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            let read = stream.read(&mut [0; 512]).expect("a question");
            assert!(read > 0);
            stream.write_all(text.as_bytes()).expect("written");
            // Until the caller hangs up.
            let _ = stream.read(&mut [0; 512]);
        });
        address
    }

    #[test]
    fn each_server_answers_for_itself() {
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound")
        };
        let questions = || vec![Command::from_args(&["PING"]), Command::from_args(&["DBSIZE"])];
        let calls = [
            (server(answering("+OK\r\n+PONG\r\n:3\r\n"), Some("p")), questions()),
            (server(answering("-WRONGPASS no\r\n"), Some("p")), questions()),
            (server(answering("HTTP/1.1 400 Bad Request\r\n\r\n"), None), questions()),
            (server(closed, None), questions()),
        ];
        let answers = ask(&calls, Duration::from_secs(30)).expect("sockets");
        let pong = Value::Simple(Bytes::from_static(b"PONG"));
        assert_eq!(answers[0], Ok(vec![pong, Value::Integer(3)]));
        assert_eq!(answers[1], Err("AUTH: WRONGPASS no".to_owned()));
        assert_eq!(answers[2], Err("RESP expected, this is something else".to_owned()));
        assert!(answers[3].as_ref().is_err_and(|error| error.contains("refused")), "{:?}", answers[3]);
    }
}
