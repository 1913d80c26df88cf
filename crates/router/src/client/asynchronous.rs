//! The client for futures, of any executor. Not what a call is.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use config::Config;
use wire::resp::{Command, Value};

use super::answer::CallReplies;
use super::turns::{Turns, Waiting};
use super::{Client, ConnectError, Error, Pipeline, check, command_of, deleted, found, random_id, value};

/// A [`Client`] whose calls are futures: no thread waits for a reply, and any executor will do. A future starts its call when
/// it is polled first. One that is dropped before its end gives up the reply as a client does that hangs up: what the command
/// does may be done or not.
///
/// ```no_run
/// # async fn example(config: &config::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use router::AsyncClient;
///
/// let client = AsyncClient::connect(config).await?;
/// client.set("greeting", "hello").await?;
/// assert_eq!(client.get("greeting").await?.as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncClient {
    client: Client,
}

impl AsyncClient {
    /// As [`Client::connect`], without a thread that waits.
    ///
    /// # Errors
    /// As `Client::connect`.
    pub async fn connect(config: &Config) -> Result<AsyncClient, ConnectError> {
        let (client, connected) = Client::begin(config, random_id)?;
        match poll_fn(|context| connected.poll(context)).await {
            Some(_) => Ok(AsyncClient { client }),
            None => Err(ConnectError::late(client.shared.turns.refusals())),
        }
    }

    /// The same connection for threads that wait.
    pub fn to_blocking(&self) -> Client {
        self.client.clone()
    }

    /// As [`Client::command`].
    ///
    /// # Errors
    /// As `Client::command`.
    pub async fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Result<Value, Error> {
        let command = command_of(arguments)?;
        let reply = self.call(vec![command]).await?.pop();
        value(reply.ok_or(Error::Closed)?)
    }

    /// As [`Client::pipeline`].
    pub fn pipeline(&self) -> Pipeline<'_, AsyncClient> {
        Pipeline { client: self, commands: Vec::new() }
    }

    /// As [`Client::get`].
    ///
    /// # Errors
    /// As `Client::get`.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        found(self.command(&[b"GET", key.as_ref()]).await?)
    }

    /// As [`Client::set`].
    ///
    /// # Errors
    /// As `Client::set`.
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.command(&[b"SET", key.as_ref(), value.as_ref()]).await.map(drop)
    }

    /// As [`Client::del`].
    ///
    /// # Errors
    /// As `Client::del`.
    pub async fn del(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        deleted(self.command(&[b"DEL", key.as_ref()]).await?)
    }

    /// As [`Client::close`].
    pub fn close(&self) {
        self.client.close();
    }

    async fn call(&self, commands: Vec<Command>) -> Result<Vec<Bytes>, Error> {
        check(&commands)?;
        let mut calling = Calling { turns: &self.client.shared.turns, commands, waiting: None };
        poll_fn(|context| calling.poll(context)).await.ok_or(Error::Closed)
    }
}

impl From<Client> for AsyncClient {
    fn from(client: Client) -> AsyncClient {
        AsyncClient { client }
    }
}

impl Pipeline<'_, AsyncClient> {
    /// Sends them; all replies, one per command and in their order.
    ///
    /// # Errors
    /// Only if the client has ended; error replies are in the vector.
    pub async fn run(self) -> Result<Vec<Result<Value, Error>>, Error> {
        if self.commands.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.client.call(self.commands).await?.into_iter().map(value).collect())
    }
}

/// A call that a future waits for.
struct Calling<'a> {
    turns: &'a Turns,
    /// Until they are with the machine.
    commands: Vec<Command>,
    waiting: Option<Waiting>,
}

impl Calling<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<CallReplies> {
        if let Some(waiting) = &self.waiting {
            let outcome = waiting.answer().poll(context);
            if outcome.is_ready() {
                self.waiting = None;
            }
            return outcome;
        }
        let commands = std::mem::take(&mut self.commands);
        match self.turns.start(commands, false, || context.waker().clone()) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(waiting) => {
                self.waiting = Some(waiting);
                Poll::Pending
            }
        }
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            self.turns.abandon(waiting);
        }
    }
}
