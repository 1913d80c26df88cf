//! Any list of arguments as a command: it is classified or refused, its keys are among its arguments, and neither the
//! case of its name nor its key changes its view. Commands with a dot, which no client writes, have one case.

use commands::CommandKind;
use siphasher::sip::SipHasher24;
use wire::View;
use wire::resp::{Command, ReplyScanner};

pub(crate) fn run(data: &[u8]) {
    let args: Vec<Vec<u8>> = data.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let command = Command::from_args(&args);
    let classified = match commands::classify(&command) {
        Ok(classified) => classified,
        Err(refusal) => {
            let reply = format!("-{refusal}\r\n");
            assert_eq!(ReplyScanner::new().scan(reply.as_bytes()), Ok(Some(reply.len())), "{reply:?}");
            return;
        }
    };
    assert!(classified.keys.iter().all(|key| (1..command.len()).contains(key)), "{classified:?}");
    match classified.kind {
        CommandKind::Read => assert_eq!(classified.keys.len(), 1, "{command:?}"),
        CommandKind::Keyless
        | CommandKind::Connection
        | CommandKind::Barrier
        | CommandKind::Subscription
        | CommandKind::Publish => {
            assert!(classified.keys.is_empty(), "{command:?}")
        }
        CommandKind::Purge => assert!(classified.keys.len() <= 1, "{command:?}"),
        CommandKind::Watch
        | CommandKind::Query
        | CommandKind::Write
        | CommandKind::BlockingWrite
        | CommandKind::BlockingQuery => {
            assert!(!classified.keys.is_empty(), "{command:?}");
        }
    }
    if commands::early_value(&command).is_some() {
        assert_eq!((classified.kind, &classified.keys[..]), (CommandKind::Write, &[1][..]), "{command:?}");
    }
    let mut shouted = args;
    if shouted[0].first() != Some(&b'.') {
        shouted[0].make_ascii_uppercase();
    }
    let loud = Command::from_args(&shouted);
    let again = commands::classify(&loud).expect("case makes no difference");
    assert_eq!((again.kind, &again.keys), (classified.kind, &classified.keys));
    if classified.kind == CommandKind::Read {
        let key = classified.keys[0];
        shouted[key] = b"another".to_vec();
        let other = Command::from_args(&shouted);
        let same = commands::classify(&other).is_ok_and(|other| other.keys == classified.keys);
        for resp3 in [false, true] {
            let seed = SipHasher24::new_with_key(&[7; 16]);
            let view = commands::view(&seed, &command, &classified, resp3);
            assert_eq!(commands::view(&seed, &loud, &again, resp3), view);
            assert!(!same || commands::view(&seed, &other, &classified, resp3) == view, "{command:?}");
            assert_eq!(view == View::GET, classified.spec.name == "get", "{command:?}");
        }
    }
}
