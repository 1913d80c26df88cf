//! Where the demonstration's progress goes: a live picture on a terminal, lines elsewhere. Not what it says.

use std::io::{self, IsTerminal, Write};

use super::picture::{self, Cast, Moment};
use super::screen::Screen;

pub(crate) enum View {
    Screen(Screen),
    /// To stdout, or to stderr where stdout is for the result alone; with the second that was shown last.
    Lines {
        to_stderr: bool,
        shown_s: Option<u64>,
    },
}

/// A log needs no more than this.
const SECONDS_PER_LINE: u64 = 2;

impl View {
    pub(crate) fn new(json: bool) -> View {
        if !json && io::stdout().is_terminal() {
            View::Screen(Screen::default())
        } else {
            View::Lines { to_stderr: json, shown_s: None }
        }
    }

    pub(crate) fn show(&mut self, cast: &Cast, moment: &Moment) -> io::Result<()> {
        match self {
            View::Screen(screen) => screen.show(&picture::draw(cast, moment, Screen::width())),
            View::Lines { to_stderr, shown_s } => {
                if shown_s.is_some_and(|shown_s| moment.elapsed_s < shown_s + SECONDS_PER_LINE) {
                    return Ok(());
                }
                *shown_s = Some(moment.elapsed_s);
                let line = picture::plain(moment);
                if *to_stderr { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") }
            }
        }
    }
}
