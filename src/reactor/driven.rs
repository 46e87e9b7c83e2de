//! The reactor itself; see the parent module for who drives it.

use std::io;
use std::sync::{OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::clock;
use crate::contain::contain;
use crate::park::{Bed, Sleeper};
use crate::reactor::alarm::Alarm;
use crate::reactor::descriptor::{Borrowed, Raw, raw};
use crate::reactor::poll::{Collected, Limit, Poll};
use crate::reactor::role::{Missed, Role};
use crate::reactor::source::Both;
use crate::reactor::sources::{self, Sources};
use crate::reactor::timers::{NEVER, Owner, Shard};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use crate::sync::{Arc, Mutex, lock};

/// More shards than this are not worth the driver's look at each.
const MOST_SHARDS: usize = 64;
/// Between two firings of timers: those that follow one another more closely fire together. A wake-up
/// by the clock costs up to 28 µs of CPU time on a virtual machine (benches/README.md), so that they
/// take a seventh of a core at most.
const REST: Duration = Duration::from_micros(200);
/// Events of a batch for which memory is kept.
const KEPT_DUE: usize = 1024;

/// A source, with its descriptor's number.
pub(crate) type Registered = sources::Registered<Waiter, Raw>;

/// Who waits for a source, and on which processor; [`NOWHERE`] if on none.
pub(crate) struct Waiter {
    pub(crate) waker: Waker,
    pub(crate) home: usize,
}

/// No processor.
pub(crate) const NOWHERE: usize = usize::MAX;

/// Wakers to be called, timers first, in the order of their deadlines.
#[derive(Default)]
pub(crate) struct Due {
    timers: Vec<(u64, Waker)>,
    sources: Vec<Waiter>,
    /// It counts as in hand.
    counted: bool,
}

impl Due {
    pub(crate) fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.sources.is_empty()
    }

    /// Whether the clock alone has brought them about.
    pub(crate) fn is_timers(&self) -> bool {
        !self.timers.is_empty() && self.sources.is_empty()
    }

    /// Hands them out, each with the processor on which it waited. One alone is best served at once,
    /// by whoever has it.
    pub(crate) fn drain(&mut self, mut wake: impl FnMut(Waker, usize)) {
        if !self.timers.is_empty() {
            self.timers.sort_by_key(|timer| timer.0);
            self.timers.drain(..).for_each(|(_, waker)| wake(waker, NOWHERE));
        }
        let alone = self.sources.len() == 1;
        if !self.sources.is_empty() {
            self.sources.drain(..).for_each(|waiter| {
                wake(waiter.waker, if alone { NOWHERE } else { waiter.home });
            });
        }
    }

    /// Gives back what a large batch took.
    pub(crate) fn shrink(&mut self) {
        self.timers.shrink_to(KEPT_DUE);
        self.sources.shrink_to(KEPT_DUE);
    }
}

/// What belongs to the role of the driver.
struct Part {
    collected: Option<Collected>,
    /// When timers fired for the last time.
    fired: u64,
}

impl Part {
    /// Before that moment, no timer fires again. Never zero.
    fn rested(&self) -> u64 {
        self.fired + REST.as_nanos() as u64
    }
}

pub(crate) struct Reactor {
    /// Made when something is waited for that needs it.
    poll: OnceLock<Poll>,
    making_poll: Mutex<()>,
    /// Somebody waits for the poller's descriptor: nothing may be left in it.
    is_shown: AtomicBool,
    sources: Sources<Waiter, Raw>,
    source_count: AtomicUsize,
    timers: Box<[Owner<Waker>]>,
    /// Who missed it may be gone when it is free; and a sleeper keeps its reactor.
    role: CachePadded<Role<Part, Weak<Sleeper>>>,
    alarm: CachePadded<Alarm>,
    /// Who sleeps here.
    sleeping: Mutex<Option<Arc<Sleeper>>>,
    closed: AtomicBool,
    /// Whether anybody wants to know what is in hand.
    counts: bool,
    /// How many threads that hold no processor have wakers in hand, or are about to.
    in_hand: AtomicUsize,
}

impl Reactor {
    pub(crate) fn new(processors: usize, counts: bool) -> Arc<Self> {
        let shards = processors.min(MOST_SHARDS);
        Arc::new(Reactor {
            poll: OnceLock::new(),
            making_poll: Mutex::new(()),
            is_shown: AtomicBool::new(false),
            sources: Sources::new(),
            source_count: AtomicUsize::new(0),
            timers: (0..shards).map(|_| Owner::new()).collect(),
            role: CachePadded::new(Role::new(Part { collected: None, fired: 0 })),
            alarm: CachePadded::new(Alarm::new()),
            sleeping: Mutex::new(None),
            closed: AtomicBool::new(false),
            counts,
            in_hand: AtomicUsize::new(0),
        })
    }

    /// The poller, made at the first call.
    fn poll(&self) -> io::Result<&Poll> {
        if let Some(poll) = self.poll.get() {
            return Ok(poll);
        }
        let _making = lock(&self.making_poll);
        if self.poll.get().is_none() {
            let poll = Poll::new().map_err(explain)?;
            let _ = self.poll.set(poll);
        }
        Ok(self.poll.get().expect("just made"))
    }

