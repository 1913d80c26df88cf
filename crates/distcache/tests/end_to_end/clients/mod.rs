//! Unmodified clients see what Redis shows them. Each client has its own file.

mod commands;
mod python;
mod redis_tools;
mod rust;
