//! Who could still make something happen while no worker runs, the jobs, and who waits: the `block_on`s. Knows neither tasks nor the reactor; see [`crate::census`] for what is made of it.
//!
//! The `block_on`s are noted only where somebody wants to know of deadlocks.

use std::any::Any;
use std::panic::Location;

use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, lock};

/// A `block_on` as others see it.
pub(crate) trait Main: Send + Sync {
    /// Whether its future was woken, and not polled since.
    fn is_woken(&self) -> bool;
    /// Where it was called.
    fn called_at(&self) -> &'static Location<'static>;
    /// Makes it panic.
    fn fail(self: Arc<Self>, payload: Box<dyn Any + Send>);
}

/// Different whenever a `block_on` has begun to wait, or gone on, meanwhile.
pub(crate) type Moment = u64;

#[derive(Default)]
struct Mains {
    /// Those that wait for their futures, the oldest first.
    waiting: Vec<Arc<dyn Main>>,
    moment: Moment,
}

#[derive(Default)]
pub(crate) struct Outside {
    /// Code that blocks, polls that go on without a processor, and `block_on`s that poll their futures.
    jobs: AtomicUsize,
    mains: Mutex<Mains>,
}

impl Outside {
    pub(crate) fn job_begins(&self) {
        self.jobs.fetch_add(1, SeqCst);
    }

    /// Whatever it wakes has been woken.
    pub(crate) fn job_ends(&self) {
        self.jobs.fetch_sub(1, SeqCst);
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.load(SeqCst) > 0
    }

    /// So many jobs are not under way any more, but wait for that `block_on`'s future.
    pub(crate) fn main_waits(&self, main: Arc<dyn Main>, jobs: usize) {
        let mut mains = lock(&self.mains);
        mains.moment += 1;
        mains.waiting.push(main);
        drop(mains);
        self.jobs.fetch_sub(jobs, SeqCst);
    }

    /// They go on.
    pub(crate) fn main_goes_on(&self, main: &Arc<dyn Main>, jobs: usize) {
        self.jobs.fetch_add(jobs, SeqCst);
        let mut mains = lock(&self.mains);
        mains.moment += 1;
        mains.waiting.retain(|waiting| !Arc::ptr_eq(waiting, main));
    }

    pub(crate) fn moment(&self) -> Moment {
        lock(&self.mains).moment
    }

    /// Those that wait, if there are any and none was woken.
    pub(crate) fn waiting(&self) -> Option<Vec<Arc<dyn Main>>> {
        let mains = lock(&self.mains);
        let in_vain =
            !mains.waiting.is_empty() && !mains.waiting.iter().any(|main| main.is_woken());
        in_vain.then(|| mains.waiting.clone())
    }
}
