//! One row of terminal cells as SVG: text as text, blocks as shapes, so that no font decides how bars look. Not its place.

use std::fmt::Write;

/// Whole numbers, also of the eighths: they are shorter.
pub(super) const CELL_WIDTH: usize = 8;
pub(super) const CELL_HEIGHT: usize = 16;
/// Baseline of the text, below the upper edge.
pub(super) const BASELINE: usize = 12;
const EIGHTHS: &str = "▁▂▃▄▅▆▇█";

/// With the beginning of its baseline at the origin.
pub(super) fn svg(pieces: &[(String, String)]) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (style, text) in pieces {
        let mut blocks = String::new();
        let mut words: Vec<(usize, String)> = Vec::new();
        let (mut last, mut was_space) = ('\0', true);
        for (place, char) in (column..).zip(text.chars()) {
            match height(char) {
                Some(height) if char == last => widen(&mut blocks, height),
                Some(height) => block(&mut blocks, place, height),
                None if char == ' ' => {}
                None => match words.last_mut() {
                    // One space joins words; more of them are a gap.
                    Some((start, word))
                        if place <= *start + word.chars().count() + usize::from(was_space) =>
                    {
                        if was_space {
                            word.push(' ');
                        }
                        word.push(char);
                    }
                    _ => words.push((place, char.to_string())),
                },
            }
            (last, was_space) = (char, char == ' ');
        }
        column += text.chars().count();
        let class = class(style);
        if !blocks.is_empty() {
            let shade = if text.contains('░') { " q" } else { "" };
            let _ = write!(out, "<path class=\"{class}{shade}\" d=\"{blocks}\"/>");
        }
        for (start, word) in words {
            let (x, width) = (start * CELL_WIDTH, word.chars().count() * CELL_WIDTH);
            let word = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = write!(out, "<text class=\"{class}\" x=\"{x}\" textLength=\"{width}\">{word}</text>");
        }
    }
    out
}

/// `red bold` as `r b`.
fn class(style: &str) -> String {
    style.split(' ').filter_map(|word| word.get(..1)).collect::<Vec<_>>().join(" ")
}

fn height(char: char) -> Option<usize> {
    let eighths = EIGHTHS.chars().position(|block| block == char).map(|index| index + 1);
    let eighths = eighths.or((char == '░').then_some(8));
    // Bars one above the other do not touch.
    eighths.map(|eighths| (CELL_HEIGHT * eighths / 8).min(CELL_HEIGHT - 1))
}

/// A rectangle as wide as one cell, with its width last but for its closing.
fn block(path: &mut String, place: usize, height: usize) {
    let (x, y) = (place * CELL_WIDTH, CELL_HEIGHT - BASELINE);
    let _ = write!(path, "M{x} {y}v-{height}h{CELL_WIDTH}v{height}z");
}

/// Makes the rectangle drawn last one cell wider.
fn widen(path: &mut String, height: usize) {
    let end = format!("v{height}z");
    let Some(from) = path.strip_suffix(&end).and_then(|path| path.rfind('h')) else { return };
    let width: usize = path[from + 1..path.len() - end.len()].parse().unwrap_or(0);
    path.truncate(from);
    let _ = write!(path, "h{}{end}", width + CELL_WIDTH);
}

#[cfg(test)]
mod tests {
    use super::svg;

    fn row(pieces: &[(&str, &str)]) -> String {
        let owned: Vec<_> =
            pieces.iter().map(|(style, text)| ((*style).to_owned(), (*text).to_owned())).collect();
        svg(&owned)
    }

    #[test]
    fn words_stay_together_and_gaps_do_not() {
        let expected = "<text class=\"p\" x=\"8\" textLength=\"24\">a b</text>\
                        <text class=\"p\" x=\"48\" textLength=\"16\">&lt;c</text>";
        assert_eq!(row(&[("plain", " a b  <c ")]), expected);
    }

    #[test]
    fn blocks_are_shapes_and_like_ones_are_one() {
        let expected = "<path class=\"r b\" d=\"M8 4v-15h16v15zM24 4v-8h8v8z\"/>";
        assert_eq!(row(&[("plain", " "), ("red bold", "██▄")]), expected);
        assert!(row(&[("grey", "░░")]).starts_with("<path class=\"g q\""));
        assert_eq!(row(&[("plain", "   ")]), "");
    }
}
