//! A processor: what a thread must hold to run tasks. A wake slot, a local queue, a timeslice,
//! counters. There are as many as the runtime's configured parallelism, so no more tasks run at
//! once, however many threads take turns in holding them; spare ones make up for those whose holders are
//! stuck. (Go calls it a P.)
//! Knows nothing of the loop that drives it; see [`crate::worker`].

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::backlog::Backlog;
use crate::cadence::Cadence;
use crate::identity::Identity;
use crate::idle::Searching;
use crate::inbox::Inbox;
use crate::queue::{Owner, Stealer};
use crate::reactor::Due;
use crate::shared::{Runnable, Shared};
use crate::slice::Slice;
use crate::slot::Slot;
use crate::spin::Adaptive;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use crate::tally;
use crate::thread_state::ThreadNumber;

/// A counter with one writer at a time, read by anyone.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What the holder counts. See [`WorkerMetrics`](crate::WorkerMetrics) for what each means.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) polls: Counter,
    pub(crate) slot_hits: Counter,
    pub(crate) slot_displacements: Counter,
    pub(crate) slices_spent: Counter,
    pub(crate) forced_yields: Counter,
    pub(crate) injected: Counter,
    pub(crate) steals: Counter,
    pub(crate) stolen: Counter,
    pub(crate) wakes: Counter,
    pub(crate) spins: Counter,
    pub(crate) spins_won: Counter,
    pub(crate) parks: Counter,
}

/// Set by the ticker; `slice_over` is cleared by the holder.
#[derive(Default)]
pub(crate) struct Verdict {
    /// The slice outlived its length.
    pub(crate) slice_over: AtomicBool,
    pub(crate) rescues: Counter,
    /// Polls that lasted too long.
    pub(crate) wedges: Counter,
}

/// Who has asked whether to give way since the slice began.
#[derive(Clone, Copy, Default)]
struct Asked {
    operations: u32,
    /// The slice is spent.
    gave_way: bool,
}

/// Of so many operations one asks.
const FREE: u32 = 4;

/// Only the thread that holds the processor may touch this.
struct Own {
    queue: Owner<Runnable>,
    slice: Slice,
    cadence: Cadence,
    searching: Cell<Option<Searching>>,
    /// A task that yielded when the queue was empty, on its way back to the loop.
    yielded: Cell<Option<Runnable>>,
    backlog: Backlog,
    spin: Adaptive,
    /// What the reactor has collected for the holder, which is to be woken before anything else.
    due: RefCell<Due>,
    /// The ticker was seen awake since the processor was taken, and stays awake until it is idle.
    watched: Cell<bool>,
    /// Since the slice began.
    asked: Cell<Asked>,
    random: Cell<u32>,
}

/// Filled by the holder; others look at it, and may empty the slot and the queue.
pub(crate) struct Open {
    pub(crate) slot: Slot<Runnable>,
    pub(crate) counters: Counters,
    pub(crate) share: tally::Share,
    /// Whom the holder polls, or polled last, as a word.
    polled: AtomicU64,
    /// How often the holder began something else than a poll.
    others: Counter,
    /// Which thread the holder is, as the system numbers them.
    holder: AtomicU32,
}

pub(crate) struct Processor {
    pub(crate) index: usize,
    /// Not in a line that the holder writes: thieves look at every queue through theirs.
    pub(crate) stealer: Stealer<Runnable>,
    own: CachePadded<Own>,
    pub(crate) inbox: CachePadded<Inbox<Runnable>>,
    pub(crate) open: CachePadded<Open>,
    pub(crate) verdict: CachePadded<Verdict>,
}

// Counters of two workers never share a line.
const _: () = assert!(align_of::<Processor>() >= 64);

// SAFETY: `own` is reached through a `Lease` only, of which one thread at a time has any (see
// `Lease::new`); everything else is made of atomics.
unsafe impl Sync for Processor {}

