//! What the `run`s of one embedded executor share, and what its tasks ask of it.
//! Knows nothing of how a `run` goes about its work; see [`super::runner`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::task::{Context, Poll, Waker};

use async_task::ScheduleInfo;
use crossbeam_utils::CachePadded;

use crate::closing::Closing;
use crate::contain::contain;
use crate::executor::runner::{self, Seat, Seated};
use crate::executor::signal::Signal;
use crate::executor::sleepers::{Listed, Sleeper, Sleepers};
use crate::identity::Identity;
use crate::injector::Injector;
use crate::registry::{Place, Registry};
use crate::shared::Runnable;
use crate::sync::atomic::{AtomicUsize, Ordering::*};
use crate::sync::{Arc, Mutex, lock};
use crate::tally::{Share, Tally};
use crate::task::{Scheduler, Task, build};

/// Locks that waiting tasks are spread over.
const SHARDS: usize = 4;

/// Who sleeps in an executor.
pub(super) enum Asleep {
    Run(Arc<Signal>),
    Tick(Waker),
    Host(Arc<dyn Fn() + Send + Sync>),
}

impl Sleeper for Asleep {
    fn looks(&self) -> bool {
        !matches!(self, Asleep::Host(_))
    }

    fn call(self) {
        match self {
            Asleep::Run(signal) => signal.call(),
            Asleep::Tick(waker) => contain(|| waker.wake()),
            Asleep::Host(callback) => contain(|| callback()),
        }
    }
}

pub(super) struct Core {
    pub(super) injector: Injector<Runnable>,
    pub(super) sleepers: Sleepers<Asleep>,
    /// Of all `run`s that there ever were at once. None is ever taken out.
    seats: Mutex<Vec<Arc<CachePadded<Seat>>>>,
    /// How many there are, for those who know the first ones.
    pub(super) seat_count: AtomicUsize,
    /// Those that nobody has: boxed, since a `run` that works is pointed to.
    #[allow(clippy::vec_box)]
    free: Mutex<Vec<Box<Seated>>>,
    host: Mutex<Host>,
    /// With nothing noted.
    registry: Registry<()>,
    tally: Tally,
    closing: Closing,
}

#[derive(Default)]
struct Host {
    callback: Option<Arc<dyn Fn() + Send + Sync>>,
    listed: Option<Listed>,
}

impl Core {
    pub(super) fn new() -> Self {
        Core {
            injector: Injector::new(),
            sleepers: Sleepers::new(),
            seats: Mutex::default(),
            seat_count: AtomicUsize::new(0),
            free: Mutex::default(),
            host: Mutex::default(),
            registry: Registry::new(SHARDS),
            // One share is the executor's own.
            tally: Tally::new(1),
            closing: Closing::new(),
        }
    }

