//! The demonstration from the first key written to the last figure: looks, switches, shows. Not what it looks like.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::time::Time;
use runtime::clock;
use runtime::stop::Stop;

use super::PhaseKind;
use super::arguments::DemoArguments;
use super::cluster::DemoCluster;
use super::figures::{DemoSummary, Figures};
use super::hottest::HottestCounts;
use super::load::{Demand, DemoLoad};
use super::picture::{self, DemoCast, DemoMoment, Palette, Picture, PictureHistory};
use super::recent::Recent;
use super::record::Recorder;
use super::sample::{Rates, Sample};
use super::screen::ScreenOrder;
use super::script::Script;
use super::view::DemoView;

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(250);
/// Rates in the picture are over this time.
const RATE_SPAN: Duration = Duration::from_secs(1);
/// Refusals are what an overloaded server is expected to do; the table counts them.
const EXPECTED: &str = "-BUSY";

pub(crate) struct Play<'a> {
    cast: &'a DemoCast,
    seconds: u64,
    cluster: &'a mut DemoCluster,
    load: DemoLoad,
    view: DemoView,
    recorder: Option<Recorder>,
    /// Once the keys are written.
    script: Option<(Time, Script)>,
    /// The last second, oldest first.
    samples: VecDeque<Sample>,
    figures: Figures,
    recent: Recent,
    hottest: HottestCounts,
    history: PictureHistory,
}

impl<'a> Play<'a> {
    /// Both phases; the summary and the texts of errors that nobody expects.
    pub(crate) fn run(
        arguments: &DemoArguments,
        cast: &'a DemoCast,
        cluster: &'a mut DemoCluster,
        stop: &Stop,
    ) -> Result<(DemoSummary, Vec<String>)> {
        let recorder = arguments.record.as_deref().map(Recorder::new).transpose()?;
        let round = Duration::from_secs(arguments.seconds) / 2;
        let recent = Recent::new(cluster.server_of_each_key()?, cast.servers.len());
        let load = DemoLoad::start(cluster.address(), Demand { rate: cluster.demand(), round })?;
        let mut play = Play {
            cast,
            seconds: arguments.seconds,
            cluster,
            load,
            view: DemoView::new(arguments.json)?,
            recorder,
            script: None,
            samples: VecDeque::new(),
            figures: Figures::new(),
            recent,
            hottest: HottestCounts::default(),
            history: PictureHistory::default(),
        };
        match play.go_on(stop) {
            Ok(true) => play.end(),
            Ok(false) => {
                // The load was cut off with everything else, so whatever it has to say is about that.
                drop(play.load.stop());
                bail!("stopped before the end, so there is no summary")
            }
            Err(error) => {
                drop(play.load.stop());
                Err(error)
            }
        }
    }

    /// False if it was interrupted.
    fn go_on(&mut self, stop: &Stop) -> Result<bool> {
        let mut next = Instant::now() + FRAME;
        while !self.load.has_failed() {
            match self.view.wait(next.saturating_duration_since(Instant::now()), stop)? {
                Some(ScreenOrder::Interrupt) => return Ok(false),
                Some(ScreenOrder::End) => return Ok(true),
                Some(ScreenOrder::Toggle) => self.toggle(),
                Some(ScreenOrder::Kill) => self.kill_or_revive(),
                None => next = Instant::now() + FRAME,
            }
            self.cluster.tend()?;
            if self.frame()? {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn toggle(&mut self) {
        let Some((_, script)) = &mut self.script else { return };
        script.toggle(clock::now());
        self.cluster.set_cache(script.kind() == PhaseKind::WithCache);
    }

    /// The busiest node, so that there is something to see.
    fn kill_or_revive(&mut self) {
        let Some((_, script)) = &mut self.script else { return };
        script.take_over();
        let up = self.cluster.nodes_up();
        if let Some(down) = up.iter().position(|up| !up) {
            return self.cluster.revive(down);
        }
        let rates = self.rates().nodes;
        let busiest = (0..up.len()).max_by(|one, other| rates[*one].total_cmp(&rates[*other]));
        if let Some(busiest) = busiest {
            self.cluster.kill(busiest);
        }
    }

    fn rates(&self) -> Rates {
        match (self.samples.front(), self.samples.back()) {
            (Some(earlier), Some(later)) => Rates::between(earlier, later),
            _ => Rates::default(),
        }
    }

    /// Looks at everything and shows it. True at the end.
    fn frame(&mut self) -> Result<bool> {
        let now = clock::now();
        if self.script.is_none() && self.load.is_ready() {
            self.script = Some((now, Script::new(now, Duration::from_secs(self.seconds) / 2)));
        }
        if let Some((_, script)) = &mut self.script
            && script.turn(now)
        {
            self.cluster.set_cache(true);
        }
        let live = &self.load.live;
        let sample = self.cluster.sample(now, live.answered() - live.errors());
        let (due, counts) = (live.due(), live.counts());
        let fates = live.take_fates();
        let clients = self.recent.frame(now, due, &counts, &fates);
        let Some((start, script)) = &self.script else {
            return self.show(now, now, None, clients, counts).map(|()| false);
        };
        self.figures.look(script.windows(), &sample);
        self.figures.take(script.windows(), &fates);
        self.samples.push_back(sample);
        while self.samples.get(1).is_some_and(|second| second.at.after(RATE_SPAN) <= now) {
            self.samples.pop_front();
        }
        let (start, script) = (*start, script.clone());
        self.show(now, start, Some(&script), clients, counts)?;
        Ok(script.is_over(now))
    }

    fn show(
        &mut self,
        now: Time,
        start: Time,
        script: Option<&Script>,
        clients: super::recent::RecentClients,
        counts: Vec<u32>,
    ) -> Result<()> {
        let at = now.since(start);
        let moment = DemoMoment {
            kind: script.map(Script::kind),
            elapsed_s: at.as_secs(),
            seconds: (!script.is_some_and(Script::is_by_hand)).then_some(self.seconds),
            rates: self.rates(),
            clients,
            nodes_up: self.cluster.nodes_up(),
            hottest: self.hottest.frame(now, counts),
        };
        if script.is_some() {
            let is_bad = moment.clients.late + moment.clients.errors > 0;
            self.history.add(at, moment.clients.p99, moment.rates.busiest_server(), is_bad);
        }
        let picture = |palette| Picture { cast: self.cast, moment: &moment, history: &self.history, palette };
        if let Some(recorder) = self.recorder.as_mut().filter(|_| script.is_some()) {
            recorder.frame(at, picture(Palette::COLOURS))?;
        }
        self.view.show(picture(Palette::of_environment()))
    }

    fn end(mut self) -> Result<(DemoSummary, Vec<String>)> {
        let failed = self.load.has_failed();
        let live = self.load.live.clone();
        let errors = self.load.stop()?;
        if failed {
            bail!("the load ended by itself: {}", errors.join("; "));
        }
        if let Some((_, script)) = &self.script {
            self.figures.take(script.windows(), &live.take_fates());
        }
        let unexpected = errors.into_iter().filter(|text| !text.starts_with(EXPECTED)).collect();
        let summary = self.figures.summary();
        if let Some(recorder) = self.recorder {
            recorder.end(&picture::summary(self.cast, &summary))?;
        }
        Ok((summary, unexpected))
    }
}
