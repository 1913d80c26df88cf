//! `distcache top`: the hottest keys of the cluster, once or again and again. The controller knows; this shows it.

use std::io::IsTerminal;
use std::time::Duration;

use controller::HotKeyView;

use super::ask::ControllerArguments;
use lab::terminal::print;

const PERIOD: Duration = Duration::from_secs(1);

/// Show the hottest keys: their rates, their shares of all requests, and where they are cached
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    controller: ControllerArguments,

    /// How many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Show them again every second until interrupted; with --json one line each time
    #[arg(long)]
    watch: bool,
}

pub(crate) fn run(arguments: &TopArguments) -> anyhow::Result<()> {
    loop {
        let mut keys: Vec<HotKeyView> = arguments.controller.get("/v1/hot", &[])?;
        keys.truncate(arguments.limit);
        match (arguments.controller.json, arguments.watch) {
            (true, _) => print(&serde_json::to_string(&keys)?),
            // Clears the screen and goes home; a pipe gets one table after the other.
            (false, true) if std::io::stdout().is_terminal() => {
                print(&format!("\x1b[2J\x1b[H{}", table(&keys)))
            }
            (false, _) => print(&table(&keys)),
        }
        if !arguments.watch {
            return Ok(());
        }
        std::thread::park_timeout(PERIOD);
    }
}

fn table(keys: &[HotKeyView]) -> String {
    if keys.is_empty() {
        return "no key is hot, or keys are hidden".to_owned();
    }
    let mut lines =
        vec![format!("{:>10} {:>7}  {:<20} {:<32} KEY", "REQUESTS/S", "SHARE", "CACHED IN", "SEEN BY")];
    for hot in keys {
        let seen: Vec<String> = hot.members.iter().map(|(id, heat)| format!("{id} {heat}")).collect();
        let cached = if hot.cached.is_empty() { "-".to_owned() } else { hot.cached.join(", ") };
        let share = hot.share * 100.0;
        let seen = seen.join(", ");
        // Whatever is in a key, it is printable by now.
        lines.push(format!("{:>10} {share:>6.1}%  {cached:<20} {seen:<32} {}", hot.heat, hot.key));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;
    use controller::HotKeyView;

    #[test]
    fn every_key_has_a_line() {
        let members = [("leaf-0", 30), ("shim-0", 20)].map(|(id, heat)| (id.to_owned(), heat)).into();
        let cached = vec!["leaf".to_owned()];
        let hot = HotKeyView { key: "a\\x1bb".to_owned(), heat: 50, members, cached, share: 0.25 };
        let expected = "\
REQUESTS/S   SHARE  CACHED IN            SEEN BY                          KEY
        50   25.0%  leaf                 leaf-0 30, shim-0 20             a\\x1bb";
        assert_eq!(table(&[hot]), expected);
        assert_eq!(table(&[]), "no key is hot, or keys are hidden");
    }
}
