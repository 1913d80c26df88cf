//! What the front works with in one step: the flow, and the step itself. Nothing of its own.

use crate::router::flow::Flow;
use crate::router::step::RouterStep;
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Desk<'a> {
    pub(crate) flow: &'a mut Flow,
    pub(crate) step: RouterStep<'a>,
}

impl Desk<'_> {
    pub(crate) fn now(&self) -> Time {
        self.step.now
    }
}
