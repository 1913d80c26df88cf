//! The terminal: a picture in place of what was there, and the keys that are pressed. Not what they do.

use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::picture::Picture;

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenOrder {
    /// The cache on or off.
    Toggle,
    /// A cache node away, or back.
    Kill,
    /// To the end, and the table.
    End,
    /// As SIGINT does.
    Interrupt,
}

/// As long as it lives, the terminal shows the picture; afterwards, or after a panic, what it showed before.
pub(crate) struct Screen(DefaultTerminal);

impl Screen {
    pub(crate) fn new() -> io::Result<Screen> {
        Ok(Screen(ratatui::try_init()?))
    }

    pub(crate) fn show(&mut self, picture: Picture<'_>) -> io::Result<()> {
        self.0.draw(|frame| frame.render_widget(picture, frame.area())).map(drop)
    }

    /// The first order within `timeout`, or nothing after it, or when the terminal has changed its size.
    pub(crate) fn order(&mut self, timeout: Duration) -> io::Result<Option<ScreenOrder>> {
        let started = Instant::now();
        loop {
            if !event::poll(timeout.saturating_sub(started.elapsed()))? {
                return Ok(None);
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match order(key) {
                    None => {}
                    order => return Ok(order),
                },
                Event::Resize(..) => return Ok(None),
                _ => {}
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to hear of a terminal that is gone.
        drop(ratatui::try_restore());
    }
}

fn order(key: KeyEvent) -> Option<ScreenOrder> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Some(ScreenOrder::Interrupt),
        _ if control => None,
        KeyCode::Char(' ') => Some(ScreenOrder::Toggle),
        KeyCode::Char('k' | 'K') => Some(ScreenOrder::Kill),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(ScreenOrder::End),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_orders() {
        let pressed = |code, modifiers| order(KeyEvent::new(code, modifiers));
        let plain = |char| pressed(KeyCode::Char(char), KeyModifiers::NONE);
        assert_eq!(
            [' ', 'k', 'q', 'x'].map(plain),
            [Some(ScreenOrder::Toggle), Some(ScreenOrder::Kill), Some(ScreenOrder::End), None]
        );
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(ScreenOrder::Interrupt));
        assert_eq!(pressed(KeyCode::Char('k'), KeyModifiers::CONTROL), None);
    }
}
