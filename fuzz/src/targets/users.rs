//! Rules of a user, then commands: rules are applied or refused in one line; what is printed of a user means the same when
//! it is read again; who may do everything may, and who has no keys has none.

use bytes::Bytes;
use commands::acl::{User, Users};
use wire::resp::Command;

const NAME: &str = "app";

pub(crate) fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let rules: Vec<&[u8]> = lines.next().unwrap_or_default().split(|byte| *byte == b' ').collect();
    let plain = !rules.iter().any(|rule| rule.iter().any(|byte| b"()".contains(byte)));
    let users = match Users::configured(&[(NAME.to_owned(), rules)]) {
        Ok(users) => users,
        Err((_, error)) => return assert!(!error.to_string().is_empty()),
    };
    let user = users.get(NAME.as_bytes()).expect("just defined");
    let (read, odd) = Users::of_storage(&[vec![Bytes::from(user.line())]]);
    let again = read.get(NAME.as_bytes());
    // A parenthesis in a pattern ends a selector when it is read again, as in Redis; the user is nobody then.
    assert!(!plain || again.is_some() && odd.is_empty(), "{:?}", user.line().escape_ascii());
    for line in lines {
        let args: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let command = Command::from_args(&args);
        check(user, again.filter(|_| plain).map(|again| &**again), &command);
    }
}

fn check(user: &User, again: Option<&User>, command: &Command) {
    let Ok(spec) = commands::resolve(command) else { return };
    let verdict = user.check(spec, command);
    assert!(verdict.is_ok() || !user.is_unrestricted(), "{command:?}");
    if let Some(again) = again {
        assert_eq!(again.check(spec, command), verdict, "{command:?}");
    }
    let keyless = !user.line().iter().any(|byte| b"~%".contains(byte));
    if keyless && commands::classify(command).is_ok_and(|classified| !classified.keys.is_empty()) {
        assert!(verdict.is_err(), "{command:?}");
    }
}
