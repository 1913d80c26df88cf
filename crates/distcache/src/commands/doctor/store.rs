//! The folder of an embedded store on disk. Not what is in it.

use std::path::Path;

use protocol::storage::{MarkedPart, REMEDY};
use shim::storage::durable::{StoreFolderSeen, examine};

use super::finding::DoctorFindings;

pub(super) fn check(shim: &str, folder: &Path, part: Option<&MarkedPart>, findings: &mut DoctorFindings) {
    let subject = format!("{shim} embedded://{}", folder.display());
    let seen = match examine(folder) {
        Ok(seen) => seen,
        Err(error) => {
            let advice =
                "give the folder to the user that the shim runs as, or name another one in `storage`";
            return findings.wrong(&subject, &format!("cannot be looked at: {error}"), advice);
        }
    };
    let StoreFolderSeen { record, is_open, free, free_min, shared } = seen;
    if let Some(kind) = shared {
        return findings.wrong(
            &subject,
            &format!("the folder is on {kind}, where neither locks nor syncs can be relied on"),
            "give one on a disk of this machine",
        );
    }
    if free < free_min {
        return findings.wrong(
            &subject,
            &format!("{} MiB are free there: writes are refused below {} MiB", free >> 20, free_min >> 20),
            "make room",
        );
    }
    let record = match record {
        Ok(record) => record,
        Err(why) => return findings.wrong(&subject, &why, "do not start the shim before that"),
    };
    if let Some(difference) = record.as_ref().zip(part).and_then(|(record, part)| record.misfit(part)) {
        return findings.wrong(&subject, &difference, REMEDY);
    }
    let state = match (record.is_some(), is_open) {
        (false, _) => "is made at the start",
        (true, false) => "no process has it open",
        (true, true) => "a process has it open",
    };
    findings.good(&subject, &format!("{state}; {} MiB are free", free >> 20));
}
