//! Threads of a process that serve no single member: they log as whoever has started them. Not what they do.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread whose log lines name the member or process whose span is current here.
///
/// # Errors
/// A system without threads.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let span = tracing::Span::current();
    Builder::new().name(name.to_owned()).spawn(move || span.in_scope(run))
}
