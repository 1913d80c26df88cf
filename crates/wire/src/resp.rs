//! RESP placeholder.
