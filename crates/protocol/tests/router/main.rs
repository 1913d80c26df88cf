//! Tests of the router's machine: transcripts, and random runs against a naive twin.

mod balance;
mod budget;
mod scripts;
mod spans;
mod surface;
mod threads;
mod twin;
mod world;
