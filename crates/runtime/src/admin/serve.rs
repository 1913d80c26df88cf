//! An HTTP server on a thread of its own, for the admin port and the controller: however many come and however slow they are,
//! it takes a bounded part of the process. What it serves comes from outside.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
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
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::HttpListener;
use super::guard::{HttpGuard, check};
use crate::stop::Stop;
use crate::threads;
use crate::tls::{Acceptor, explain};

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
/// The first byte of whoever speaks TLS.
const HANDSHAKE: u8 = 22;
/// What those are told who do not.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 65\r\n\
    Connection: close\r\n\r\n{\"error\":\"this endpoint speaks TLS ([tls.http]): write https://\"}";
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

/// Where an HTTP server is asked, and by whom.
pub struct HttpDoor {
    pub listener: HttpListener,
    /// Secures what is accepted: HTTPS.
    pub tls: Option<Acceptor>,
    pub guard: HttpGuard,
}

/// Serves `router` at `door` until `stop`, on a thread called `name`.
///
/// # Errors
/// The system refuses a thread, or what it needs.
pub fn serve(name: &str, door: HttpDoor, router: Router, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let HttpDoor { listener: HttpListener { socket, shared }, tls, guard } = door;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let stopped = Arc::new(Notify::new());
    let wake = Arc::clone(&stopped);
    stop.register(move || wake.notify_one());
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(socket)?
    };
    let router = router
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::new(guard), check))
        .layer(from_fn(in_time));
    let open = OpenConnections::new(tls);
    threads::spawn(name, move || {
        runtime.block_on(accept(&listener, &router, open, &stopped));
        drop(shared);
    })
}

async fn in_time(request: axum::extract::Request, next: Next) -> Response {
    let answer = tokio::time::timeout(REQUEST_MAX, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn accept(
    listener: &tokio::net::TcpListener,
    router: &Router,
    mut open: OpenConnections,
    stopped: &Notify,
) {
    let graceful = GracefulShutdown::new();
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

/// Secures a connection. None: the other end is too slow, or cannot; whoever speaks plain HTTP is told.
async fn secured(stream: TcpStream, from: SocketAddr, tls: &Acceptor) -> Option<TlsStream<TcpStream>> {
    let reason = match tokio::time::timeout(HEAD_MAX, handshake(stream, tls)).await {
        Ok(Ok(stream)) => {
            tls.tally().succeeded();
            return Some(stream);
        }
        Ok(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => explain(error, true),
            None => error.to_string(),
        },
        Err(_) => "it takes too long".to_owned(),
    };
    tls.tally().failed();
    if tls.tally().tells() {
        tracing::warn!(%from, "no TLS at an HTTP endpoint: {reason}");
    }
    None
}

async fn handshake(mut stream: TcpStream, tls: &Acceptor) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [HANDSHAKE];
    stream.peek(&mut first).await?;
    if first == [HANDSHAKE] {
        return TlsAcceptor::from(tls.config()?).accept(stream).await;
    }
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // What was sent has to be read, or the other end hears of nothing but that it was not.
    tokio::io::copy(&mut stream.take(HEAD_BYTES_MAX as u64), &mut tokio::io::sink()).await?;
    Err(io::Error::other("the other end does not speak TLS"))
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

impl Introduced {
    /// Answers over one connection until it has ended, or lasts too long.
    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let proven = self.proven.clone();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), self);
        let mut connection = pin!(watcher.watch(connection));
        // A client that goes, or is too slow, is no news.
        while tokio::time::timeout(LIFE_MAX, &mut connection).await.is_err() && proven.is_set() {}
    }
}

/// Connections in the order in which they came.
struct OpenConnections {
    most: usize,
    tls: Option<Acceptor>,
    open: VecDeque<(Proven, AbortHandle)>,
}

impl OpenConnections {
    fn new(tls: Option<Acceptor>) -> OpenConnections {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = descriptors.map_or(u64::MAX, |most| most / DESCRIPTORS_PART);
        OpenConnections { most: CONNECTIONS_MAX.min(part as usize).max(1), tls, open: VecDeque::new() }
    }

    fn take(&mut self, stream: TcpStream, from: SocketAddr, router: &Router, graceful: &GracefulShutdown) {
        self.open.retain(|(_, connection)| !connection.is_finished());
        while self.open.iter().filter(|(proven, _)| !proven.is_set()).count() >= self.most {
            self.close_oldest();
        }
        let proven = Proven::default();
        let inner = TowerToHyperService::new(router.clone());
        let service = Introduced { inner, from, proven: proven.clone() };
        let (watcher, tls) = (graceful.watcher(), self.tls.clone());
        let task = tokio::spawn(async move {
            match tls {
                None => service.answer(stream, watcher).await,
                Some(tls) => {
                    if let Some(stream) = secured(stream, from, &tls).await {
                        service.answer(stream, watcher).await;
                    }
                }
            }
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
