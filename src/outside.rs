//! Who could still make something happen while no worker runs: jobs that block, and the `block_on`s
//! that wait or do not. Knows neither tasks nor the reactor; see [`crate::census`] for what is made of it.
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

/// Different whenever the future of a `block_on` was polled meanwhile.
pub(crate) type Moment = u64;

#[derive(Default)]
struct Mains {
    /// All that are under way.
    all: usize,
    /// Those of them that wait for their futures, the oldest first.
    waiting: Vec<Arc<dyn Main>>,
    /// How often one has begun to wait.
    waits: Moment,
}

#[derive(Default)]
pub(crate) struct Outside {
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

    pub(crate) fn main_begins(&self) {
        lock(&self.mains).all += 1;
    }

    pub(crate) fn main_ends(&self) {
        lock(&self.mains).all -= 1;
    }

    pub(crate) fn main_waits(&self, main: Arc<dyn Main>) {
        let mut mains = lock(&self.mains);
        mains.waits += 1;
        mains.waiting.push(main);
    }

    /// It goes on.
    pub(crate) fn main_goes_on(&self, main: &Arc<dyn Main>) {
        let mut mains = lock(&self.mains);
        mains.waiting.retain(|waiting| !Arc::ptr_eq(waiting, main));
    }

    pub(crate) fn moment(&self) -> Moment {
        lock(&self.mains).waits
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.load(SeqCst) > 0
    }

    /// Those that wait, if there are any, all wait, and none was woken.
    pub(crate) fn stuck(&self) -> Option<Vec<Arc<dyn Main>>> {
        let mains = lock(&self.mains);
        let all_wait =
            mains.all == mains.waiting.len() && !mains.waiting.iter().any(|main| main.is_woken());
        (all_wait && mains.all > 0).then(|| mains.waiting.clone())
    }
}
