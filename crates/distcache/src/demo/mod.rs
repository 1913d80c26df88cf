//! `distcache demo`: a whole cluster in this process, under load, drawn live. Not a benchmark of the machine.

mod arguments;
mod cluster;
mod directory;
mod hottest;
mod load;
mod picture;
mod redis;
mod sample;
mod screen;
mod timeline;
mod view;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use runtime::stop::Stop;

pub(crate) use arguments::Arguments;

use arguments::Storage;
use cluster::Cluster;
use directory::Directory;
use hottest::Hottest;
use load::Load;
use picture::{Cast, Moment, Phase};
use redis::Servers;
use sample::{Rates, Sample, Summary};
use timeline::Timeline;
use view::View;

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(250);
/// Rates in the picture are over this many frames: a second.
const FRAMES_PER_RATE: usize = 4;

/// Runs the demonstration and prints its summary. Everything that it started is stopped however it ends.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    arguments.check().map_err(crate::commands::mistake)?;
    let started = Instant::now();
    let stop = Stop::on_signals()?;
    let directory = Directory::new()?;
    let servers = match arguments.storage {
        Storage::Redis => {
            Some(Servers::start(&directory, arguments.racks * arguments.servers_per_rack, &stop)?)
        }
        Storage::Embedded => None,
    };
    let sockets = servers.as_ref().map_or(&[][..], |servers| &servers.sockets);
    let mut cluster = Cluster::start(cluster::config(&arguments, &directory, sockets))?;
    let cast = cluster.cast();
    let played = play(&arguments, &cast, &mut cluster, started, &stop);
    let stopped = cluster.stop();
    let (summary, errors) = played?;
    stopped?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&summary)?)?;
    } else {
        writeln!(out)?;
        picture::summary(&cast, &summary).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    errors.iter().try_for_each(|text| writeln!(io::stderr(), "the load met errors: {text}"))?;
    Ok(())
}

/// Both phases; the summary and the texts of the first errors that the load met.
fn play(
    arguments: &Arguments,
    cast: &Cast,
    cluster: &mut Cluster,
    started: Instant,
    stop: &Stop,
) -> Result<(Summary, Vec<String>)> {
    let load = Load::start(cluster.address())?;
    let mut show = Show { history: VecDeque::new(), timeline: None, marks: Marks::default() };
    let (mut view, mut hottest) = (View::new(arguments.json), Hottest::default());
    let shown = loop {
        if stop.wait_timeout(FRAME) {
            // The load was cut off with everything else, so whatever it has to say is about that.
            drop(load.stop());
            bail!("stopped before the end, so there is no summary");
        }
        if load.has_failed() {
            break None;
        }
        let now_us = started.elapsed().as_micros() as u64;
        let sample = cluster.sample(now_us, load.live.answered());
        let (rates, phase) = show.frame(sample, load.is_ready(), arguments.seconds * 1_000_000);
        if phase == Phase::WithCache && !cluster.has_nodes() {
            cluster.start_nodes()?;
        }
        if let Some(summary) = show.marks.summary() {
            break Some(summary);
        }
        view.show(
            cast,
            &Moment {
                phase,
                elapsed_s: now_us / 1_000_000,
                seconds: arguments.seconds,
                rates,
                hottest: hottest.frame(now_us, load.live.counts()),
            },
        )?;
    };
    let errors = load.stop()?;
    match shown {
        Some(summary) => Ok((summary, errors)),
        None => bail!("the load ended by itself: {}", errors.join("; ")),
    }
}

/// What has been seen so far.
struct Show {
    /// The last second, oldest first.
    history: VecDeque<Sample>,
    timeline: Option<Timeline>,
    marks: Marks,
}

/// The samples at both ends of what counts in each phase.
#[derive(Default)]
struct Marks {
    without_from: Option<Sample>,
    without_to: Option<Sample>,
    with_from: Option<Sample>,
    with_to: Option<Sample>,
}

impl Show {
    /// Takes the next sample: the rates over the last second, and the phase that it is now.
    fn frame(&mut self, sample: Sample, ready: bool, end_us: u64) -> (Rates, Phase) {
        let now_us = sample.at_us;
        if self.timeline.is_none() && ready {
            self.timeline = Some(Timeline::new(now_us, end_us));
        }
        let phase = match self.timeline {
            None => Phase::Loading,
            Some(timeline) => {
                self.marks.take(&timeline, &sample);
                if now_us < timeline.cache_us { Phase::WithoutCache } else { Phase::WithCache }
            }
        };
        self.history.push_back(sample);
        if self.history.len() > FRAMES_PER_RATE + 1 {
            self.history.pop_front();
        }
        (Rates::between(&self.history[0], &self.history[self.history.len() - 1]), phase)
    }
}

impl Marks {
    fn take(&mut self, timeline: &Timeline, sample: &Sample) {
        for (mark, at_us) in [
            (&mut self.without_from, timeline.without_from_us),
            (&mut self.without_to, timeline.cache_us),
            (&mut self.with_from, timeline.with_from_us),
            (&mut self.with_to, timeline.end_us),
        ] {
            if sample.at_us >= at_us && mark.is_none() {
                *mark = Some(sample.clone());
            }
        }
    }

    /// Once the end has been reached.
    fn summary(&self) -> Option<Summary> {
        Some(Summary {
            without_cache: Rates::between(self.without_from.as_ref()?, self.without_to.as_ref()?).summary(),
            with_cache: Rates::between(self.with_from.as_ref()?, self.with_to.as_ref()?).summary(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_through_its_phases_and_counts_only_their_steady_parts() {
        let mut show = Show { history: VecDeque::new(), timeline: None, marks: Marks::default() };
        let mut phases = Vec::new();
        for second in 0..=20 {
            // 100 requests/s without the cache, 400 with it, and a burst in the part that does not count.
            let answered = if second <= 10 { 1_000 + second * 100 } else { 100_000 + second * 400 };
            let sample =
                Sample { at_us: second * 1_000_000, answered, servers: vec![answered], ..Sample::default() };
            let (_, phase) = show.frame(sample, second > 0, 20_000_000);
            if phases.last() != Some(&phase) {
                phases.push(phase);
            }
            assert_eq!(show.marks.summary().is_some(), second == 20);
        }
        assert_eq!(phases, [Phase::Loading, Phase::WithoutCache, Phase::WithCache]);
        let summary = show.marks.summary().expect("the end is reached");
        assert_eq!(summary.with_cache.throughput, 400.0);
        assert_eq!(summary.without_cache.storage_max_over_avg, Some(1.0));
    }
}
