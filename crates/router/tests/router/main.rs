//! Tests of the router over real sockets. Its decisions are tested at the machine, in `protocol`.

mod front_door;
mod library;
mod stage;
