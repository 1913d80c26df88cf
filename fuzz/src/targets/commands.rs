//! Any list of arguments as a command: it is classified or refused, its keys are among its arguments, and neither the
//! case of its name nor its key changes its view. Commands with a dot, which no client writes, have one case.

use protocol::command::{self, Kind};
use siphasher::sip::SipHasher24;
use wire::View;
use wire::resp::{Command, ReplyScanner};

pub(crate) fn run(data: &[u8]) {
    let args: Vec<Vec<u8>> = data.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let command = Command::from_args(&args);
    let classified = match command::classify(&command) {
        Ok(classified) => classified,
        Err(refusal) => {
            let reply = format!("-{refusal}\r\n");
            assert_eq!(ReplyScanner::new().scan(reply.as_bytes()), Ok(Some(reply.len())), "{reply:?}");
            return;
        }
    };
    assert!(classified.keys.iter().all(|key| (1..command.len()).contains(key)), "{classified:?}");
    match classified.kind {
        Kind::Read => assert_eq!(classified.keys.len(), 1, "{command:?}"),
        Kind::Keyless | Kind::Connection | Kind::Barrier | Kind::Subscription | Kind::Publish => {
            assert!(classified.keys.is_empty(), "{command:?}")
        }
        Kind::Purge => assert!(classified.keys.len() <= 1, "{command:?}"),
        Kind::Watch | Kind::Query | Kind::Write | Kind::BlockingWrite | Kind::BlockingQuery => {
            assert!(!classified.keys.is_empty(), "{command:?}");
        }
    }
    if command::early_value(&command).is_some() {
        assert_eq!((classified.kind, &classified.keys[..]), (Kind::Write, &[1][..]), "{command:?}");
    }
    let mut shouted = args;
    if shouted[0].first() != Some(&b'.') {
        shouted[0].make_ascii_uppercase();
    }
    let loud = Command::from_args(&shouted);
    let again = command::classify(&loud).expect("case makes no difference");
    assert_eq!((again.kind, &again.keys), (classified.kind, &classified.keys));
    if classified.kind == Kind::Read {
        let key = classified.keys[0];
        shouted[key] = b"another".to_vec();
        let other = Command::from_args(&shouted);
        let same = command::classify(&other).is_ok_and(|other| other.keys == classified.keys);
        for resp3 in [false, true] {
            let seed = SipHasher24::new_with_key(&[7; 16]);
            let view = command::view(&seed, &command, &classified, resp3);
            assert_eq!(command::view(&seed, &loud, &again, resp3), view);
            assert!(!same || command::view(&seed, &other, &classified, resp3) == view, "{command:?}");
            assert_eq!(view == View::GET, classified.spec.name == "get", "{command:?}");
        }
    }
}