impl Processor {
    pub(crate) fn new(index: usize, timeslice: Duration) -> Self {
        let queue = Owner::new();
        let stealer = queue.stealer();
        Processor {
            index,
            stealer,
            own: CachePadded::new(Own {
                queue,
                slice: Slice::new(timeslice),
                cadence: Cadence::new(),
                searching: Cell::new(None),
                yielded: Cell::new(None),
                backlog: Backlog::default(),
                spin: Adaptive::new(),
                due: RefCell::default(),
                watched: Cell::new(false),
                asked: Cell::default(),
                random: Cell::new(0x9e37_79b9 ^ (index as u32 + 1)),
            }),
            inbox: CachePadded::new(Inbox::new()),
            open: CachePadded::new(Open {
                slot: Slot::new(),
                counters: Counters::default(),
                share: tally::Share::new(),
                polled: AtomicU64::new(Identity::NOBODY.to_word()),
                others: Counter::default(),
                holder: AtomicU32::new(0),
            }),
            verdict: CachePadded::default(),
        }
    }
}

impl Open {
    /// Whom the holder polls, or polled last; nobody while it does something else.
    pub(crate) fn polled(&self) -> Identity {
        // SAFETY: every word that is put there is an identity's.
        unsafe { Identity::from_word(self.polled.load(Relaxed)) }
    }

    /// Different whenever the holder has begun something new.
    pub(crate) fn progress(&self) -> u64 {
        self.counters.polls.get() + self.others.get()
    }

    pub(crate) fn holder(&self) -> ThreadNumber {
        ThreadNumber(self.holder.load(Relaxed))
    }
}

/// The processors of one scheduler: its own, and spare ones for when workers are wedged, which are made
/// when they are first needed.
pub(crate) struct Processors {
    own: Box<[Processor]>,
    spare: Box<[OnceLock<Box<Processor>>]>,
    made: AtomicUsize,
}

impl Processors {
    /// So many, and as many spare ones at most.
    pub(crate) fn new(count: usize, timeslice: Duration) -> Self {
        Processors {
            own: (0..count).map(|index| Processor::new(index, timeslice)).collect(),
            spare: (0..count).map(|_| OnceLock::new()).collect(),
            made: AtomicUsize::new(0),
        }
    }

    /// How many there are if nobody is wedged.
    pub(crate) fn own(&self) -> usize {
        self.own.len()
    }

    /// How many there are, with the spare ones that were made.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the release in `make_spare`.
        self.own.len() + self.made.load(Acquire)
    }

    pub(crate) fn has_spare(&self) -> bool {
        self.made.load(Relaxed) < self.spare.len()
    }

    /// Makes the next spare one, of which there [is](Self::has_spare) one; its index. To be called by one
    /// thread only.
    pub(crate) fn make_spare(&self, timeslice: Duration) -> usize {
        let made = self.made.load(Relaxed);
        let index = self.own.len() + made;
        let is_new = self.spare[made].set(Box::new(Processor::new(index, timeslice))).is_ok();
        debug_assert!(is_new, "spare processor {made} was made twice");
        self.made.store(made + 1, Release);
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Processor> {
        match self.own.get(index) {
            None => self.spare.get(index.checked_sub(self.own.len())?)?.get().map(Box::as_ref),
            own => own,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Processor> + Clone {
        self.own.iter().chain(self.spare.iter().map_while(|spare| spare.get().map(Box::as_ref)))
    }
}

impl Index<usize> for Processors {
    type Output = Processor;

    #[inline]
    fn index(&self, index: usize) -> &Processor {
        self.get(index).expect("a processor that was made")
    }
}

/// Evidence that this thread holds the processor. Good until user code runs: a poll may give the
/// processor away (a nested `block_on` does).
#[derive(Clone, Copy)]
pub(crate) struct Lease<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) processor: &'a Processor,
    stays_here: PhantomData<*const ()>,
}

impl<'a> Lease<'a> {
    /// # Safety
    /// This thread was given the processor (by [`crate::idle`]) and has not given it back.
    #[inline]
    pub(crate) unsafe fn new(shared: &'a Shared, processor: &'a Processor) -> Self {
        Lease { shared, processor, stays_here: PhantomData }
    }

