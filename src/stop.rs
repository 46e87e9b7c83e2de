//! The end of a scheduler: nobody starts anything, every future is dropped, threads leave.
//! Knows nothing of the threads' loops; they see [`Stop::is_closing`] at their next poll boundary.
//!
//! **Who drops what.** `close` wakes every registered task, so that it is scheduled; what is
//! scheduled lies in a slot, a queue or the injector, and `drain` drops it there. A worker that
//! sees the end retires its processor and drains. A task that a foreign thread is just scheduling
//! is not in any queue yet: that thread finds the end after its push ([`crate::closing`]) and calls
//! the one who attends, or drains itself if nobody does any more.
//!
//! **When it is over.** When every processor is retired and no future is alive
//! ([`crate::tally`]). One thread attends until then: the one that drops the runtime or, if that
//! is one of its own, a thread made for it.

use std::time::Instant;

use crate::closing::Closing;
use crate::contain::contain;
use crate::park::Mail;
use crate::processor::Processor;
use crate::shared::{Runnable, Shared};
use crate::sync::{Arc, Mutex, lock};
use crate::tally::Tally;

pub(crate) struct Stop {
    closing: Closing,
    pub(crate) tally: Tally,
    /// Keeps the scheduler alive until it is over.
    kept: Mutex<Option<Arc<Shared>>>,
}

impl Stop {
    pub(crate) fn new(processors: usize) -> Self {
        Stop { closing: Closing::new(), tally: Tally::new(processors), kept: Mutex::new(None) }
    }

    pub(crate) fn keep(&self, shared: Arc<Shared>) {
        *lock(&self.kept) = Some(shared);
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// A future has gone, on a thread without a processor. The caller drops what it gets last.
    #[must_use]
    pub(crate) fn leave(&self) -> Option<Arc<Shared>> {
        if self.tally.leave() { self.over() } else { None }
    }

    fn over(&self) -> Option<Arc<Shared>> {
        self.closing.over();
        lock(&self.kept).take()
    }
}

impl Shared {
    /// Begins the end; false if it has begun. The caller holds the scheduler otherwise than through
    /// its tasks, and attends or has somebody attend.
    pub(crate) fn close(&self) -> bool {
        if !self.stop.closing.begin() {
            return false;
        }
        let (processors, threads) = self.idle.close();
        for index in processors {
            drop(self.retire(&self.processors[index]));
        }
        for thread in threads {
            thread.0.send(&Mail::Closed);
        }
        self.doze.stop();
        let mut due = self.reactor.close();
        for waker in self.registry.close() {
            contain(|| waker.wake());
        }
        due.drain(|waker, _| contain(|| waker.wake()));
        true
    }

    /// After a push into the injector.
    pub(crate) fn pushed(&self) {
        self.stop.closing.pushed(|| self.drain());
    }

    /// Takes a processor out of service for good. The caller drops what it gets last.
    #[must_use]
    pub(crate) fn retire(&self, processor: &Processor) -> Option<Arc<Shared>> {
        if self.stop.tally.fold(&processor.open.share) { self.stop.over() } else { None }
    }

    /// Drops whatever is scheduled, until nothing is.
    pub(crate) fn drain(&self) {
        while let Some(runnable) = self.any_runnable() {
            // The destructors that this runs may schedule more.
            drop(runnable);
        }
    }

    /// A runnable from anywhere, as anyone may take it.
    fn any_runnable(&self) -> Option<Runnable> {
        let held = || {
            self.processors.iter().find_map(|p| {
                let queued = p.open.slot.take().or_else(|| p.stealer.steal_one());
                queued.or_else(|| p.inbox.pop_one())
            })
        };
        self.injector.pop(|_| 0, |_| ()).or_else(held)
    }

    /// Waits until it is all over. False if `deadline` came first; then nobody attends any more.
    pub(crate) fn attend(&self, deadline: Option<Instant>) -> bool {
        self.stop.closing.attend(deadline, || self.drain(), || self.stop.tally.is_over())
    }

    /// Nobody attends from here on: whoever schedules something sees to its end.
    pub(crate) fn abandon(&self) {
        self.stop.closing.abandon(|| self.drain());
    }
}
