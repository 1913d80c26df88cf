//! An HTTP server on a thread of its own, for the admin port and the controller. What it serves comes from outside.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use tokio::sync::Notify;

use crate::stop::Stop;
use crate::threads;

/// How long requests that run when the stop comes may go on.
const DRAIN: Duration = Duration::from_millis(500);

/// Serves `router` on a non-blocking `listener` until `stop`, on a thread called `name`.
pub fn serve(name: &str, listener: TcpListener, router: Router, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let stopped = Arc::new(Notify::new());
    let wake = Arc::clone(&stopped);
    stop.register(move || wake.notify_one());
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    threads::spawn(name, move || {
        runtime.block_on(async move {
            let draining = Arc::new(Notify::new());
            let drain = Arc::clone(&draining);
            let graceful = async move { drain.notified().await };
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            let mut server =
                tokio::spawn(axum::serve(listener, service).with_graceful_shutdown(graceful).into_future());
            stopped.notified().await;
            draining.notify_one();
            if tokio::time::timeout(DRAIN, &mut server).await.is_err() {
                server.abort();
            }
        });
    })
}
