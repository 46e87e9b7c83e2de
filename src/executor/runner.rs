//! One `run` of an embedded executor: its seat, where it finds work, and how it goes to rest.
//!
//! A seat has a wake slot and a queue. Nobody looks after who holds it but the other `run`s: whatever
//! is put there calls one that sleeps. So what waits behind a poll that does not return is found, and
//! taken after a moment in which nothing moved. (A runtime has its ticker for that.)

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::cadence::Cadence;
use crate::current;
use crate::executor::core::{Asleep, Core};
use crate::executor::peers::Peers;
use crate::executor::signal::Signal;
use crate::executor::sleepers::Listed;
use crate::processor::Counter;
use crate::queue::{Owner, Stealer};
use crate::shared::Runnable;
use crate::slice::{self, Slice};
use crate::slot::Slot;
use crate::sync::Arc;
use crate::tally::Share;

/// The most runnables that one look into the injector brings to a seat's queue.
const MOST_INJECTED: usize = 128;

/// Whether so many that wait are worth one more who comes, although one that was called has not come yet.
pub(super) fn grows(waiting: usize) -> bool {
    waiting >= 8 && waiting.is_power_of_two()
}

/// What others may look at, and take from.
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) slot: Slot<Runnable>,
    pub(super) stealer: Stealer<Runnable>,
    pub(super) polls: Counter,
    pub(super) share: Share,
}

impl Seat {
    pub(super) fn holds_work(&self) -> bool {
        !self.slot.is_empty() || self.stealer.len() > 0
    }

    /// One runnable, the longest in line first.
    pub(super) fn take_one(&self) -> Option<Runnable> {
        self.stealer.steal_one().or_else(|| self.slot.take())
    }
}

/// A seat as its holder has it.
pub(super) struct Seated {
    pub(super) seat: Arc<CachePadded<Seat>>,
    pub(super) queue: Owner<Runnable>,
    slice: Slice,
    cadence: Cadence,
    /// A task that yielded when the queue was empty, on its way back to the loop.
    yielded: Cell<Option<Runnable>>,
    pub(super) peers: RefCell<Peers>,
}

impl Seated {
    pub(super) fn new(index: usize) -> Box<Self> {
        let queue = Owner::new();
        let stealer = queue.stealer();
        let (slot, polls, share) = (Slot::new(), Counter::default(), Share::new());
        Box::new(Seated {
            seat: Arc::new(CachePadded::new(Seat { index, slot, stealer, polls, share })),
            queue,
            slice: Slice::new(slice::DEFAULT),
            cadence: Cadence::new(),
            yielded: Cell::new(None),
            peers: RefCell::default(),
        })
    }

    /// A task of `core` is to run (again).
    #[inline]
    pub(super) fn scheduled(&self, core: &Core, runnable: Runnable, yields: bool) {
        if !yields {
            // Woken by the task that runs here.
            if let Some(displaced) = self.seat.slot.put(runnable) {
                self.queue.push(displaced);
            }
            core.sleepers.notify();
        } else if self.queue.is_empty() {
            // The cell is empty: the loop looks into it before it runs anything.
            self.yielded.set(Some(runnable));
        } else {
            self.push(core, runnable);
        }
    }

    /// To the queue's tail.
    #[inline]
    pub(super) fn push(&self, core: &Core, runnable: Runnable) {
        self.queue.push(runnable);
        if !core.sleepers.notify() && grows(self.queue.len()) {
            core.sleepers.call_another();
        }
    }

    /// The task that just yielded, unless others are to go first.
    #[inline]
    fn take_yielded(&self, core: &Core, stay: bool) -> Option<Runnable> {
        let runnable = self.yielded.take()?;
        if stay && self.seat.slot.is_empty() {
            return Some(runnable);
        }
        self.push(core, runnable);
        None
    }

    /// The next runnable in the slot, on what is left of the slice.
    #[inline]
    fn next_in_slot(&self, core: &Core) -> Option<Runnable> {
        let runnable = self.seat.slot.take()?;
        if self.slice.is_spent(Instant::now) {
            self.push(core, runnable);
            return None;
        }
        Some(runnable)
    }

