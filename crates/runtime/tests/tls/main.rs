//! TLS on a reactor against rustls over blocking sockets: handshakes, large transfers, ends. Not what certificates say.

mod authority;
mod configuration;
mod http;
mod transport;
