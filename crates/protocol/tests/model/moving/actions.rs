//! What may happen in a state, and what must hold in each.

use protocol::migration::{Input, MigrationPhase};
use protocol::storage::StorageEvent;
use stateright::{Model, Property};

use super::config::{Moving, MovingEvent};
use super::server::SentCommands;
use super::state::{HOME, KEY, MovingState, THERE};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MovingAction {
    /// The next command of the clients.
    Ask,
    /// A server carries out the oldest command of a connection that it has not.
    Run {
        place: usize,
        lane: usize,
    },
    /// The oldest reply of a connection reaches the machine.
    Answer {
        place: usize,
        lane: usize,
    },
    RunLate {
        place: usize,
        index: usize,
    },
    Fence {
        place: usize,
    },
    BringUp {
        place: usize,
    },
    /// No command of the key comes any more.
    Close,
    Tick,
    /// The next process takes over.
    Begin,
    Break {
        place: usize,
        lane: usize,
    },
    Die,
    Restart {
        place: usize,
    },
    /// The destination takes nothing new, or does again.
    Fill,
}

impl Moving {
    fn ordinary(&self, state: &MovingState, actions: &mut Vec<MovingAction>) {
        let runs = state.machine.is_some() && state.servers[HOME].up;
        if state.asked < self.asks.len() && runs && !state.closed {
            actions.push(MovingAction::Ask);
        }
        for (place, server) in state.servers.iter().enumerate() {
            for (lane, sent) in server.lanes.iter().enumerate() {
                if sent.iter().any(|sent| sent.replies.is_none()) {
                    actions.push(MovingAction::Run { place, lane });
                }
                if sent.first().is_some_and(|sent| sent.replies.is_some()) {
                    actions.push(MovingAction::Answer { place, lane });
                }
            }
            actions.extend((0..server.late.len()).map(|index| MovingAction::RunLate { place, index }));
            if server.owes_fence && server.up {
                actions.push(MovingAction::Fence { place });
            }
            if server.awaited {
                actions.push(MovingAction::BringUp { place });
            }
        }
        match state.phase() {
            None => actions.push(MovingAction::Begin),
            Some(phase) => {
                actions.push(MovingAction::Tick);
                if phase == MigrationPhase::Moved && state.open.is_empty() && !state.closed {
                    actions.push(MovingAction::Close);
                }
            }
        }
    }

    fn faults(&self, state: &MovingState, actions: &mut Vec<MovingAction>) {
        let budget = &state.budget;
        let may = |own: u8| own > 0 && budget.faults != Some(0);
        if state.machine.is_none() || state.ended {
            return;
        }
        for (place, server) in state.servers.iter().enumerate() {
            let used = (0..server.lanes.len()).filter(|lane| !server.lanes[*lane].is_empty());
            if may(budget.breaks) {
                actions.extend(used.map(|lane| MovingAction::Break { place, lane }));
            }
            let restarts = if place == HOME { budget.home_restarts } else { budget.destination_restarts };
            if may(restarts) && server.up {
                actions.push(MovingAction::Restart { place });
            }
        }
        if may(budget.deaths) {
            actions.push(MovingAction::Die);
        }
        if may(budget.fills) {
            actions.push(MovingAction::Fill);
        }
    }

    fn run(&self, state: &mut MovingState, place: usize, lane: usize) {
        let server = &mut state.servers[place];
        let Some(next) = server.lanes[lane].iter().position(|sent| sent.replies.is_none()) else { return };
        let commands = server.lanes[lane][next].commands.clone();
        let replies = server.run_all(KEY, &commands);
        if replies[0].starts_with("-BUSYKEY") {
            self.note(MovingEvent::Busy);
        }
        server.lanes[lane][next].replies = Some(replies);
    }

    fn answer(&self, state: &mut MovingState, place: usize, lane: usize) {
        let SentCommands { ticket, replies, .. } = state.servers[place].lanes[lane].remove(0);
        let replies = replies.unwrap_or_default().into_iter().map(Into::into).collect();
        self.event(state, place, StorageEvent::Replies { ticket, replies });
    }

    fn run_late(&self, state: &mut MovingState, place: usize, index: usize) {
        let server = &mut state.servers[place];
        if let Some(commands) = server.late[index].pop_front() {
            server.run_all(KEY, &commands);
            self.note(MovingEvent::Late);
        }
        server.late.retain(|late| !late.is_empty());
        server.late.sort();
    }

    fn fail(&self, state: &mut MovingState, action: &MovingAction) {
        let budget = &mut state.budget;
        budget.faults = budget.faults.map(|left| left - 1);
        match *action {
            MovingAction::Break { place, lane } => {
                budget.breaks -= 1;
                self.break_connection(state, place, lane);
            }
            MovingAction::Die => {
                budget.deaths -= 1;
                self.die(state);
            }
            MovingAction::Restart { place } => {
                match place {
                    HOME => budget.home_restarts -= 1,
                    _ => budget.destination_restarts -= 1,
                }
                self.restart(state, place);
            }
            MovingAction::Fill => {
                budget.fills -= 1;
                state.servers[THERE].full ^= true;
            }
            _ => unreachable!("not a fault"),
        }
    }
}

impl Model for Moving {
    type State = MovingState;
    type Action = MovingAction;

    fn init_states(&self) -> Vec<MovingState> {
        vec![self.start()]
    }

    fn actions(&self, state: &MovingState, actions: &mut Vec<MovingAction>) {
        if state.broken.is_none() {
            self.ordinary(state, actions);
            self.faults(state, actions);
        }
    }

    fn next_state(&self, before: &MovingState, action: MovingAction) -> Option<MovingState> {
        let mut state = before.clone();
        match action {
            MovingAction::Ask => self.ask(&mut state),
            MovingAction::Run { place, lane } => self.run(&mut state, place, lane),
            MovingAction::Answer { place, lane } => self.answer(&mut state, place, lane),
            MovingAction::RunLate { place, index } => self.run_late(&mut state, place, index),
            MovingAction::Fence { place } => {
                state.servers[place].fence();
                state.settle();
                self.event(&mut state, place, StorageEvent::Fenced);
            }
            MovingAction::BringUp { place } => self.bring_up(&mut state, place),
            MovingAction::Close => {
                state.closed = true;
                self.step(&mut state, Input::Close);
            }
            MovingAction::Tick => {
                let passes = state.budget.time > 0;
                state.budget.time -= u8::from(passes);
                state.seconds += u8::from(passes);
                self.step(&mut state, Input::Tick);
            }
            MovingAction::Begin => self.begin(&mut state),
            fault => self.fail(&mut state, &fault),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Moving>> {
        vec![
            Property::always(
                "every reply is one that a single server could have given",
                |_, state: &MovingState| state.broken.is_none(),
            ),
            Property::always("nothing is left at home once it is said so", |_, state: &MovingState| {
                let [home, _] = &state.servers;
                state.phase() != Some(MigrationPhase::Moved) || !home.up || home.value.is_none()
            }),
            Property::always("the destination has what was acknowledged", |_, state: &MovingState| {
                let moved = matches!(state.phase(), Some(MigrationPhase::Moved | MigrationPhase::Closing));
                let [home, there] = &state.servers;
                let settled = state.ended || moved && state.open.is_empty() && home.up;
                !settled || state.possible.iter().any(|possible| possible.value == there.value)
            }),
            Property::always(
                "nothing is on its way to the destination after the end",
                |_, state: &MovingState| !state.ended || state.servers[THERE].is_quiet(),
            ),
        ]
    }
}
