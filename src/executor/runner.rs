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
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::tally::Share;

/// The most runnables that one look into the injector brings to a seat's queue.
const MOST_INJECTED: usize = 128;
/// After so many polls, or so long, a `run` looks up from its own queue, and gives way to its outer
/// executor: a short poll of that one, which it costs, is then a hundredth of the time.
const MOST_POLLS: u32 = 127;
const TURN: Duration = Duration::from_micros(200);

/// What others may look at, and take from.
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) slot: Slot<Runnable>,
    pub(super) stealer: Stealer<Runnable>,
    pub(super) polls: Counter,
    pub(super) share: Share,
    /// The thread that holds it, or held it last.
    thread: AtomicU64,
}

impl Seat {
    pub(super) fn holds_work(&self) -> bool {
        !self.slot.is_empty() || self.stealer.len() > 0
    }

    /// One runnable, the longest in line first.
    pub(super) fn take_one(&self) -> Option<Runnable> {
        self.stealer.steal_one().or_else(|| self.slot.take())
    }

    /// Whether it is held here, further down on this thread's stack, or not at all.
    pub(super) fn is_of_this_thread(&self) -> bool {
        self.thread.load(Relaxed) == current::thread_id()
    }
}

/// A seat as its holder has it.
pub(super) struct Seated {
    pub(super) seat: Arc<CachePadded<Seat>>,
    pub(super) queue: Owner<Runnable>,
    slice: Slice,
    /// Until when, and for how many polls, it does not look up.
    turn: Slice,
    left: Cell<u32>,
    /// A task that yielded when the queue was empty, on its way back to the loop; empty whenever
    /// anything else runs.
    yielded: Cell<Option<Runnable>>,
    pub(super) peers: RefCell<Peers>,
}

