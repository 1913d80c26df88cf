//! What a piece of text means, and the style that a terminal gives it. Not the text.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    /// Bars and figures: well below the limit, near it, at it.
    Easy,
    Busy,
    Full,
}

/// Styles with colours, or without them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    colours: bool,
}

impl Palette {
    pub(crate) const COLOURS: Palette = Palette { colours: true };

    /// As the user wants it (no-color.org).
    pub(crate) fn of_environment() -> Palette {
        Palette { colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(crate) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let colour = |colour| if self.colours { style.fg(colour) } else { style };
        match tone {
            Tone::Plain => style,
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Faint if self.colours => style.fg(Color::DarkGray),
            Tone::Faint => style.add_modifier(Modifier::DIM),
            Tone::Easy => colour(Color::Green),
            Tone::Busy => colour(Color::Yellow),
            Tone::Full => colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    pub(crate) fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }

    pub(crate) fn line(self, tone: Tone, text: impl Into<String>) -> Line<'static> {
        Line::from(self.span(tone, text))
    }

    /// How a member's load looks, as a share of what it may do.
    pub(crate) fn of_share(share: f64) -> Tone {
        match share {
            share if share >= 0.9 => Tone::Full,
            share if share >= 0.7 => Tone::Busy,
            _ => Tone::Easy,
        }
    }
}
