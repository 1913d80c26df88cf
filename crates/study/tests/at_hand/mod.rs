//! The traces at hand as policies take them, decoded beforehand. Nothing where they are absent.

use std::path::{Path, PathBuf};

use policies::{NEVER, ObjectRequest, Objects};

pub(crate) const TRACES: [&str; 4] = [
    "libcachesim/cloudPhysicsIO.oracleGeneral.bin",
    "caffeine/orm-busy.trace.xz",
    "caffeine/web12.trace.xz",
    "synthetic/synth-photo-500k.oracleGeneral.bin.zst",
];

pub(crate) struct Trace {
    pub(crate) requests: Vec<ObjectRequest>,
    pub(crate) objects: usize,
    pub(crate) working_set: u64,
}

/// The file, if it is there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("DISTCACHE_TRACES").map_or_else(beside, PathBuf::from).join(name);
    let found = path.exists();
    if !found {
        println!("skipped: {} is not there", path.display());
    }
    found.then_some(path)
}

/// The first requests of a trace.
pub(crate) fn read(name: &str, requests_max: usize) -> Option<Trace> {
    let accesses = trace::open(find(name)?, None).unwrap().take(requests_max);
    Some(decode(accesses.map(|access| access.unwrap()).map(|access| (access.object, access.bytes))))
}

/// From ids and sizes.
pub(crate) fn decode(accesses: impl Iterator<Item = (u64, u64)>) -> Trace {
    let mut objects = Objects::default();
    let (mut requests, mut working_set) = (Vec::new(), 0);
    for (id, bytes) in accesses {
        let known = objects.count();
        let object = objects.number(id).unwrap();
        working_set += if object as usize == known { bytes } else { 0 };
        requests.push(ObjectRequest { object, bytes: bytes.try_into().unwrap(), next: NEVER });
    }
    let mut coming = vec![NEVER; objects.count()];
    for (index, request) in requests.iter_mut().enumerate().rev() {
        request.next = std::mem::replace(&mut coming[request.object as usize], index as u64 + 1);
    }
    Trace { requests, objects: objects.count(), working_set }
}