    #[inline]
    fn begin_slice(&self) {
        self.slice.begin();
        current::begin_slice();
    }

    #[inline]
    fn next(&self, core: &Core) -> Next {
        let due = self.cadence.is_due(self.seat.polls.get());
        if let Some(runnable) = self.take_yielded(core, !due) {
            self.begin_slice();
            return Next::Runnable(runnable);
        }
        if let Some(runnable) = self.next_in_slot(core) {
            return Next::Runnable(runnable);
        }
        self.begin_slice();
        if due {
            return Next::Due;
        }
        match self.queue.pop().map(|(runnable, _)| runnable).or_else(|| self.injected(core)) {
            Some(runnable) => Next::Runnable(runnable),
            None => Next::Nothing,
        }
    }

    /// The oldest injected runnable, and this seat's share of the others.
    pub(super) fn injected(&self, core: &Core) -> Option<Runnable> {
        let seats = core.seat_count.load(crate::sync::atomic::Ordering::Relaxed);
        let share = |rest: usize| (rest / seats).min(MOST_INJECTED);
        core.injector.pop(share, |runnable| self.queue.push(runnable))
    }

    /// Every so many polls, what was injected has its turn.
    #[cold]
    fn look_up(&self, core: &Core) -> (Instant, Option<Runnable>) {
        let now = Instant::now();
        self.cadence.look_up(now, self.seat.polls.get());
        (now, self.injected(core))
    }

    #[inline]
    fn run(&self, runnable: Runnable) {
        self.seat.polls.add(1);
        runnable.run();
    }

    /// What is left in it.
    pub(super) fn unload(&self) -> Vec<Runnable> {
        let queued = std::iter::from_fn(|| Some(self.queue.pop()?.0));
        self.seat.slot.take().into_iter().chain(self.yielded.take()).chain(queued).collect()
    }
}

enum Next {
    Runnable(Runnable),
    /// It is time to look up from the own queue.
    Due,
    Nothing,
}

struct Here {
    core: Cell<*const Core>,
    seated: Cell<*const Seated>,
}

thread_local! {
    // No destructor: usable from the destructors of other thread-locals.
    static HERE: Here = const {
        Here { core: Cell::new(ptr::null()), seated: Cell::new(ptr::null()) }
    };
}

/// The seat that this thread works in, if the innermost `run` is of that executor.
///
/// The pointer is only compared.
#[inline]
pub(super) fn here<'a>(core: *const Core) -> Option<&'a Seated> {
    HERE.with(|here| {
        if here.core.get() != core {
            return None;
        }
        // SAFETY: the innermost `run` that is being polled on this thread keeps its seat until its
        // poll returns, and `Working` takes it out then; nobody keeps this reference for so long.
        Some(unsafe { &*here.seated.get() })
    })
}

/// This thread works in a seat, until this is dropped.
struct Working<'a> {
    core: *const Core,
    seated: *const Seated,
    of: PhantomData<&'a Seated>,
}

impl<'a> Working<'a> {
    fn begin(core: &Core, seated: &'a Seated) -> Self {
        HERE.with(|here| Working {
            core: here.core.replace(core),
            seated: here.seated.replace(seated),
            of: PhantomData,
        })
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.core.set(self.core);
            here.seated.set(self.seated);
        });
    }
}

/// A `run`, or a host's turn.
pub(super) struct Runner<'e> {
    core: &'e Core,
    /// Until it is dropped.
    seated: Option<Box<Seated>>,
    signal: Arc<Signal>,
    /// The main future's.
    waker: Waker,
    listed: Option<Listed>,
    /// Somebody called it, and it has not settled yet.
    called: bool,
}

// SAFETY: everything that it does takes it mutably; nothing can be done with a shared reference.
unsafe impl Sync for Runner<'_> {}

/// What a rest came to.
enum Rest {
    Found(Runnable),
    /// It was called meanwhile.
    Called,
    Asleep,
}

impl<'e> Runner<'e> {
    pub(super) fn new(core: &'e Core) -> Self {
        let signal = Arc::new(Signal::new());
        signal.set_main();
        let waker = Waker::from(signal.clone());
        Runner { core, seated: Some(core.sit_down()), signal, waker, listed: None, called: false }
    }

