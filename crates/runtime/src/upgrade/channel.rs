//! What a process and the one that takes its place tell each other over a Unix socket: words, and sockets. Not what follows.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use config::Address;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::sockets::NamedSocket;

/// One byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpgradeWord {
    /// From the next process: its configuration is right, and it takes the sockets.
    Prepared,
    /// From the next process: its routers serve clients.
    Serving,
    /// From the process before: it has no nodes, shims and controllers any more.
    Yours,
    /// From the next process: all its members serve.
    Done,
}

impl UpgradeWord {
    fn byte(self) -> u8 {
        match self {
            UpgradeWord::Prepared => b'p',
            UpgradeWord::Serving => b's',
            UpgradeWord::Yours => b'y',
            UpgradeWord::Done => b'd',
        }
    }
}

#[derive(Debug)]
pub(super) struct UpgradeChannel(UnixStream);

impl UpgradeChannel {
    pub(super) fn new(stream: UnixStream) -> UpgradeChannel {
        UpgradeChannel(stream)
    }

    pub(super) fn say(&mut self, word: UpgradeWord) -> io::Result<()> {
        self.0.write_all(&[word.byte()])
    }

    /// Waits for `word` for at most `patience`.
    ///
    /// # Errors
    /// `UnexpectedEof`: the other process has ended. `TimedOut`: it has said nothing.
    pub(super) fn expect(&mut self, word: UpgradeWord, patience: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(patience))?;
        let mut byte = [0];
        match self.0.read_exact(&mut byte) {
            Ok(()) if byte == [word.byte()] => Ok(()),
            Ok(()) => {
                Err(io::Error::other(format!("it says {:?} where {word:?} was expected", byte[0] as char)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("it is not {word:?} after {patience:?}")))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(io::Error::new(
                error.kind(),
                "the other process has ended; what it said stands before this",
            )),
            Err(error) => Err(error),
        }
    }

    /// The sockets, and whether the next process is to use the other numbers for its routers.
    pub(super) fn give(&mut self, sockets: &[NamedSocket], other_numbers: bool) -> io::Result<()> {
        let count = u32::try_from(sockets.len()).map_err(io::Error::other)?;
        self.0.write_all(&count.to_be_bytes())?;
        self.0.write_all(&[u8::from(other_numbers)])?;
        for (address, socket) in sockets {
            self.give_one(&address.to_string(), socket.as_fd())?;
        }
        Ok(())
    }

    /// Its descriptor goes with the first byte, the length of the address.
    fn give_one(&mut self, address: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
        let length = u8::try_from(address.len()).map_err(io::Error::other)?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [socket];
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&[length])], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.0.write_all(address.as_bytes())
    }

    /// What `give` has sent.
    pub(super) fn take(&mut self, patience: Duration) -> io::Result<(Vec<NamedSocket>, bool)> {
        self.0.set_read_timeout(Some(patience))?;
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [count @ .., other_numbers] = head;
        let sockets = (0..u32::from_be_bytes(count)).map(|_| self.take_one());
        Ok((sockets.collect::<io::Result<_>>()?, other_numbers == 1))
    }

    fn take_one(&mut self) -> io::Result<NamedSocket> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut socket: Option<OwnedFd> = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                socket = descriptors.next();
            }
        }
        let socket = socket.ok_or_else(|| io::Error::other("an address came without its socket"))?;
        let mut address = vec![0; usize::from(length[0])];
        self.0.read_exact(&mut address)?;
        let address: Address = String::from_utf8_lossy(&address)
            .parse()
            .map_err(|error| io::Error::other(format!("{error}")))?;
        Ok((address, socket))
    }
}

#[cfg(test)]
mod tests {
    use super::{UpgradeChannel, UpgradeWord};
    use config::Address;
    use std::io;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn listening_sockets_go_to_the_other_end_with_their_addresses() {
        let (own, other) = UnixStream::pair().unwrap();
        let (mut own, mut other) = (UpgradeChannel::new(own), UpgradeChannel::new(other));
        let listeners: Vec<_> = (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let named = listeners.iter().map(|listener| {
            let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
            (address, listener.try_clone().unwrap().into())
        });
        own.give(&named.collect::<Vec<_>>(), true).unwrap();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop(listeners);
        let (taken, other_numbers) = other.take(SECOND).unwrap();
        assert!(other_numbers);
        for ((address, socket), expected) in taken.into_iter().zip(addresses) {
            assert_eq!(address, Address::Tcp(expected));
            let listener = std::net::TcpListener::from(socket);
            let client = std::net::TcpStream::connect(expected).unwrap();
            assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
        }
    }

    #[test]
    fn silence_an_end_and_another_word_are_told_apart() {
        let (own, other) = UnixStream::pair().unwrap();
        let (mut own, mut other) = (UpgradeChannel::new(own), UpgradeChannel::new(other));
        own.say(UpgradeWord::Prepared).unwrap();
        own.say(UpgradeWord::Serving).unwrap();
        other.expect(UpgradeWord::Prepared, SECOND).unwrap();
        assert!(other.expect(UpgradeWord::Done, SECOND).unwrap_err().to_string().contains("Done"));
        let silent = other.expect(UpgradeWord::Done, Duration::from_millis(1)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        drop(own);
        let ended = other.expect(UpgradeWord::Done, SECOND).unwrap_err();
        assert!(ended.kind() == io::ErrorKind::UnexpectedEof && ended.to_string().contains("has ended"));
    }
}