    /// The poller's own descriptor, which can be read from while it has events.
    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> io::Result<Borrowed<'_>> {
        let poll = self.poll()?;
        self.is_shown.store(true, Relaxed);
        Ok(poll.descriptor())
    }

    /// Ends a sleep in the poller; see [`crate::park`] for one in bed.
    pub(crate) fn notify(&self) {
        if let Some(poll) = self.poll.get() {
            poll.notify();
        }
    }

    fn wake_driver(&self) {
        // Cloned out of the lock: to unpark takes a system call.
        let sleeper = lock(&self.sleeping).clone();
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    // Sources.

    /// Registers a descriptor, in non-blocking mode.
    ///
    /// # Safety
    /// It must be [deregistered](Self::deregister) before it is closed.
    pub(crate) unsafe fn register(
        &self,
        descriptor: Borrowed<'_>,
    ) -> io::Result<(usize, Arc<Registered>)> {
        self.check_open()?;
        let first = self.poll.get().is_none();
        let poll = self.poll()?;
        if first {
            // Who sleeps here sleeps in bed. Even if what follows fails: the next is not the first.
            self.wake_driver();
        }
        let (key, registered) = self.sources.insert(raw(descriptor));
        // SAFETY: the caller deregisters it.
        if let Err(error) = unsafe { poll.add(descriptor, key) } {
            drop(self.sources.remove(key));
            return Err(error);
        }
        self.source_count.fetch_add(1, SeqCst);
        if self.closed.load(SeqCst) {
            self.deregister(descriptor, key)?;
            self.check_open()?;
        }
        Ok((key, registered))
    }

    pub(crate) fn deregister(&self, descriptor: Borrowed<'_>, key: usize) -> io::Result<()> {
        let deleted = self.poll()?.delete(descriptor);
        self.source_count.fetch_sub(1, SeqCst);
        let removed = self.sources.remove(key);
        // It may hold wakers.
        contain(|| drop(removed));
        deleted
    }

    /// An error if the runtime has stopped.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        if self.closed.load(Relaxed) {
            return Err(io::Error::other(
                "the runtime of this socket has stopped: make sockets on a runtime that lives on",
            ));
        }
        Ok(())
    }

    /// Whether a short count of a stream means that the next operation would block.
    pub(crate) fn tells_ends(&self) -> bool {
        self.poll.get().is_some_and(Poll::tells_ends)
    }

    /// Asks for the next events of a source, where the platform does not report all of them.
    /// Called with the source locked, so that the last to ask has the last word.
    pub(crate) fn arm(&self, key: usize, raw: Raw, wanted: Both) -> io::Result<()> {
        match self.poll.get() {
            Some(poll) if !poll.edge && wanted != Both::default() => {
                // SAFETY: a source that is waited for is registered.
                unsafe { poll.rearm(raw, key, wanted) }
            }
            _ => Ok(()),
        }
    }

    // Timers.

    /// The shard for timers that are armed on that processor.
    pub(crate) fn shard(&self, processor: usize) -> &Shard<Waker> {
        &self.timers[processor % self.timers.len()]
    }

    /// After a timer was armed that is the first of its shard: the driver may sleep too long.
    pub(crate) fn armed(&self, at: u64) {
        if self.alarm.is_late_for(at) {
            self.wake_driver();
        }
    }

    /// [`NEVER`] if no timer is armed; too early if the first was dropped.
    pub(crate) fn first_deadline(&self) -> u64 {
        self.timers.iter().map(|shard| shard.earliest()).min().unwrap_or(NEVER)
    }

    /// As [`first_deadline`](Self::first_deadline), but not before timers fire again.
    pub(crate) fn next_firing(&self) -> u64 {
        let first = self.first_deadline();
        match self.role.take() {
            Some(mut role) if first != NEVER => first.max(role.with(|part| part.rested())),
            _ => first,
        }
    }

    pub(crate) fn armed_timers(&self) -> usize {
        self.timers.iter().map(|shard| shard.len()).sum()
    }

    pub(crate) fn registered_sources(&self) -> usize {
        self.sources.len()
    }

    // Driving.

    /// Whether there is anything to wait for.
    pub(crate) fn is_used(&self) -> bool {
        self.source_count.load(Relaxed) > 0 || self.first_deadline() != NEVER
    }

    /// Whether a timer is armed, anybody waits for a source, or is about to be woken from here.
    pub(crate) fn is_waited_for(&self) -> bool {
        let sources =
            || self.sources.all().iter().any(|registered| registered.source.is_waited_for());
        // In this order: who takes a waker out counts as having some in hand before.
        self.armed_timers() > 0 || sources() || self.in_hand.load(SeqCst) > 0
    }

    /// The driver is about to take wakers out; [`delivered`](Self::delivered) once they are called.
    fn count(&self, due: &mut Due) {
        if self.counts && !due.counted {
            due.counted = true;
            self.in_hand.fetch_add(1, SeqCst);
        }
    }

    /// The wakers that [`sleep`](Self::sleep) has collected have been called. True if they had counted.
    pub(crate) fn delivered(&self, due: &mut Due) -> bool {
        let counted = std::mem::take(&mut due.counted);
        if counted {
            self.in_hand.fetch_sub(1, SeqCst);
        }
        counted
    }

    /// Whether there is, and somebody sleeps here.
    pub(crate) fn is_slept_in(&self) -> bool {
        self.alarm.is_set() && self.is_used()
    }

    /// Whether there is, and nobody sleeps here. To be asked after a fence.
    pub(crate) fn needs_driver(&self) -> bool {
        !self.alarm.is_set() && self.is_used()
    }

    /// Collects what is due by now, unless somebody else drives.
    pub(crate) fn look(&self, due: &mut Due) {
        let polls = self.source_count.load(Relaxed) > 0 || self.is_shown.load(Relaxed);
        let first = self.first_deadline();
        if !polls && first == NEVER {
            return;
        }
        let Some(mut role) = self.role.take() else { return };
        role.with(|part| {
            if polls {
                // A broken poller is found again by who sleeps in it.
                let _ = self.collect(part, Limit::Now, due, |_, _| ());
            }
            if first != NEVER {
                self.fire(part, due);
            }
        });
    }

    /// Sleeps: in the reactor if nobody else does, else in bed. Collects what is due afterwards.
    pub(crate) fn sleep(&self, bed: &Bed, due: &mut Due) {
        let role = match self.role.take() {
            Some(role) => Some(role),
            // Somebody sleeps here.
            None if self.alarm.is_set() => None,
            // Somebody only looks in, and may be busy for long afterwards: to be told then.
            None => self.role.take_or_be_told(|| Arc::downgrade(bed.sleeper())),
        };
        match role {
            Some(mut role) => {
                if role.with(|part| self.drive(part, bed, due)).is_err() && due.is_empty() {
                    drop(role);
                    // A broken poller must not become a busy loop: whoever has something to say
                    // unparks.
                    bed.sleep(Some(REST));
                }
            }
            None => bed.sleep(None),
        }
        if due.is_empty() {
            let _ = self.delivered(due);
        }
    }

    /// Sleeps in the poller, or in bed until a timer is due.
    fn drive(&self, part: &mut Part, bed: &Bed, due: &mut Due) -> io::Result<()> {
        *lock(&self.sleeping) = Some(bed.sleeper().clone());
        let until = self.alarm.set(part.rested(), || self.first_deadline());
        let timed = until < NEVER;
        let left = timed.then(|| Duration::from_nanos(until.saturating_sub(clock::now())));
        // Timers alone do without a poller if none can be had.
        let in_poller = self.poll.get().is_some() || (timed && self.poll().is_ok());
        let slept = if in_poller {
            let limit = match left {
                None => Limit::Never,
                Some(Duration::ZERO) => Limit::Now,
                Some(left) => Limit::Until { left, moment: until },
            };
            let mut slept = Ok(());
            bed.sleep_in(|| slept = self.collect(part, limit, due, Self::count));
            slept
        } else {
            bed.sleep(left);
            Ok(())
        };
        self.alarm.clear();
        *lock(&self.sleeping) = None;
        if timed {
            self.count(due);
            self.fire(part, due);
        }
        slept
    }

    fn collect(
        &self,
        part: &mut Part,
        limit: Limit,
        due: &mut Due,
        before: impl FnOnce(&Self, &mut Due),
    ) -> io::Result<()> {
        let poll = self.poll()?;
        let collected = part.collected.get_or_insert_with(Collected::new);
        poll.wait(collected, limit)?;
        before(self, due);
        self.sources.deliver(collected.iter(), &mut due.sources, |key, raw, wanted| {
            self.arm(key, *raw, wanted).is_ok()
        });
        Ok(())
    }

    fn fire(&self, part: &mut Part, due: &mut Due) {
        let now = clock::now();
        if now < part.rested() {
            return;
        }
        for shard in &self.timers {
            shard.fire(now, &mut due.timers);
        }
        if !due.timers.is_empty() {
            part.fired = now;
        }
    }

    /// The end: nobody waits here any more. Returns who did, to be woken.
    pub(crate) fn close(&self) -> Due {
        self.closed.store(true, SeqCst);
        let mut due = Due::default();
        for shard in &self.timers {
            due.timers.extend(shard.close().into_iter().map(|waker| (0, waker)));
        }
        let both = Both { read: true, write: true };
        for registered in self.sources.all() {
            registered.source.event(both, both, &mut due.sources, |_| true);
        }
        due
    }
}

impl Missed for Weak<Sleeper> {
    fn tell(self) {
        if let Some(sleeper) = self.upgrade() {
            sleeper.unpark();
        }
    }
}

/// Says how to mend it.
fn explain(error: io::Error) -> io::Error {
    let message = format!(
        "no poller could be made: {error}. Raise the limit on open files (`ulimit -n`), or close some"
    );
    io::Error::new(error.kind(), message)
}
