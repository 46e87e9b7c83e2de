//! A wake: to the slot, else the worker's own queue, else the injector.
//! Knows nothing of the worker loop; the two meet in [`crate::processor`] and [`crate::shared`].

use async_task::ScheduleInfo;

use crate::current;
use crate::shared::{Runnable, Shared};
use crate::sync::Arc;

/// The schedule function of every task; called by async-task when the task is to run (again).
#[inline]
pub(crate) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let shared = runnable.metadata().shared;
    match current::lease(shared) {
        Some(lease) if info.woken_while_running => lease.push_yielded(runnable),
        Some(lease) => match current::delivering() {
            None => lease.wake(runnable),
            Some(home) => lease.send_home(runnable, home),
        },
        None => from_outside(shared, runnable),
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