    /// # Safety
    /// What the future borrows outlives the executor, whose drop calls [`close`](Self::close).
    #[inline]
    pub(super) unsafe fn spawn<F>(
        &self,
        at: &'static Location<'static>,
        future: F,
    ) -> Task<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let here = runner::here(self);
        // SAFETY: as the caller promises.
        let (runnable, task) = unsafe { self.counted(here, at, future) };
        match here {
            Some(here) => here.push(self, runnable),
            None => self.inject(runnable),
        }
        task
    }

    /// # Safety
    /// As [`spawn`](Self::spawn).
    #[inline]
    pub(super) unsafe fn counted<F>(
        &self,
        here: Option<&Seated>,
        at: &'static Location<'static>,
        future: F,
    ) -> (Runnable, Task<F::Output>)
    where
        F: Future + Send,
        F::Output: Send,
    {
        match here {
            Some(here) => here.seat.share.add(),
            None => {
                let counted = self.tally.enter();
                debug_assert!(counted, "an executor that is there has not ended");
            }
        }
        // SAFETY: the caller answers for what the future borrows; it is counted.
        unsafe { build::<Core, _>(self, Identity::of(at), future) }
    }

    /// From outside of all `run`s.
    fn inject(&self, runnable: Runnable) {
        self.injector.push(runnable);
        self.sleepers.notify_of(|| self.injector.len());
    }

    pub(super) fn inject_many(&self, runnables: impl Iterator<Item = Runnable>) {
        match runner::here(self) {
            Some(here) => runnables.for_each(|runnable| here.push(self, runnable)),
            None => {
                self.injector.push_many(runnables);
                if !self.sleepers.notify() {
                    self.sleepers.call_another();
                }
            }
        }
    }

    /// How many futures are alive.
    pub(super) fn alive(&self) -> usize {
        let seats = lock(&self.seats);
        self.tally.alive(seats.iter().map(|seat| &seat.share))
    }

    pub(super) fn describe(&self, fields: &mut fmt::DebugStruct<'_, '_>) {
        let runs = lock(&self.seats).len() - lock(&self.free).len();
        let (tasks, injected) = (self.alive(), self.injector.len());
        fields.field("tasks", &tasks).field("injected", &injected).field("runs", &runs);
    }

    /// A seat that nobody has.
    pub(super) fn sit_down(&self) -> Box<Seated> {
        if let Some(seated) = lock(&self.free).pop() {
            return seated;
        }
        let opened = self.tally.open();
        debug_assert!(opened, "an executor that is there has not ended");
        let mut seats = lock(&self.seats);
        let seated = Seated::new(seats.len());
        seats.push(seated.seat.clone());
        // Ordering E7: release the list; pairs with E8.
        self.seat_count.store(seats.len(), Release);
        seated
    }

    /// Gives back a seat, with what is left in it.
    pub(super) fn stand_up(&self, seated: Box<Seated>) {
        let left = seated.unload();
        if !left.is_empty() {
            self.injector.push_many(left.into_iter());
            self.sleepers.notify();
        }
        // The first ones are taken again first: nobody looks through many that are empty.
        let mut free = lock(&self.free);
        let place = free.partition_point(|other| other.seat.index > seated.seat.index);
        free.insert(place, seated);
    }

    /// All seats but the first ones.
    #[cold]
    pub(super) fn seats_from(&self, first: usize) -> Vec<Arc<CachePadded<Seat>>> {
        lock(&self.seats)[first..].to_vec()
    }

    /// Whether anything waits to be run where others find it.
    pub(super) fn has_work(&self) -> bool {
        !self.injector.is_empty() || lock(&self.seats).iter().any(|seat| seat.holds_work())
    }

    /// A runnable from anywhere.
    pub(super) fn any_runnable(&self) -> Option<Runnable> {
        if let Some(runnable) = self.injector.pop(|_| 0, |_| ()) {
            return Some(runnable);
        }
        lock(&self.seats).iter().find_map(|seat| seat.take_one())
    }

    /// Whoever was called has looked: somebody else is called if there is more.
    pub(super) fn settle(&self) {
        self.sleepers.settle();
        self.pass_on();
    }

    fn pass_on(&self) {
        if self.has_work() {
            self.sleepers.notify();
        }
    }

    /// Runs one task. False if there is none.
    pub(super) fn try_tick(&self) -> bool {
        let Some(runnable) = self.any_runnable() else { return false };
        self.pass_on();
        runner::tick(runnable);
        true
    }

    pub(super) async fn tick(&self) {
        let mut tick = Tick { core: self, listed: None };
        let runnable = poll_fn(|cx| tick.poll(cx)).await;
        drop(tick);
        runner::tick(runnable);
    }

    /// Sets who is told that there is something to run again.
    pub(super) fn set_host(&self, callback: Arc<dyn Fn() + Send + Sync>) {
        self.host_is_awake();
        let before = lock(&self.host).callback.replace(callback.clone());
        drop(before);
        self.host_sleeps();
        if self.has_work() && self.host_is_awake() {
            contain(|| callback());
        }
    }

    /// The host's turn begins. True if it was waiting, and was not told yet.
    pub(super) fn host_is_awake(&self) -> bool {
        let listed = lock(&self.host).listed.take();
        listed.is_some_and(|listed| self.sleepers.leave(listed))
    }

    /// The host's turn is over, unless there is something to run: it must look once more.
    pub(super) fn host_sleeps(&self) {
        let callback = lock(&self.host).callback.clone();
        if let Some(callback) = callback {
            let listed = self.sleepers.list(Asleep::Host(callback));
            let before = lock(&self.host).listed.replace(listed);
            if let Some(before) = before {
                let _ = self.sleepers.leave(before);
            }
        }
    }

    /// The end: every future is dropped before this returns.
    ///
    /// Nobody polls a task meanwhile: who does has borrowed the executor. A thread that is just
    /// scheduling one is waited for.
    pub(super) fn close(&self) {
        self.closing.begin();
        for waker in self.registry.close() {
            contain(|| waker.wake());
        }
        self.drain();
        // A `run` that was leaked has a seat as well.
        let mut over = self.tally.fold(&Share::new());
        for seat in lock(&self.seats).iter() {
            over |= self.tally.fold(&seat.share);
        }
        if !over {
            self.closing.attend(None, || self.drain(), || self.tally.is_over());
        }
    }

    fn drain(&self) {
        while let Some(runnable) = self.any_runnable() {
            // The destructors that this runs may schedule more.
            drop(runnable);
        }
    }
}

