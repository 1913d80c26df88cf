//! Puts lines on the terminal, over the lines of before. Not what they say.

use std::io::{self, Write};

use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{cursor, queue};

use super::picture::{Line, Tone};

/// A picture that is redrawn in place. It changes no mode of the terminal beyond one frame, so that there is
/// nothing to restore however the process ends, and the last picture stays where it is.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    height: u16,
}

/// Assumed where the terminal does not say.
const SIZE: (u16, u16) = (80, 24);

impl Screen {
    /// Columns that a line may have.
    pub(crate) fn width() -> usize {
        usize::from(terminal::size().unwrap_or(SIZE).0.max(1))
    }

    pub(crate) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let rows = terminal::size().unwrap_or(SIZE).1;
        // The cursor rests below the picture; a picture of the whole height would scroll.
        let lines = &lines[..lines.len().min(usize::from(rows.saturating_sub(1)))];
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        if self.height > 0 {
            queue!(out, cursor::MoveToPreviousLine(self.height.min(rows)))?;
        }
        for line in lines {
            for span in line {
                let (color, attribute) = style(span.tone);
                queue!(
                    out,
                    SetForegroundColor(color),
                    SetAttribute(attribute),
                    Print(&span.text),
                    ResetColor
                )?;
                queue!(out, SetAttribute(Attribute::Reset))?;
            }
            queue!(out, Clear(ClearType::UntilNewLine), Print("\r\n"))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        self.height = lines.len() as u16;
        out.flush()
    }
}

fn style(tone: Tone) -> (Color, Attribute) {
    match tone {
        Tone::Plain => (Color::Reset, Attribute::Reset),
        Tone::Strong => (Color::Reset, Attribute::Bold),
        Tone::Faint => (Color::DarkGrey, Attribute::Reset),
        Tone::Easy => (Color::Green, Attribute::Reset),
        Tone::Busy => (Color::Yellow, Attribute::Reset),
        Tone::Full => (Color::Red, Attribute::Reset),
    }
}
