//! Redis' glob patterns (`stringmatchlen`), quirks included. Not regular expressions.

/// Whether all of `text` matches; case matters.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut give_up = false;
    matches_from(pattern, text, &mut give_up)
}

/// `give_up` says that no later start of the text can match either, which keeps `*a*a*a*b` from being exponential.
fn matches_from(mut pattern: &[u8], mut text: &[u8], give_up: &mut bool) -> bool {
    // Stars match nothing behind something, but not nothing alone: `*` and the empty text do not match.
    let starts_empty = text.is_empty();
    while let (Some(&first), false) = (pattern.first(), text.is_empty()) {
        match first {
            b'*' => return matches_star(pattern, text, give_up),
            b'?' => text = &text[1..],
            b'[' => {
                let (matched, rest) = matches_class(&pattern[1..], text[0]);
                if !matched {
                    return false;
                }
                text = &text[1..];
                // An unclosed class ends the pattern.
                pattern = rest;
                continue;
            }
            _ => {
                if first == b'\\' && pattern.len() >= 2 {
                    pattern = &pattern[1..];
                }
                if pattern[0] != text[0] {
                    return false;
                }
                text = &text[1..];
            }
        }
        pattern = &pattern[1..];
    }
    if text.is_empty() && !starts_empty {
        pattern = &pattern[pattern.iter().take_while(|&&byte| byte == b'*').count()..];
    }
    pattern.is_empty() && text.is_empty()
}

fn matches_star(mut pattern: &[u8], mut text: &[u8], give_up: &mut bool) -> bool {
    while let [b'*', b'*', ..] = pattern {
        pattern = &pattern[1..];
    }
    if pattern.len() == 1 {
        return true;
    }
    while !text.is_empty() {
        if matches_from(&pattern[1..], text, give_up) {
            return true;
        }
        if *give_up {
            return false;
        }
        text = &text[1..];
    }
    *give_up = true;
    false
}

/// Whether the class matches `byte`, and the pattern after its closing bracket.
fn matches_class(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = class.first() == Some(&b'^');
    if negated {
        class = &class[1..];
    }
    let mut matched = false;
    loop {
        match *class {
            [] => return (matched != negated, class),
            [b']', ..] => return (matched != negated, &class[1..]),
            [b'\\', escaped, ..] => {
                matched |= escaped == byte;
                class = &class[2..];
            }
            [from, b'-', to, ..] => {
                matched |= (from.min(to)..=from.max(to)).contains(&byte);
                class = &class[3..];
            }
            [single, ..] => {
                matched |= single == byte;
                class = &class[1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let check = |pattern: &str, text: &str, expected| {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        };
        check("*", "", false);
        check("", "", true);
        check("*", "a", true);
        check("a*", "a", true);
        check("h?llo", "hallo", true);
        check("h*llo", "heeeello", true);
        check("h[ae]llo", "hillo", false);
        check("h[^e]llo", "hallo", true);
        check("h[a-b]llo", "hbllo", true);
        check("h[b-a]llo", "hbllo", true);
        check("a\\*c", "a*c", true);
        check("a\\*c", "abc", false);
        check("a[bc", "ab", true);
        check("", "a", false);
        check("a**", "a", true);
        check(&"*a".repeat(30), &"a".repeat(60).replace("aa", "ab"), false);
    }
}