impl Scheduler for Core {
    #[inline]
    fn schedule(runnable: Runnable, info: ScheduleInfo) {
        let core = runnable.metadata().scheduler.cast::<Core>();
        match runner::here(core) {
            // SAFETY: the future of a runnable in hand is alive, and keeps its scheduler alive.
            Some(here) => unsafe { here.scheduled(&*core, runnable, info.woken_while_running) },
            None => from_outside(core, runnable),
        }
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    fn register(&self, waker: &Waker, _: Identity) -> Option<Place> {
        let shard = runner::here(self).map_or(0, |here| here.seat.index);
        self.registry.insert(shard, waker, ())
    }

    fn unregister(&self, place: Place) -> Waker {
        self.registry.remove(place)
    }

    #[inline]
    fn forget(&self, _: Identity) {}

    #[inline]
    unsafe fn leave(this: *const Self) {
        match runner::here(this) {
            Some(here) => here.seat.share.remove(),
            None => {
                // SAFETY: alive until it has left, by the caller's promise.
                let hold = unsafe { hold(this) };
                if hold.tally.leave() {
                    hold.closing.over();
                }
            }
        }
    }
}

#[cold]
#[inline(never)]
fn from_outside(core: *const Core, runnable: Runnable) {
    // Once pushed, the task may run and end, and the executor be dropped under our feet.
    // SAFETY: the future of a runnable in hand is alive, and keeps its scheduler alive.
    let hold = unsafe { hold(core) };
    hold.inject(runnable);
    hold.closing.pushed(|| hold.drain());
}

/// # Safety
/// The executor is alive. (Its core is in an `Arc`, see [`super::Executor`].)
unsafe fn hold(core: *const Core) -> Arc<Core> {
    // SAFETY: as the caller promises.
    unsafe {
        Arc::increment_strong_count(core);
        Arc::from_raw(core)
    }
}

/// A `tick` that waits.
struct Tick<'e> {
    core: &'e Core,
    listed: Option<Listed>,
}

impl Tick<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Runnable> {
        let mut called = self.unlist();
        let mut found = self.core.any_runnable();
        if found.is_none() {
            if std::mem::take(&mut called) {
                // There may be more than nothing by now: it is listed before it looks again.
                self.core.sleepers.settle();
            }
            self.listed = Some(self.core.sleepers.list(Asleep::Tick(cx.waker().clone())));
            found = self.core.any_runnable();
            called = found.is_some() && self.unlist();
        }
        let Some(runnable) = found else { return Poll::Pending };
        match called {
            true => self.core.settle(),
            false => self.core.pass_on(),
        }
        Poll::Ready(runnable)
    }

    /// True if it was called.
    fn unlist(&mut self) -> bool {
        self.listed.take().is_some_and(|listed| !self.core.sleepers.leave(listed))
    }
}

impl Drop for Tick<'_> {
    fn drop(&mut self) {
        if self.unlist() {
            self.core.settle();
        }
    }
}
