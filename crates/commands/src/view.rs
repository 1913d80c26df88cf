//! Which view of its key a read is: equal for commands that must get the same reply.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use wire::View;
use wire::resp::Command;

use super::classify::Classified;

/// The view of a command of kind `Read`: a hash of name, arguments other than the key, and RESP version.
/// `View::GET` for GET, whose reply is the same in both versions, and for nothing else.
///
/// `keyed` is the cluster's secret hash (`Placement::view_hash`): nodes do not compare the commands behind two equal
/// views, so nobody outside may be able to find a pair that collides.
pub fn view(keyed: &SipHasher24, command: &Command, classified: &Classified, resp3: bool) -> View {
    let spec = classified.spec;
    if spec.name == "get" {
        return View::GET;
    }
    let mut hasher = *keyed;
    hasher.write(spec.name.as_bytes());
    hasher.write_u8(if resp3 { 3 } else { 2 });
    for index in spec.name_args()..command.len() {
        if classified.keys.contains(&index) {
            // No argument is so long: the place of the key takes part, the key does not.
            hasher.write_u64(u64::MAX);
        } else {
            hasher.write_u64(command.arg(index).len() as u64);
            hasher.write(command.arg(index));
        }
    }
    View(hasher.finish().max(1))
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher24;
    use wire::View;
    use wire::resp::Command;

    use super::view;
    use crate::classify;

    fn of(line: &str, resp3: bool) -> View {
        let args: Vec<&str> = line.split(' ').collect();
        let command = Command::from_args(&args);
        view(
            &SipHasher24::new_with_key(&[7; 16]),
            &command,
            &classify(&command).expect("a known command"),
            resp3,
        )
    }

    #[test]
    fn get_is_the_same_view_in_both_versions() {
        assert_eq!(of("GET k", false), View::GET);
        assert_eq!(of("get other", true), View::GET);
        assert_ne!(of("STRLEN k", false), View::GET);
    }

    #[test]
    fn case_of_the_name_and_the_key_make_no_difference() {
        assert_eq!(of("HGETALL k", false), of("hGetAll other", false));
        assert_eq!(of("XINFO STREAM k", false), of("xinfo stream k2", false));
        assert_eq!(of("LRANGE k 0 -1", true), of("lrange k 0 -1", true));
    }

    #[test]
    fn name_arguments_and_version_make_a_difference() {
        let views = [
            of("HGETALL k", false),
            of("HGETALL k", true),
            of("HKEYS k", false),
            of("HGET k a", false),
            of("HGET k A", false),
            of("HMGET k a", false),
            of("HMGET k a b", false),
            of("HMGET k ab", false),
            of("HMGET k b a", false),
            of("LRANGE k 0 1", false),
            of("LRANGE k 01 ", false),
            of("XINFO STREAM k", false),
            of("XINFO STREAM k FULL", false),
        ];
        for (index, one) in views.iter().enumerate() {
            assert!(views[index + 1..].iter().all(|other| other != one), "{index}");
        }
    }
}
