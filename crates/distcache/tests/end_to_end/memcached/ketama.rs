//! Keys go to the servers where libmemcached would look for them. A small C program asks libmemcached itself.

use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use protocol::placement::{Placement, Secret};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use wire::{
    ClusterMap, Distribution, HashTag, LayerMap, NodeId, NodeMember, Partition, PoolHash, PoolServer, RackId,
    SHARE_WHOLE, Sharding, ShimId, ShimMember, StoragePool,
};

use crate::cluster::{Cluster, Directory, Layout, MemcachedClient, MemcachedServer, installed, shared};

const KEYS: usize = 4000;

/// A server as libmemcached is told of it.
#[derive(Debug)]
struct KetamaServer {
    host: String,
    port: u16,
    weight: u32,
}

impl KetamaServer {
    fn name(&self) -> String {
        if self.port == 11211 { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

/// The program, or none where libmemcached is not installed.
fn libmemcached(directory: &Directory) -> Option<PathBuf> {
    if !installed(&["cc", "memccapable"]) {
        return None;
    }
    let (source, program) = (directory.join("ketama.c"), directory.join("ketama"));
    std::fs::write(&source, include_str!("ketama.c")).expect("the source is written");
    let built = Command::new("cc").arg("-o").arg(&program).arg(&source).arg("-lmemcached").output();
    let built = built.expect("cc starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

fn choices(program: &PathBuf, weighted: bool, keys: usize, servers: &[KetamaServer]) -> Vec<u16> {
    let mut command = Command::new(program);
    command.arg(if weighted { "weighted" } else { "plain" }).arg(keys.to_string());
    for KetamaServer { host, port, weight } in servers {
        command.arg(host).args([port.to_string(), weight.to_string()]);
    }
    let output = command.output().expect("the program runs");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect()
}

fn placement(weighted: bool, servers: &[KetamaServer]) -> Placement {
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    let layer = LayerMap { name: "one".to_owned(), partition: Partition::Hash, nodes: vec![node] };
    let shims = (0..servers.len()).map(|index| ShimMember::new(ShimId(index as u16), RackId(0)));
    let server = |server: &KetamaServer| PoolServer {
        name: Some(server.name()),
        weight: server.weight,
        slots: Vec::new(),
    };
    let distribution = match weighted {
        true => Distribution::Ketama(PoolHash::Md5),
        false => Distribution::Libmemcached,
    };
    let servers = servers.iter().map(server).collect();
    let sharding = Sharding::Pool(StoragePool { distribution, hash_tag: HashTag::Whole, servers });
    let map = ClusterMap { epoch: 1, level: 1, sharding, layers: vec![layer], shims: shims.collect() };
    Placement::new(Secret([7; 16]), map).expect("a map")
}

#[test]
fn every_key_has_the_server_that_libmemcached_chooses() {
    let directory = Directory::new();
    let Some(program) = libmemcached(&directory) else { return };
    let _machine = shared();
    let mut random = SmallRng::seed_from_u64(7);
    for pool in 0..60 {
        let weighted = pool % 2 == 1;
        let count = random.random_range(1..24);
        let server = |index: u16, random: &mut SmallRng| KetamaServer {
            host: match random.random_range(0..3) {
                0 => format!("10.0.{pool}.{index}"),
                1 => format!("cache-{index}.example.com"),
                _ => "127.0.0.1".to_owned(),
            },
            port: if random.random_bool(0.5) { 11211 } else { 11212 + index },
            // A weight would make libmemcached's plain pool one with weights.
            weight: if weighted { random.random_range(1..9) } else { 1 },
        };
        let mut servers: Vec<KetamaServer> = (0..count).map(|index| server(index, &mut random)).collect();
        // Two entries for one server have the same points, and which of them wins is the sorting's.
        servers.dedup_by_key(|server| (server.host.clone(), server.port));
        servers.sort_by_key(|server| (server.host.clone(), server.port));
        servers.dedup_by_key(|server| (server.host.clone(), server.port));
        let expected = choices(&program, weighted, KEYS, &servers);
        let ours = placement(weighted, &servers);
        assert_eq!(expected.len(), KEYS);
        for (number, expected) in expected.into_iter().enumerate() {
            let key = ours.key(0, Bytes::from(format!("key-{number}")));
            assert_eq!(ours.shim(&key), ShimId(expected), "key-{number}, weighted: {weighted}, {servers:?}");
        }
    }
}

#[test]
fn what_is_written_through_a_router_lies_where_libmemcached_looks_for_it() {
    let directory = Directory::new();
    let Some(program) = libmemcached(&directory) else { return };
    let _machine = shared();
    let pool = [MemcachedServer::start(), MemcachedServer::start(), MemcachedServer::start()];
    let urls = pool.iter().map(MemcachedServer::url).collect();
    let cluster = Cluster::up(Layout { protocol: "memcached", ..Layout::new(urls) });
    let mut client = MemcachedClient::connect(cluster.router(0));
    for number in 0..200 {
        assert_eq!(client.text(&format!("set key-{number} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    let server = |server: &MemcachedServer| KetamaServer {
        host: server.address().ip().to_string(),
        port: server.address().port(),
        weight: 1,
    };
    let servers: Vec<KetamaServer> = pool.iter().map(server).collect();
    for (number, place) in choices(&program, false, 200, &servers).into_iter().enumerate() {
        let found = pool[usize::from(place)].connect().text(&format!("get key-{number}\r\n"));
        assert_eq!(found, format!("VALUE key-{number} 0 1\r\nx\r\nEND\r\n"));
    }
}