    fn seated(&self) -> &Seated {
        self.seated.as_ref().expect("until it is dropped")
    }

    /// Polls the main future if it was woken: first, and whenever there is nothing else to do.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut main: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let (core, seated) = (self.core, ptr::from_ref(self.seated()));
        // SAFETY: boxed, and given away by `drop` alone.
        let seated = unsafe { &*seated };
        let _working = Working::begin(core, seated);
        self.signal.begin();
        self.unlist();
        let mut main_is_next = true;
        loop {
            if main_is_next && self.signal.take_main() {
                self.settle();
                if let Poll::Ready(output) = main(&mut Context::from_waker(&self.waker)) {
                    return Poll::Ready(output);
                }
            }
            main_is_next = false;
            let found = match seated.next(core) {
                Next::Runnable(runnable) => Some(runnable),
                Next::Nothing => self.search(),
                Next::Due => {
                    if let (_, Some(runnable)) = seated.look_up(core) {
                        self.settle();
                        seated.run(runnable);
                    }
                    self.settle();
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            };
            if found.is_none() && self.signal.is_main_woken() {
                // One that awaits many tasks, one by one, is polled after all that are ready.
                main_is_next = true;
                continue;
            }
            match found.map_or_else(|| self.rest(cx.waker()), Rest::Found) {
                Rest::Found(runnable) => {
                    self.settle();
                    seated.run(runnable);
                }
                Rest::Called => main_is_next = true,
                Rest::Asleep => return Poll::Pending,
            }
        }
    }

    /// Runs what there is, for so long. True if nothing is left.
    pub(super) fn take_turn(&mut self, budget: Duration) -> bool {
        let (core, seated) = (self.core, ptr::from_ref(self.seated()));
        // SAFETY: boxed, and given away by `drop` alone.
        let seated = unsafe { &*seated };
        let _working = Working::begin(core, seated);
        let begun = Instant::now();
        loop {
            let found = match seated.next(core) {
                Next::Runnable(runnable) => Some(runnable),
                Next::Nothing => self.search(),
                Next::Due => {
                    let (now, injected) = seated.look_up(core);
                    injected.into_iter().for_each(|runnable| seated.run(runnable));
                    if now - begun >= budget {
                        return false;
                    }
                    continue;
                }
            };
            let found = found.or_else(|| {
                core.host_sleeps();
                self.last_look()
            });
            let Some(runnable) = found else { return true };
            core.host_is_awake();
            seated.run(runnable);
            if budget.is_zero() {
                return !core.has_work();
            }
        }
    }

    /// It is not to be called any more; or it was.
    fn unlist(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.called |= !self.core.sleepers.leave(listed);
        }
    }

    /// It has looked: if it was called, somebody else is if there is more.
    #[inline]
    fn settle(&mut self) {
        if std::mem::take(&mut self.called) {
            self.core.settle();
        }
    }

    fn search(&mut self) -> Option<Runnable> {
        let seated = self.seated();
        seated.cadence.pause();
        let mut peers = seated.peers.borrow_mut();
        peers.learn(self.core);
        let found = peers.take(seated);
        if found.is_some() || !self.called {
            return found;
        }
        peers.watch(self.core, seated, || self.signal.is_called())
    }

    /// After it is listed.
    fn last_look(&self) -> Option<Runnable> {
        let seated = self.seated();
        let mut peers = seated.peers.borrow_mut();
        peers.learn(self.core);
        peers.last_look(self.core, seated)
    }

    /// Goes to rest, unless there is anything.
    fn rest(&mut self, outer: &Waker) -> Rest {
        if std::mem::take(&mut self.called) {
            // It looks again below, when it is listed.
            self.core.sleepers.settle();
        }
        self.listed = Some(self.core.sleepers.list(Asleep::Run(self.signal.clone())));
        match self.last_look() {
            None if self.signal.rest(outer) => Rest::Asleep,
            found => {
                self.signal.begin();
                self.unlist();
                found.map_or(Rest::Called, Rest::Found)
            }
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.unlist();
        self.signal.retire();
        self.seated.take().into_iter().for_each(|seated| self.core.stand_up(seated));
        // Whoever is called next finds what was left behind.
        self.settle();
    }
}
