//! Every distributed decision of DistCache as sans-I/O machines. Never async, sockets, clocks, threads or files.

pub mod storage;
pub mod time;
