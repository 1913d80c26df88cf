//! Shims whose storage is a folder of their own: what was acknowledged is there in the next life, whatever ended the last one.

use std::process::Command;

use wire::resp::Value;

use crate::cluster::{
    Client, Cluster, Directory, Layout, Process, UP, distcache, free_port, ok, shared, text, total, until,
};

/// Two folders, and what they are for.
fn layout(folders: &Directory) -> Layout {
    Layout::new(
        (0..2)
            .map(|shim| format!("embedded://{}", folders.join(&format!("store-{shim}")).display()))
            .collect(),
    )
}

#[test]
fn what_was_acknowledged_is_there_after_every_shim_was_killed() {
    let _machine = shared();
    let folders = Directory::new();
    let mut cluster = Cluster::apart(layout(&folders));
    let mut client = cluster.connect(0);
    let mut acknowledged = 0;
    for life in 0..3 {
        let mut unknown = 0;
        let shims = ["shim-0", "shim-1"];
        for round in 0..200 {
            if round == 100 {
                shims.iter().for_each(|shim| cluster.kill(shim));
            }
            match client.call(&["INCR", "counter"]) {
                Value::Integer(_) => acknowledged += 1,
                Value::Error(error) if error.ends_with(b"is unknown") => unknown += 1,
                _ => {}
            }
            client.call(&["SET", &format!("k{round}"), &format!("{life}")]);
        }
        shims.iter().for_each(|shim| cluster.start(shim));
        let found =
            until("the counter is read", || text(&client.call(&["GET", "counter"])).parse::<u64>().ok());
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&found),
            "{found}, {acknowledged} of them acknowledged"
        );
        acknowledged = found;
        for round in 0..100 {
            until("a key is read", || {
                (text(&client.call(&["GET", &format!("k{round}")])) == format!("{life}")).then_some(())
            });
        }
        until("writes go on", || matches!(client.call(&["SET", "k", "v"]), Value::Simple(_)).then_some(()));
    }
    until("copies are there", || {
        for _ in 0..50 {
            assert_eq!(text(&client.call(&["GET", "k"])), "v");
        }
        (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
    });
}

#[test]
fn folders_that_were_swapped_are_refused_in_words() {
    let _machine = shared();
    let folders = Directory::new();
    let mut cluster = Cluster::up(layout(&folders));
    ok(&mut cluster.connect(0), &["SET", "k", "v"]);
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let swapped =
        toml.replace("store-0", "(first)").replace("store-1", "store-0").replace("(first)", "store-1");
    let file = cluster.config.with_file_name("swapped.toml");
    std::fs::write(&file, swapped).expect("written");
    let told = "the store holds the keys of shim-1, and is `storage` of shim-0 now";
    let doctor =
        distcache().args(["doctor", "--storage-only", "--config"]).arg(&file).output().expect("it runs");
    let shown = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(shown.contains(told), "{shown}");
    let doctor = distcache().args(["doctor", "--storage-only", "--config"]).arg(&cluster.config).output();
    let shown = String::from_utf8_lossy(&doctor.expect("it runs").stdout).into_owned();
    assert_eq!(shown.matches("a process has it open").count(), 2, "{shown}");
    cluster.kill(UP);
    let refused = distcache().args(["up", "--config"]).arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains(told), "{said}");
    cluster.start(UP);
    let mut client = cluster.connect(0);
    until("the key is read", || (text(&client.call(&["GET", "k"])) == "v").then_some(()));
}

/// Files may be no larger than a journal is from the start, so a commit that is larger fails in its middle.
#[test]
fn a_commit_that_fails_takes_nothing_acknowledged_with_it() {
    const FILE_KIB_MAX: u64 = (64 << 10) + 512;
    let _machine = shared();
    let state = Directory::new();
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let controller = free_port();
    let proxy = format!(
        "trap '' XFSZ; ulimit -f {FILE_KIB_MAX}; exec {} proxy --storage embedded://{} --state {} --listen {listen} \
         --controller 127.0.0.1:{controller}",
        env!("CARGO_BIN_EXE_distcache"),
        state.join("store").display(),
        state.join("state").display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &proxy]);
    let process = Process::start("proxy", command, &state.join("proxy.log"));
    process.wait_for_line("ready");
    let mut client = Client::tcp(listen);
    ok(&mut client, &["SET", "before", "1"]);
    let value = "v".repeat(4_000_000);
    let mut acknowledged = Vec::new();
    until("a commit fails", || {
        // Together they make more than one commit may be.
        let writers = [0, 1, 2].map(|writer| {
            let (mut client, value) = (Client::tcp(listen), value.clone());
            std::thread::spawn(move || {
                let keys: Vec<String> = (0..12).map(|key| format!("{{{writer}}}{key}")).collect();
                let pairs = keys.iter().flat_map(|key| [key.as_str(), value.as_str()]);
                let command: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
                client.call(&command)
            })
        });
        let replies = writers.map(|writer| writer.join().expect("a reply"));
        acknowledged.extend((0..3).filter(|&writer| matches!(replies[writer], Value::Simple(_))));
        replies
            .iter()
            .any(|reply| matches!(reply, Value::Error(error) if error.ends_with(b"is unknown")))
            .then_some(())
    });
    assert!(process.log().contains("the store is not open: writing failed"), "{}", process.log());
    until("writes go on", || matches!(client.call(&["SET", "after", "1"]), Value::Simple(_)).then_some(()));
    assert_eq!(text(&client.call(&["GET", "before"])), "1");
    for writer in acknowledged {
        assert_eq!(client.call(&["STRLEN", &format!("{{{writer}}}11")]), Value::Integer(4_000_000));
    }
}
