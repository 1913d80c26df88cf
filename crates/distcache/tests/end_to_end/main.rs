//! End to end: the real binary before real storage servers, with clients that people use. Not how a part works inside.

mod balance;
mod clients;
mod cluster;
mod coherence;
mod failures;
mod history;
mod resp;
mod status;
mod tools;
mod trouble;
mod writes;
