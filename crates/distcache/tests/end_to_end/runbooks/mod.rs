//! The runbooks, followed: what docs/operating/runbooks.md says is seen, done and gone, in its own words. Not how members do their
//! part.

mod busy;
mod certificates;
mod cold;
mod complete;
mod disaster;
mod members;
mod page;
mod storage;
mod tried;
mod way_out;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::cluster::{Cluster, Layout, free_port};
use crate::status::http;
use page::shell;

/// A cluster each of whose processes has an admin address.
struct Site {
    cluster: Cluster,
    admins: BTreeMap<String, SocketAddr>,
}

impl Site {
    fn unstarted(layout: Layout) -> Site {
        let cluster = Cluster::unstarted(layout);
        let mut file = std::fs::read_to_string(&cluster.config).expect("the file");
        let mut admins = BTreeMap::new();
        for id in cluster.layout.ids() {
            let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let entry = format!("id = \"{id}\"\n");
            if !id.starts_with("controller") && file.contains(&entry) {
                file = file.replace(&entry, &format!("{entry}admin = \"{admin}\"\n"));
                admins.insert(id, admin);
            }
        }
        admins.insert("controller".to_owned(), cluster.layout.controller);
        std::fs::write(&cluster.config, file).expect("written");
        Site { cluster, admins }
    }

    fn apart(layout: Layout) -> Site {
        let mut site = Site::unstarted(layout);
        site.cluster.layout.ids().iter().for_each(|id| site.cluster.start(id));
        site.cluster.wait_linked();
        site
    }

    /// The sum of a member's samples with these labels; `None` while it has told nothing.
    fn metric(&self, id: &str, name: &str, label: &str) -> Option<f64> {
        std::net::TcpStream::connect(self.admins[id]).ok()?;
        let page = http(self.admins[id], "/metrics");
        let begin = format!("{name}{{");
        let samples = page.lines().filter(|line| line.starts_with(&begin) && line.contains(label));
        let values = samples.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()));
        values.reduce(|sum, value| Some(sum? + value?)).flatten()
    }

    /// Whether a gauge or counter of a member is above zero.
    fn above_zero(&self, id: &str, name: &str, label: &str) -> Option<()> {
        (self.metric(id, name, label)? > 0.0).then_some(())
    }

    /// `distcache status` as people read it, and its exit code.
    fn status(&self) -> (Option<i32>, String) {
        self.shell("distcache status --controller URL")
    }

    fn is_well(&self) -> Option<()> {
        (self.status().0 == Some(0)).then_some(())
    }

    /// The member's row in the status, with a space between cells.
    fn row(&self, id: &str) -> Option<String> {
        let (_, shown) = self.status();
        let row = shown.lines().find(|line| line.split(' ').next() == Some(id))?;
        Some(row.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn shell(&self, command: &str) -> (Option<i32>, String) {
        let url = format!("http://{}", self.cluster.layout.controller);
        shell(command, &[("URL", &url), ("FILE", &self.cluster.config.display().to_string())])
    }

    /// A command of a page, which has to do well.
    fn run(&self, command: &str) -> String {
        let (code, told) = self.shell(command);
        assert_eq!(code, Some(0), "{command}: {told}");
        told
    }

    fn rewrite(&self, old: &str, new: &str) {
        let file = std::fs::read_to_string(&self.cluster.config).expect("the file");
        assert!(file.contains(old), "{old:?} is not in the file");
        std::fs::write(&self.cluster.config, file.replace(old, new)).expect("written");
    }

    /// Another word in the file, which everybody reads.
    fn reload(&self, old: &str, new: &str) {
        self.rewrite(old, new);
        self.run(&page::section("Look first").command("distcache reload"));
    }
}
