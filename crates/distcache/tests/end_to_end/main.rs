//! End to end: the real binary before real storage servers, with clients that people use. Not how a part works inside.

mod balance;
mod bench;
mod bounded;
mod clients;
mod cluster;
mod coherence;
mod differential;
mod failures;
mod history;
mod membership;
mod memcached;
mod operations;
mod pubsub;
mod redis_cluster;
mod replicas;
mod resp;
mod scripts;
mod sentinel;
mod status;
mod table;
mod tls;
mod tracking;
mod transactions;
mod trouble;
mod users;
mod writes;
