//! Whether anything can happen any more. A look at one place after the other, which is right because
//! whoever makes something happen shows it before it stops to count elsewhere.

use crate::outside::{Main, Moment};
use crate::report::Census;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::sync::atomic::{Ordering::SeqCst, fence};

/// What had happened when a deadlock was found: no other is until more happens.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct When {
    polls: u64,
    moment: Moment,
}

impl Shared {
    fn now(&self) -> When {
        let polls =
            self.processors.iter().map(|processor| processor.open.counters.polls.get()).sum();
        When { polls, moment: self.outside.moment() }
    }

    /// The `block_on`s that wait in vain, if there are any and all do.
    ///
    /// From the first look at the idle workers to the last look at the clock of polls, none begins; so
    /// none is under way in between, and nothing new can come from one. What could come from outside of
    /// the workers is looked for first: a job, or a driver with wakers in hand, that was there before has
    /// by then put its work where the looks after it find it.
    pub(crate) fn deadlocked(&self) -> Option<(When, Vec<Arc<dyn Main>>)> {
        let before = self.now();
        fence(SeqCst);
        let is_quiet = || self.idle.is_all_idle() && self.injector.is_empty();
        if !is_quiet() || self.outside.has_jobs() || self.reactor.is_waited_for() {
            return None;
        }
        // A `block_on` that was woken counts as a job only when it has seen that.
        if !is_quiet() || self.stop.is_closing() {
            return None;
        }
        let mains = self.outside.waiting()?;
        fence(SeqCst);
        (self.now() == before).then_some((before, mains))
    }

    pub(crate) fn census(&self, mains: &[Arc<dyn Main>]) -> Census {
        let tasks = self.registry.notes().into_iter();
        Census {
            block_ons: mains.iter().map(|main| main.called_at()).collect(),
            tasks: tasks.filter_map(|who| self.names.look_up(who)).collect(),
        }
    }
}
