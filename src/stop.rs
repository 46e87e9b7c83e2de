//! The end of a scheduler: nobody starts anything, every future is dropped, threads leave.
//! Knows nothing of the threads' loops; they see [`Stop::is_closing`] at their next poll boundary.
//!
//! **Who drops what.** `close` wakes every registered task, so that it is scheduled; what is
//! scheduled lies in a slot, a queue or the injector, and `drain` drops it there. A worker that
//! sees the end retires its processor and drains. A task that a foreign thread is just scheduling
//! is not in any queue yet: that thread finds the end after its push (`after_push`) and calls the
//! one who attends, or drains itself if nobody does any more.
//!
//! **When it is over.** When every processor is retired and no future is alive
//! ([`crate::tally`]). One thread attends until then: the one that drops the runtime or, if that
//! is one of its own, a thread made for it.

use std::time::Instant;

use crate::contain::contain;
use crate::park::Mail;
use crate::processor::Processor;
use crate::shared::{Runnable, Shared};
use crate::sync::atomic::{AtomicBool, Ordering::*, fence};
use crate::sync::{Arc, Event, Listener, Mutex, lock};
use crate::tally::Tally;

pub(crate) struct Stop {
    closing: AtomicBool,
    /// Nobody attends to the end any more, or nobody could.
    abandoned: AtomicBool,
    /// Something came into a queue after the close, or it is all over.
    event: Event,
    pub(crate) tally: Tally,
    /// Keeps the scheduler alive until it is over.
    kept: Mutex<Option<Arc<Shared>>>,
}

impl Stop {
    pub(crate) fn new(processors: usize) -> Self {
        Stop {
            closing: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            event: Event::new(),
            tally: Tally::new(processors),
            kept: Mutex::new(None),
        }
    }

    pub(crate) fn keep(&self, shared: Arc<Shared>) {
        *lock(&self.kept) = Some(shared);
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        // Relaxed: who must see it has it ordered otherwise (a lock, a task's state, E1).
        self.closing.load(Relaxed)
    }

    /// A future has gone, on a thread without a processor. The caller drops what it gets last.
    #[must_use]
    pub(crate) fn leave(&self) -> Option<Arc<Shared>> {
        if self.tally.leave() { self.over() } else { None }
    }

    fn over(&self) -> Option<Arc<Shared>> {
        self.event.notify(usize::MAX);
        lock(&self.kept).take()
    }

    /// After a push into the injector: if the end came first, see to it that it is found.
    pub(crate) fn after_push(&self, shared: &Shared) {
        // Ordering E1: store-load; the push is before, the looks at `closing` and `abandoned` after.
        // Pairs with E2 and E3.
        fence(SeqCst);
        if self.closing.load(Relaxed) {
            if self.abandoned.load(SeqCst) {
                shared.drain();
            } else {
                self.event.notify(usize::MAX);
            }
        }
    }
}

impl Shared {
    /// Begins the end; false if it has begun. The caller holds the scheduler otherwise than through
    /// its tasks, and attends or has somebody attend.
    pub(crate) fn close(&self) -> bool {
        if self.stop.closing.swap(true, SeqCst) {
            return false;
        }
        // Ordering E2: store-load; `closing` is set before the queues are looked at. Pairs with E1.
        fence(SeqCst);
        let (processors, threads) = self.idle.close();
        for index in processors {
            drop(self.retire(&self.processors[index]));
        }
        for thread in threads {
            thread.0.send(&Mail::Closed);
        }
        self.doze.stop();
        for waker in self.registry.close() {
            contain(|| waker.wake());
        }
        true
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
            self.processors
                .iter()
                .find_map(|p| p.open.slot.take().or_else(|| p.open.stealer.steal_one()))
        };
        self.injector.pop(|_| 0, |_| ()).or_else(held)
    }

    /// Waits until it is all over. False if `deadline` came first; then nobody attends any more.
    pub(crate) fn attend(&self, deadline: Option<Instant>) -> bool {
        loop {
            let listener = self.stop.event.listen();
            self.drain();
            if self.stop.tally.is_over() {
                return true;
            }
            match deadline {
                None => listener.wait(),
                Some(deadline) if listener.wait_deadline(deadline).is_some() => {}
                Some(_) => {
                    self.abandon();
                    return self.stop.tally.is_over();
                }
            }
        }
    }

    /// Nobody attends from here on: whoever schedules something sees to its end.
    pub(crate) fn abandon(&self) {
        self.stop.abandoned.store(true, SeqCst);
        // Ordering E3: store-load, as E2: who pushes after the drain below has looked sees that
        // nobody attends. Pairs with E1.
        fence(SeqCst);
        self.drain();
    }
}
