//! A wake: to the slot, else the worker's own queue, else the injector. And what else a runtime's tasks
//! ask of it.
//! Knows nothing of the worker loop; the two meet in [`crate::processor`] and [`crate::shared`].

use std::task::Waker;

use async_task::ScheduleInfo;

use crate::current;
use crate::identity::Identity;
use crate::registry::Place;
use crate::shared::{Runnable, Shared};
use crate::sync::Arc;
use crate::task::Scheduler;

impl Scheduler for Shared {
    #[inline]
    fn schedule(runnable: Runnable, info: ScheduleInfo) {
        let shared = runnable.metadata().scheduler.cast();
        match current::lease(shared) {
            Some(lease) if info.woken_while_running => lease.push_yielded(runnable),
            Some(lease) => match current::delivering() {
                None => lease.wake(runnable),
                Some(home) => lease.send_home(runnable, home),
            },
            None => from_outside(shared, runnable),
        }
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.stop.is_closing()
    }

    fn register(&self, waker: &Waker, who: Identity) -> Option<Place> {
        let shard = current::lease(self).map_or(0, |lease| lease.processor.index);
        self.registry.insert(shard, waker, who)
    }

    fn unregister(&self, place: Place) -> Waker {
        self.registry.remove(place)
    }

    #[inline]
    fn forget(&self, who: Identity) {
        self.names.forget(who);
    }

    #[inline]
    unsafe fn leave(this: *const Self) {
        match current::lease(this) {
            Some(lease) => lease.processor.open.share.remove(),
            // SAFETY: alive until it has left, by the caller's promise.
            None => drop(unsafe { &*this }.stop.leave()),
        }
    }
}

#[cold]
#[inline(never)]
fn from_outside(shared: *const Shared, runnable: Runnable) {
    // SAFETY: the future of a runnable in hand is alive, and keeps its scheduler alive.
    let shared = unsafe { &*shared };
    // Once pushed, the task may run, end, and free the scheduler under our feet: hold it.
    let hold: Arc<Shared> = shared.arc();
    // No thread to be had: the task waits in the injector for the next that runs or is started.
    let _ = hold.inject(runnable);
}