impl Seated {
    pub(super) fn new(index: usize) -> Box<Self> {
        let queue = Owner::new();
        let stealer = queue.stealer();
        let (slot, polls, share) = (Slot::new(), Counter::default(), Share::new());
        let seat = Seat { index, slot, stealer, polls, share, thread: AtomicU64::new(0) };
        Box::new(Seated {
            seat: Arc::new(CachePadded::new(seat)),
            queue,
            slice: Slice::new(slice::DEFAULT),
            turn: Slice::new(TURN),
            left: Cell::new(MOST_POLLS),
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
            let before = self.yielded.replace(Some(runnable));
            debug_assert!(before.is_none(), "the loop looks there before it runs anything");
        } else {
            self.push(core, runnable);
        }
    }

    /// To the queue's tail.
    #[inline]
    pub(super) fn push(&self, core: &Core, runnable: Runnable) {
        self.queue.push(runnable);
        core.sleepers.notify_of(|| self.queue.len());
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

    fn begin_turn(&self) {
        self.turn.begin();
        self.left.set(MOST_POLLS);
    }

    /// One poll more. Whether it is time to look up.
    #[inline]
    fn is_due(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0 || self.turn.is_spent(Instant::now)
    }

    #[inline]
    fn next(&self, core: &Core) -> Next {
        let due = self.is_due();
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
        let seats = core.seat_count.load(Relaxed);
        let share = |rest: usize| (rest / seats).min(MOST_INJECTED);
        core.injector.pop(share, |runnable| self.queue.push(runnable))
    }

    #[inline]
    fn run(&self, runnable: Runnable) {
        self.seat.polls.add(1);
        runnable.run();
    }

    /// Runs what was injected, in its turn. Leaves nothing where only this `run` would find it.
    #[cold]
    fn look_up(&self, core: &Core) {
        self.begin_turn();
        if let Some(runnable) = self.injected(core) {
            self.run(runnable);
            drop(self.take_yielded(core, false));
        }
    }

    /// From others.
    #[cold]
    fn take(&self, core: &Core) -> Option<Runnable> {
        let found = {
            let mut peers = self.peers.borrow_mut();
            peers.learn(core);
            peers.take(self)
        };
        self.tell_of_more(core, found)
    }

    /// After it has listed itself, or a host: what is left to take.
    #[cold]
    fn last_look(&self, core: &Core) -> Option<Runnable> {
        let found = {
            let mut peers = self.peers.borrow_mut();
            peers.learn(core);
            peers.last_look(core, self)
        };
        self.tell_of_more(core, found)
    }

    /// What came with it was seen neither where it was nor here by who looked meanwhile.
    fn tell_of_more(&self, core: &Core, found: Option<Runnable>) -> Option<Runnable> {
        if found.is_some() && !self.queue.is_empty() {
            core.sleepers.notify();
        }
        found
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

/// Polls a task that no `run` has taken: what it wakes, and itself, goes to where anybody finds it.
pub(super) fn tick(runnable: Runnable) {
    let _nowhere = Working::set(ptr::null(), ptr::null());
    runnable.run();
}

/// This thread works in a seat, until this is dropped.
struct Working<'a> {
    core: *const Core,
    seated: *const Seated,
    of: PhantomData<&'a Seated>,
}

impl<'a> Working<'a> {
    fn begin(core: &Core, seated: &'a Seated) -> Self {
        seated.seat.thread.store(current::thread_id(), Relaxed);
        seated.begin_turn();
        Self::set(core, seated)
    }

    fn set(core: *const Core, seated: *const Seated) -> Self {
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

/// A seat that was taken, until this is dropped.
struct Taken<'e> {
    core: &'e Core,
    seated: Option<Box<Seated>>,
}

impl<'e> Taken<'e> {
    fn new(core: &'e Core) -> Self {
        Taken { core, seated: Some(core.sit_down()) }
    }

    fn seated(&self) -> &Seated {
        self.seated.as_ref().expect("until it is given back")
    }

    fn give_back(&mut self) {
        self.seated.take().into_iter().for_each(|seated| self.core.stand_up(seated));
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Runs what there is, for so long; at least one task if there is any. True if nothing is left.
pub(super) fn take_turn(core: &Core, budget: Duration) -> bool {
    let taken = Taken::new(core);
    let seated = taken.seated();
    let _working = Working::begin(core, seated);
    let begun = Instant::now();
    core.host_is_awake();
    loop {
        let found = match seated.next(core) {
            Next::Runnable(runnable) => Some(runnable),
            Next::Nothing => seated.take(core),
            Next::Due => {
                seated.look_up(core);
                continue;
            }
        };
        let found = found.or_else(|| {
            core.host_sleeps();
            let found = seated.last_look(core);
            if found.is_some() {
                core.host_is_awake();
            }
            found
        });
        let Some(runnable) = found else { return true };
        seated.run(runnable);
        if begun.elapsed() >= budget {
            drop(seated.take_yielded(core, false));
            if core.has_work() {
                return false;
            }
        }
    }
}

/// A `run`.
pub(super) struct Runner<'e> {
    taken: Taken<'e>,
    rest: Rest<'e>,
}

/// How a `run` goes to rest, and is called.
struct Rest<'e> {
    core: &'e Core,
    signal: Arc<Signal>,
    /// The main future's.
    waker: Waker,
    listed: Option<Listed>,
    /// Somebody called it, and it has not settled yet.
    called: bool,
}

/// What a rest came to.
enum Rested {
    Found(Runnable),
    /// It was called meanwhile.
    Called,
    Asleep,
}

// SAFETY: everything that it does takes it mutably; nothing can be done with a shared reference.
unsafe impl Sync for Runner<'_> {}

impl<'e> Runner<'e> {
    pub(super) fn new(core: &'e Core) -> Self {
        let signal = Arc::new(Signal::new());
        signal.set_main();
        let waker = Waker::from(signal.clone());
        let rest = Rest { core, signal, waker, listed: None, called: false };
        Runner { taken: Taken::new(core), rest }
    }

    /// Polls the main future if it was woken: first, and whenever there is nothing else to do.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut main: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Runner { taken, rest } = self;
        let (core, seated) = (rest.core, taken.seated());
        let _working = Working::begin(core, seated);
        rest.signal.begin();
        rest.unlist();
        let mut main_is_next = true;
        loop {
            if main_is_next && rest.signal.take_main() {
                rest.settle();
                if let Poll::Ready(output) = main(&mut Context::from_waker(&rest.waker)) {
                    return Poll::Ready(output);
                }
            }
            main_is_next = false;
            let found = match seated.next(core) {
                Next::Runnable(runnable) => Some(runnable),
                Next::Nothing => rest.search(seated),
                Next::Due => {
                    rest.settle();
                    seated.look_up(core);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            };
            if found.is_none() && rest.signal.is_main_woken() {
                // One that awaits many tasks, one by one, is polled after all that are ready.
                main_is_next = true;
                continue;
            }
            match found.map_or_else(|| rest.rest(seated, cx.waker()), Rested::Found) {
                Rested::Found(runnable) => {
                    rest.settle();
                    seated.run(runnable);
                }
                Rested::Called => main_is_next = true,
                Rested::Asleep => return Poll::Pending,
            }
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.rest.unlist();
        self.rest.signal.retire();
        self.taken.give_back();
        // Whoever is called next finds what was left behind.
        self.rest.settle();
    }
}

impl Rest<'_> {
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

    fn search(&self, seated: &Seated) -> Option<Runnable> {
        let found = seated.take(self.core);
        if found.is_some() || !self.called {
            return found;
        }
        let mut peers = seated.peers.borrow_mut();
        let found = peers.watch(self.core, seated, || self.signal.is_called());
        drop(peers);
        seated.tell_of_more(self.core, found)
    }

    /// Goes to rest, unless there is anything.
    fn rest(&mut self, seated: &Seated, outer: &Waker) -> Rested {
        if std::mem::take(&mut self.called) {
            // It looks again below, when it is listed.
            self.core.sleepers.settle();
        }
        self.listed = Some(self.core.sleepers.list(Asleep::Run(self.signal.clone())));
        match seated.last_look(self.core) {
            None if self.signal.rest(outer) => Rested::Asleep,
            found => {
                self.signal.begin();
                self.unlist();
                found.map_or(Rested::Called, Rested::Found)
            }
        }
    }
}
