//! The clients as the flow knows them: what each has asked for, and how much more it may send. Not who they are.

use bytes::Bytes;

use crate::router::config::RouterConfig;
use crate::router::effect::{ClientId, Effect};
use crate::router::flow::pipeline::{ClientOperation, ClientPipeline, OperationProgress};
use crate::router::flow::watched::ClientWatch;
use crate::router::step::RouterStep;

/// The window of a new client: one round trip more for whoever pipelines more at once.
const WINDOW_START: usize = 16;

/// Commands of a client that may wait for room, and leave in one turn. With fewer, fewer replies share a write. With more, the
/// others wait for longer, and more replies that are there already wait behind them: under overload a client lacks about as
/// many for as long as it lasts.
pub(crate) const TURN_COMMANDS: usize = 8;

#[derive(Debug)]
pub(crate) struct Caller {
    /// What CLIENT ID says: never used again.
    pub(crate) number: u64,
    pub(crate) pipeline: ClientPipeline,
    /// Since its first WATCH was sent.
    pub(crate) watch: Option<ClientWatch>,
    /// It is told of changes that a copy may not know of yet, so its reads go to shims.
    pub(crate) reads_at_shims: bool,
    /// Its pipeline was full and has not drained to half since, or the front holds it.
    pub(crate) stalled: bool,
    /// Commands that may be unanswered. Nobody knows how large a reply will be, so it begins small, grows with every small
    /// reply and shrinks with a large one: what one client has asked for must not fill the links that all share.
    window: usize,
}

impl Caller {
    fn new(number: u64) -> Caller {
        Caller {
            number,
            pipeline: ClientPipeline::default(),
            watch: None,
            reads_at_shims: false,
            stalled: false,
            window: WINDOW_START,
        }
    }

    /// Whether no more may be taken from it.
    pub(crate) fn is_full(&self, config: &RouterConfig) -> bool {
        self.pipeline.len() >= self.window.min(config.settings.pipeline_max)
            || self.pipeline.held_bytes() >= config.settings.pipeline_bytes_max
            || self.pipeline.turns().len() >= TURN_COMMANDS
    }

    /// Whether nothing of it is unanswered.
    pub(crate) fn is_idle(&self) -> bool {
        self.pipeline.len() == 0 && !self.stalled
    }

    /// Whether it has room enough again to be read on.
    pub(crate) fn has_drained(&self, config: &RouterConfig) -> bool {
        self.pipeline.len() <= self.window.min(config.settings.pipeline_max) / 2
            && self.pipeline.held_bytes() <= config.settings.pipeline_bytes_max / 2
            && self.pipeline.turns().len() <= TURN_COMMANDS / 2
    }

    /// A reply of this size went out; the next ones may be as large.
    pub(crate) fn replied(&mut self, reply_bytes: usize, config: &RouterConfig) {
        let fitting = (config.settings.pipeline_bytes_max / reply_bytes.max(1)).max(1);
        self.window = (self.window + 1).min(fitting).min(config.settings.pipeline_max);
    }

    /// The next operation to be told to the client as a whole. A large reply before it is given as far as it has come.
    #[inline]
    pub(crate) fn next_answered(
        &mut self,
        step: &mut RouterStep<'_>,
        client: u32,
    ) -> Option<(&mut ClientOperation, Bytes)> {
        if self.pipeline.streams() {
            self.pass_on(step, client);
        }
        self.pipeline.answered()
    }

    /// The client has been told the oldest operation, with a reply of this size.
    #[inline]
    pub(crate) fn told(&mut self, reply_bytes: usize, config: &RouterConfig) {
        self.pipeline.pop();
        self.replied(reply_bytes, config);
    }

    #[cold]
    fn pass_on(&mut self, step: &mut RouterStep<'_>, client: u32) {
        let Some((operation, held_bytes)) = self.pipeline.streaming() else { return };
        let OperationProgress::Streaming(streaming) = &mut operation.progress else { return };
        while let Some(bytes) = streaming.give() {
            *held_bytes -= bytes.len();
            operation.held_bytes -= bytes.len();
            if !operation.manner.silent {
                step.effects.push(Effect::Part { client: ClientId(client), bytes });
            }
        }
        if operation.manner.silent {
            streaming.ask_for_more(step);
        }
        if let Some((total, pushes)) = streaming.end() {
            operation.streamed = true;
            operation.progress = OperationProgress::Done(Bytes::new());
            pushes.into_iter().for_each(|bytes| step.push(client, bytes));
            self.replied(total, step.config);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Callers {
    callers: Vec<Option<Box<Caller>>>,
}

impl Callers {
    pub(crate) fn open(&mut self, client: u32, number: u64) {
        let index = client as usize;
        if self.callers.len() <= index {
            self.callers.resize_with(index + 1, || None);
        }
        self.callers[index] = Some(Box::new(Caller::new(number)));
    }

    pub(crate) fn close(&mut self, client: u32) -> Option<Box<Caller>> {
        self.callers.get_mut(client as usize)?.take()
    }

    pub(crate) fn get(&self, client: u32) -> Option<&Caller> {
        self.callers.get(client as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, client: u32) -> Option<&mut Caller> {
        self.callers.get_mut(client as usize)?.as_deref_mut()
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Caller)> {
        let callers = self.callers.iter().enumerate();
        callers.filter_map(|(index, caller)| Some((index as u32, caller.as_deref()?)))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Caller> {
        self.callers.iter().filter_map(|caller| caller.as_deref())
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Caller> {
        self.callers.iter_mut().filter_map(|caller| caller.as_deref_mut())
    }

    /// One operation of a client, while it has no reply.
    pub(crate) fn operation(&mut self, client: u32, sequence: u64) -> Option<&mut ClientOperation> {
        self.get_mut(client)?.pipeline.get_mut(sequence)
    }

    pub(crate) fn is_answered(&self, client: u32, sequence: u64) -> bool {
        let operation = self.get(client).and_then(|caller| caller.pipeline.get(sequence));
        operation.is_some_and(ClientOperation::answered)
    }
}
