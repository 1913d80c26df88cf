//! Commands of the embedded store about the server and the connection. Not keys.

use super::call::{CallFault, CallOutcome, EmbeddedCall};
use super::keyspace::Keyspace;

/// The server version whose command set and replies are followed.
const REDIS_VERSION: &str = "7.0.15";

pub(super) fn ping(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    match call.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.arg(1)),
        _ => return Err(CallFault::arity("ping")),
    }
    Ok(())
}

pub(super) fn echo(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    call.reply.bulk(call.arg(1));
    Ok(())
}

pub(super) fn select(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    call.database(1)?;
    call.reply.ok();
    Ok(())
}

/// Microseconds are those of the driver's milliseconds.
pub(super) fn time(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let unix = call.clock.unix;
    call.reply.array(2);
    call.reply.bulk((unix / 1000).to_string().as_bytes());
    call.reply.bulk((unix % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

pub(super) fn info(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let keys_count = keys.keys_count();
    let keyspace = if keys_count == 0 {
        String::new()
    } else {
        format!("db0:keys={keys_count},expires={},avg_ttl=0\r\n", keys.expiring_count())
    };
    call.reply.text(&format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nstorage:embedded\r\n\r\n\
         # Replication\r\nrole:master\r\n\r\n# Keyspace\r\n{keyspace}"
    ));
    Ok(())
}

/// No command table: routers answer from their own.
pub(super) fn command(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    if call.len() > 1 && call.is(1, "docs") {
        call.reply.empty_map();
    } else if call.len() > 1 && call.is(1, "count") {
        call.reply.integer(super::COMMANDS.len() as i64);
    } else {
        call.reply.array(0);
    }
    Ok(())
}

pub(super) fn config(_: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    if !call.is(1, "get") {
        return Err(call.subcommand_fault(&["help", "resetstat", "rewrite", "set"]));
    }
    if call.len() < 3 {
        return Err(CallFault::arity("config|get"));
    }
    call.reply.empty_map();
    Ok(())
}
