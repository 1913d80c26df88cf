//! Where the demonstration's progress goes: a live picture on a terminal, lines elsewhere. Not what it says.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use runtime::stop::Stop;

use super::picture::{self, Picture};
use super::screen::{Screen, ScreenOrder};

pub(crate) enum DemoView {
    Screen(Screen),
    /// To stdout, or to stderr where stdout is for the result alone; with the second that was shown last.
    Lines {
        to_stderr: bool,
        shown_s: Option<u64>,
    },
}

/// A log needs no more than this.
const SECONDS_PER_LINE: u64 = 2;

impl DemoView {
    pub(crate) fn new(json: bool) -> Result<DemoView> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if json || is_dumb || !io::stdout().is_terminal() {
            return Ok(DemoView::Lines { to_stderr: json, shown_s: None });
        }
        Ok(DemoView::Screen(
            Screen::new().context("cannot draw on this terminal; `distcache demo | cat` prints lines")?,
        ))
    }

    pub(crate) fn show(&mut self, picture: Picture<'_>) -> Result<()> {
        match self {
            DemoView::Screen(screen) => screen.show(picture).context("the terminal is gone"),
            DemoView::Lines { to_stderr, shown_s } => {
                let elapsed_s = picture.moment.elapsed_s;
                if shown_s.is_some_and(|shown_s| elapsed_s < shown_s + SECONDS_PER_LINE) {
                    return Ok(());
                }
                *shown_s = Some(elapsed_s);
                let line = picture::plain(picture.moment);
                if *to_stderr {
                    writeln!(io::stderr(), "{line}")?
                } else {
                    writeln!(io::stdout(), "{line}")?
                }
                Ok(())
            }
        }
    }

    /// Waits for the next frame; less, if somebody gives an order or `stop` is set.
    pub(crate) fn wait(&mut self, frame: Duration, stop: &Stop) -> Result<Option<ScreenOrder>> {
        match self {
            DemoView::Screen(screen) => {
                let order = screen.order(frame).context("cannot read keys from this terminal")?;
                Ok(order.or_else(|| stop.is_set().then_some(ScreenOrder::Interrupt)))
            }
            DemoView::Lines { .. } => Ok(stop.wait_timeout(frame).then_some(ScreenOrder::Interrupt)),
        }
    }
}
