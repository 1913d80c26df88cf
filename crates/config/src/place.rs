//! Where in a file a setting stands that validation has something against. Not what is wrong with it.

/// The number of the line that `what` is about: `[section] key ...` or `[[section]] "id": key ...`.
pub(super) fn line_of(text: &str, what: &str) -> Option<usize> {
    let (header, rest) = match what.starts_with("[[") {
        true => what.split_at(what.find("]]")? + 2),
        false => what.split_at(what.find(']')? + 1),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let starts = (0..lines.len()).filter(|&index| without_comment(lines[index]) == header);
    let mut blocks = starts.map(|start| {
        let length = lines[start + 1..].iter().take_while(|line| !line.starts_with('[')).count();
        (start, &lines[start + 1..start + 1 + length])
    });
    let rest = rest.trim_start();
    // A member by its id, or a layer by its name.
    let named = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (start, block, rest) = match named {
        Some((name, rest)) => {
            let is_it = |line: &&str| {
                setting(line).is_some_and(|(key, value)| {
                    matches!(key, "id" | "name" | "prefix") && value.starts_with(&format!("\"{name}\""))
                })
            };
            let (start, block) = blocks.find(|(_, block)| block.iter().any(is_it))?;
            (start, block, rest.trim_start_matches([':', ' ']))
        }
        None => {
            // `[[node]] id = "x"` says which by the value itself.
            let says_it = |line: &&str| {
                setting(line).is_some_and(|(key, value)| rest.starts_with(&format!("{key} = {value}")))
            };
            let found: Vec<_> = blocks.collect();
            let (start, block) =
                found.iter().rev().find(|(_, block)| block.iter().any(says_it)).or(found.first())?;
            (*start, *block, rest)
        }
    };
    let key = rest.split([' ', ':', '=']).next().unwrap_or_default();
    let within = block.iter().position(|line| setting(line).is_some_and(|(found, _)| found == key));
    Some(within.map_or(start, |within| start + 1 + within) + 1)
}

fn setting(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    (!line.starts_with('#')).then_some((key.trim(), value.trim()))
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or(line).trim_end()
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn lines_are_found_by_section_member_and_key() {
        let text = "\
[cluster] # the first
lease_ms = 5

[[node]]
id = \"a\"
layer = \"leaf\"
[[node]]
id = \"b\"
layer = \"spin\"
[[node]]
id = \"b\"
";
        for (what, expected) in [
            ("[cluster] lease_ms = 5: write 20 to 60000", Some(2)),
            ("[cluster] secret is missing: write", Some(1)),
            ("[[node]] \"b\": layer = \"spin\": no such layer", Some(9)),
            ("[[node]] \"a\": rack is missing", Some(4)),
            ("[[node]] id = \"b\": a node has this id", Some(11)),
            ("[[shim]]: there is none", None),
            ("something else", None),
        ] {
            assert_eq!(line_of(text, what), expected, "{what}");
        }
    }
}