    #[inline]
    fn own(self) -> &'a Own {
        &self.processor.own
    }

    #[inline]
    pub(crate) fn counters(self) -> &'a Counters {
        &self.processor.open.counters
    }

    #[inline]
    pub(crate) fn queue(self) -> &'a Owner<Runnable> {
        &self.own().queue
    }

    pub(crate) fn cadence(self) -> &'a Cadence {
        &self.own().cadence
    }

    /// A task was woken by the one that runs: it takes the slot, the occupant the queue's tail.
    #[inline]
    pub(crate) fn wake(self, runnable: Runnable) {
        if !self.shared.config.wake_slot {
            return self.push(runnable);
        }
        match self.processor.open.slot.put(runnable) {
            None => self.call_watch(),
            Some(displaced) => {
                self.counters().slot_displacements.add(1);
                self.push(displaced);
            }
        }
    }

    /// To the queue's tail. Wakes nobody: the holder does, when a backlog lasts (see
    /// [`crate::backlog`]), or the ticker, when the holder does not come back to its queue.
    /// Without a ticker there is nobody but a thief, who is woken at once.
    #[inline]
    pub(crate) fn push(self, runnable: Runnable) {
        self.queue().push(runnable);
        self.call_watch();
    }

    /// A task was woken by what it waited for, on the processor `home`: it goes to the worker there,
    /// if there is one, else to the queue's tail here.
    #[inline]
    pub(crate) fn send_home(self, runnable: Runnable, home: usize) {
        match self.shared.processors.get(home) {
            Some(other) if home != self.processor.index && other.inbox.is_open() => {
                other.inbox.leave(runnable, |back| self.push(back));
            }
            _ => self.push(runnable),
        }
    }

    /// What others have left for this worker: the oldest, and the others to the queue.
    #[inline]
    pub(crate) fn pop_inbox(self) -> Option<Runnable> {
        let first = self.processor.inbox.pop(|runnable| self.queue().push(runnable))?;
        self.call_watch();
        Some(first)
    }

    /// This thread is about to give up the processor: what was left for it is in the queue.
    pub(crate) fn close_inbox(self) {
        self.processor.inbox.close(|runnable| self.queue().push(runnable));
    }

    /// A task that woke itself while it ran gives way to all others. If there are none it is next:
    /// nothing runs between here and the loop, so it need not go through the queue.
    #[inline]
    pub(crate) fn push_yielded(self, runnable: Runnable) {
        if self.queue().is_empty() {
            // The cell is empty: the loop looks into it before it runs anything.
            self.own().yielded.set(Some(runnable));
        } else {
            self.push(runnable);
        }
    }

    /// The task that just yielded, if it is alone on this processor. If it is not, or `stay` is
    /// false, it goes to the queue's tail.
    #[inline]
    pub(crate) fn take_yielded(self, stay: bool) -> Option<Runnable> {
        let runnable = self.own().yielded.take()?;
        if stay && self.processor.open.slot.is_empty() {
            return Some(runnable);
        }
        self.push(runnable);
        None
    }

    /// Sees to it that somebody looks after what this processor holds while a poll lasts. To be
    /// called after anything came into the slot or the queue.
    #[inline]
    pub(crate) fn call_watch(self) {
        if !self.own().watched.get() {
            self.watch();
        }
    }

    /// As [`call_watch`](Self::call_watch), where nothing is left behind if there is no ticker: a poll is to
    /// begin, which may last.
    #[inline]
    pub(crate) fn call_ticker(self) {
        if !self.own().watched.get() {
            self.rouse_ticker();
        }
    }

    #[cold]
    fn rouse_ticker(self) -> bool {
        // Asked once per lease: the ticker does not fall asleep while a processor is held.
        self.own().watched.set(self.shared.has_ticker() && self.shared.rouse_ticker());
        self.own().watched.get()
    }

    #[cold]
    fn watch(self) {
        if !self.rouse_ticker() && self.shared.idle.may_wake() {
            // Where no thread can be had, this one works on alone.
            let _ = self.shared.wake(1);
        }
    }

    /// The next runnable from the slot, on what is left of the slice.
    #[inline]
    pub(crate) fn next_in_slot(self) -> Option<Runnable> {
        let runnable = self.processor.open.slot.take()?;
        if self.slice_is_spent() {
            self.counters().slices_spent.add(1);
            self.queue().push(runnable);
            return None;
        }
        self.counters().slot_hits.add(1);
        Some(runnable)
    }

    #[inline]
    pub(crate) fn begin_slice(self) {
        self.own().slice.begin();
        self.own().asked.set(Asked::default());
        let over = &self.processor.verdict.slice_over;
        if over.load(Relaxed) {
            over.store(false, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn slice_is_spent(self) -> bool {
        self.processor.verdict.slice_over.load(Relaxed) || self.own().slice.is_spent(Instant::now)
    }

    /// Whether who asks is to give way, since the slice is spent.
    ///
    /// An `operation` of a descriptor or timer takes about a microsecond, and asks again when it is
    /// polled again: the first three of a slice go on, be it ever so short, and every fourth may come
    /// to read the clock. A task need not return because a part of it gives way: it may poll that
    /// part again, or the next one. So that none is barred for ever, once a part has given way a coin
    /// decides: each goes on in the end, and a task that goes on with whichever part is ready gives
    /// way as a whole.
    #[inline]
    pub(crate) fn is_to_give_way(self, operation: bool) -> bool {
        let Asked { mut operations, gave_way } = self.own().asked.get();
        operations = operations.wrapping_add(u32::from(operation));
        let asks = !operation || (operations >= FREE && (gave_way || operations % FREE == 0));
        let gives_way = asks && if gave_way { self.random(2) == 0 } else { self.slice_is_spent() };
        self.own().asked.set(Asked { operations, gave_way: gave_way || gives_way });
        if gives_way {
            self.counters().forced_yields.add(1);
        }
        gives_way
    }

    #[inline]
    pub(crate) fn run(self, runnable: Runnable) {
        self.begin_poll(runnable.metadata().identity);
        runnable.run();
    }

    #[inline]
    pub(crate) fn begin_poll(self, who: Identity) {
        self.processor.open.polled.store(who.to_word(), Relaxed);
        self.counters().polls.add(1);
    }

    /// What follows is no poll.
    pub(crate) fn begin_other(self) {
        self.processor.open.polled.store(Identity::NOBODY.to_word(), Relaxed);
        self.processor.open.others.add(1);
    }

    #[inline]
    pub(crate) fn backlog(self) -> &'a Backlog {
        &self.own().backlog
    }

    pub(crate) fn spin(self) -> &'a Adaptive {
        &self.own().spin
    }

    /// The evidence that this thread counts as searching, if it does.
    #[inline]
    pub(crate) fn take_searching(self) -> Option<Searching> {
        self.own().searching.take()
    }

    pub(crate) fn keep_searching(self, searching: Searching) {
        self.own().searching.set(Some(searching));
    }

    /// Whether no other worker is awake. Then one with nothing to do looks in at the reactor before it
    /// goes to sleep; otherwise it goes to sleep there, which costs no more if there is something
    /// already. Two that look in all the time keep two CPUs from whoever they serve, for small batches.
    pub(crate) fn is_alone(self) -> bool {
        self.shared.idle.held_processors() <= 1
    }

    /// Looks whether the reactor has anything. True if so: see [`take_due`](Self::take_due).
    pub(crate) fn look_at_reactor(self) -> bool {
        let mut due = self.own().due.borrow_mut();
        self.shared.reactor.look(&mut due);
        !due.is_empty()
    }

    /// Whether the reactor has collected timers and nothing else.
    pub(crate) fn has_timers_due(self) -> bool {
        self.own().due.borrow().is_timers()
    }

    pub(crate) fn has_due(self) -> bool {
        !self.own().due.borrow().is_empty()
    }

    pub(crate) fn take_due(self) -> Due {
        self.own().due.take()
    }

    /// Keeps the memory for the next time.
    pub(crate) fn keep_due(self, mut due: Due) {
        debug_assert!(due.is_empty() && !self.has_due());
        due.shrink();
        self.own().due.replace(due);
    }

    /// This thread just got the processor.
    pub(crate) fn begin(self, searching: Option<Searching>) {
        self.begin_other();
        self.processor.open.holder.store(ThreadNumber::mine().0, Relaxed);
        self.processor.inbox.open();
        self.own().searching.set(searching);
        self.own().watched.set(false);
        self.own().backlog.clear();
        self.own().cadence.pause();
    }

    /// A pseudo-random number below `bound` (xorshift: thieves must only differ).
    pub(crate) fn random(self, bound: usize) -> usize {
        let mut x = self.own().random.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.own().random.set(x);
        x as usize % bound
    }

    pub(crate) fn holds_work(self) -> bool {
        !self.processor.open.slot.is_empty() || !self.queue().is_empty()
    }
}
