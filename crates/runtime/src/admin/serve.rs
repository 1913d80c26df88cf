//! An HTTP server on a thread of its own, for the admin port and the controller: however many come and however slow they are,
//! it takes a bounded part of the process. What it serves comes from outside.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit};
use axum::http::{Request, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::guard::{HttpGuard, check};
use crate::stop::Stop;
use crate::threads;

/// How long requests that run when the stop comes may go on.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a client may take for a request's head, and wait between two requests.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long a request may take with its body and its answer: longer than any change of the cluster.
const REQUEST_MAX: Duration = Duration::from_secs(40);
/// How long a connection may last that has proven nothing.
const LIFE_MAX: Duration = Duration::from_secs(120);
/// Connections at a time that have proven nothing, and what part of the process' descriptors they may be.
const CONNECTIONS_MAX: usize = 256;
const DESCRIPTORS_PART: u64 = 8;
/// A request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The body of a request that has proven nothing.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// How long nobody is accepted where there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether a connection has brought something that only a member can know.
#[derive(Clone, Debug, Default)]
pub struct Proven(Arc<AtomicBool>);

impl Proven {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves `router` on a non-blocking `listener` until `stop`, on a thread called `name`.
pub fn serve(
    name: &str,
    listener: TcpListener,
    router: Router,
    guard: HttpGuard,
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let stopped = Arc::new(Notify::new());
    let wake = Arc::clone(&stopped);
    stop.register(move || wake.notify_one());
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let router = router
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::new(guard), check))
        .layer(from_fn(in_time));
    threads::spawn(name, move || runtime.block_on(accept(&listener, &router, &stopped)))
}

async fn in_time(request: axum::extract::Request, next: Next) -> Response {
    let answer = tokio::time::timeout(REQUEST_MAX, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn accept(listener: &tokio::net::TcpListener, router: &Router, stopped: &Notify) {
    let graceful = GracefulShutdown::new();
    let mut open = OpenConnections::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped.notified() => break,
        };
        match accepted {
            Ok((stream, from)) => {
                open.take(stream, from, router, &graceful);
                // Those that are closed go before the next ones come.
                tokio::task::yield_now().await;
            }
            Err(_) => {
                // Without descriptors whoever is there has to go before anybody can come.
                open.close_oldest();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // What is not done by then is cut off.
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// What is served, with who asks.
struct Introduced {
    inner: TowerToHyperService<Router>,
    from: SocketAddr,
    proven: Proven,
}

impl Service<Request<Incoming>> for Introduced {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(self.from));
        extensions.insert(self.proven.clone());
        self.inner.call(request)
    }
}

/// Connections in the order in which they came.
struct OpenConnections {
    most: usize,
    open: VecDeque<(Proven, AbortHandle)>,
}

impl OpenConnections {
    fn new() -> OpenConnections {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = descriptors.map_or(u64::MAX, |most| most / DESCRIPTORS_PART);
        OpenConnections { most: CONNECTIONS_MAX.min(part as usize).max(1), open: VecDeque::new() }
    }

    fn take(&mut self, stream: TcpStream, from: SocketAddr, router: &Router, graceful: &GracefulShutdown) {
        self.open.retain(|(_, connection)| !connection.is_finished());
        while self.open.iter().filter(|(proven, _)| !proven.is_set()).count() >= self.most {
            self.close_oldest();
        }
        let proven = Proven::default();
        let inner = TowerToHyperService::new(router.clone());
        let service = Introduced { inner, from, proven: proven.clone() };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        let is_proven = proven.clone();
        let task = tokio::spawn(async move {
            let mut connection = pin!(connection);
            // A client that goes, or is too slow, is no news.
            while tokio::time::timeout(LIFE_MAX, &mut connection).await.is_err() && is_proven.is_set() {}
        });
        self.open.push_back((proven, task.abort_handle()));
    }

    /// Closes whoever came first and has proven nothing since.
    fn close_oldest(&mut self) {
        if let Some(oldest) = self.open.iter().position(|(proven, _)| !proven.is_set())
            && let Some((_, connection)) = self.open.remove(oldest)
        {
            connection.abort();
        }
    }
}
