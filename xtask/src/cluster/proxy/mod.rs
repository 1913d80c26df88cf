//! The chaos proxy: stands before every address that members dial and makes the weather of each link, one thread
//! for all of them. Which weather, and when, is decided elsewhere.

mod direction;
mod relay;
mod stream;
mod weather;

pub(crate) use direction::Harm;
pub(crate) use weather::{MessageFate, Weather, WeatherKind, WeatherRule};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::Context;
use mio::{Poll, Token, Waker};

use relay::Relay;

/// Who dials whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProxiedLink {
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The two ways through a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the dialling member.
    Forth,
    Back,
}

enum ProxyOrder {
    Listen {
        /// Where to listen; not which port.
        at: IpAddr,
        link: ProxiedLink,
        target: SocketAddr,
        framed: bool,
        answer: Sender<std::io::Result<SocketAddr>>,
    },
    /// From now on, connections to a member go to another address.
    Retarget {
        to: String,
        target: SocketAddr,
    },
    /// For every link between two members, whoever dials; `None` stands for every member.
    Weather {
        from: Option<String>,
        to: Option<String>,
        weather: Weather,
    },
    Clear,
    /// Closes the connections of every link between two members.
    Reset {
        one: Option<String>,
        other: Option<String>,
    },
    Harm(Sender<Harm>),
    End,
}

/// Ends with its connections when it goes out of scope.
pub(crate) struct Proxy {
    orders: Sender<ProxyOrder>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

const WAKER: Token = Token(usize::MAX);

impl Proxy {
    /// What chance decides is decided by `seed`, as far as the kernel's timing allows.
    pub(crate) fn start(seed: u64) -> anyhow::Result<Proxy> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (orders, inbox) = channel();
        let relay = Relay::new(poll, inbox, seed);
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || relay.run())?;
        Ok(Proxy { orders, waker, thread: Some(thread) })
    }

    /// A new address on `at` by which `from` finds `to`. Framed links carry the protocol between roles.
    pub(crate) fn listen(
        &self,
        at: IpAddr,
        from: &str,
        to: &str,
        target: SocketAddr,
        framed: bool,
    ) -> anyhow::Result<SocketAddr> {
        let link = ProxiedLink { from: from.to_owned(), to: to.to_owned() };
        let (answer, answered) = channel();
        self.order(ProxyOrder::Listen { at, link, target, framed, answer })?;
        Ok(answered.recv().context("the proxy has ended")??)
    }

    /// Further connections to `to` go to `target`; those that are open stay.
    pub(crate) fn retarget(&self, to: &str, target: SocketAddr) -> anyhow::Result<()> {
        self.order(ProxyOrder::Retarget { to: to.to_owned(), target })
    }

    /// From now on for what `from` sends to `to`, whoever dialled; `None` stands for every member.
    pub(crate) fn weather(
        &self,
        from: Option<&str>,
        to: Option<&str>,
        weather: Weather,
    ) -> anyhow::Result<()> {
        let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
        self.order(ProxyOrder::Weather { from, to, weather })
    }

    /// Fair weather everywhere.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        self.order(ProxyOrder::Clear)
    }

    /// Closes every connection between two members; `None` stands for every member.
    pub(crate) fn reset(&self, one: Option<&str>, other: Option<&str>) -> anyhow::Result<()> {
        self.order(ProxyOrder::Reset { one: one.map(str::to_owned), other: other.map(str::to_owned) })
    }

    /// What the rules have done to messages so far.
    pub(crate) fn harm(&self) -> anyhow::Result<Harm> {
        let (answer, answered) = channel();
        self.order(ProxyOrder::Harm(answer))?;
        answered.recv().context("the proxy has ended")
    }

    fn order(&self, order: ProxyOrder) -> anyhow::Result<()> {
        self.orders.send(order).ok().context("the proxy has ended")?;
        Ok(self.waker.wake()?)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.order(ProxyOrder::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Proxy, Weather};
    use crate::cluster::LOOPBACK;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut reader = stream.try_clone().unwrap();
                    let mut writer = stream;
                    drop(std::io::copy(&mut reader, &mut writer));
                });
            }
        });
        address
    }

    fn say(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text)?;
        let mut heard = vec![0; text.len()];
        stream.read_exact(&mut heard)?;
        Ok(heard)
    }

    #[test]
    fn bytes_pass_cuts_hold_them_and_resets_end_connections() {
        let proxy = Proxy::start(1).unwrap();
        let address = proxy.listen(LOOPBACK, "a", "b", echo(), false).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        assert_eq!(say(&mut stream, b"hello").unwrap(), b"hello");

        proxy.weather(Some("b"), Some("a"), Weather { cut: true, ..Weather::default() }).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(say(&mut stream, b"?").is_err(), "nothing comes back");
        stream.set_read_timeout(None).unwrap();
        proxy.clear().unwrap();
        let mut late = [0];
        stream.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"?");

        let large = vec![7; 3 << 20];
        let mut writer = stream.try_clone().unwrap();
        let sent = large.clone();
        let thread = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        let mut heard = vec![0; large.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == large);
        thread.join().unwrap();

        proxy.reset(Some("b"), None).unwrap();
        assert!(matches!(stream.read(&mut late), Ok(0) | Err(_)));
        let mut again = TcpStream::connect(address).unwrap();
        assert_eq!(say(&mut again, b"again").unwrap(), b"again");
    }

    #[test]
    fn an_end_is_passed_on_behind_the_last_byte() {
        let proxy = Proxy::start(1).unwrap();
        let address = proxy.listen(LOOPBACK, "a", "b", echo(), false).unwrap();
        let delay = Duration::from_millis(20);
        proxy.weather(None, None, Weather { delay, ..Weather::default() }).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"last words").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"last words");
    }
}
