//! The loop of a thread that works: next, run, idle. Knows neither tasks nor wakers.

use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::current;
use crate::identity::Identity;
use crate::idle::{Closed, Searching};
use crate::park::{Bed, Mail};
use crate::processor::Lease;
use crate::reactor::Due;
use crate::search::{self, Alone};
use crate::shared::{Parked, Runnable, Shared};
use crate::spin::{self, Spun};
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, SeqCst},
    fence,
};
use crate::thread_state;

/// A single runnable in another's queue is stolen at the second look of who goes to sleep if there is
/// nothing: its owner was just about to take it, or is stuck.
const ONE_MORE_LOOK: u32 = 1;
/// Who spins looks every microsecond, and so would take from an owner in a poll of some microseconds what
/// is next there: two tasks that talk would be torn apart again and again (echo_1 took 2.4 times as long).
const SPINS_LOOKS: u32 = 16;

/// A thread that works for `shared` when it holds a processor, and else sleeps.
pub(crate) struct Worker<'a> {
    shared: &'a Arc<Shared>,
    bed: &'a Bed,
    /// Ends the work when it is set. None on a thread that lives for nothing else; the others are
    /// user threads in `block_on`.
    interrupt: Option<&'a AtomicBool>,
    /// In the idle list: leaves it by mail, or withdraws.
    listed: Cell<bool>,
    /// Since when there was nothing to do.
    idle_since: Cell<Option<Instant>>,
    /// What it last had to do came out of the reactor, and not from other workers or from outside.
    fed_by_reactor: Cell<bool>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        bed: &'a Bed,
        interrupt: Option<&'a AtomicBool>,
    ) -> Self {
        Worker {
            shared,
            bed,
            interrupt,
            listed: Cell::new(false),
            idle_since: Cell::new(None),
            fed_by_reactor: Cell::new(false),
        }
    }

    #[inline]
    fn is_interrupted(&self) -> bool {
        // Acquire: pairs with the release of whoever sets it.
        self.interrupt.is_some_and(|interrupt| interrupt.load(Acquire))
    }

    /// Runs tasks, at least one if there is any, until interrupted, until the runtime stops or, on a
    /// dedicated thread, until there are sleepers enough.
    pub(crate) fn work(&self) {
        // The processor is asked for anew after every poll: what is polled may give it away.
        while let Some(lease) = self.lease_or_wait() {
            let found = match next(lease) {
                Next::Runnable(runnable) => Some(runnable),
                Next::Due => None,
                Next::Nothing => self.search(lease),
                Next::Surplus => {
                    self.stand_down(lease);
                    continue;
                }
            };
            // After the look: who finds a task that was scheduled by the end sees the end.
            if self.shared.stop.is_closing() {
                found.into_iter().for_each(|runnable| lease.queue().push(runnable));
                let mut due = lease.take_due();
                retire(lease);
                return current::deliver(&mut due);
            }
            match found {
                Some(runnable) => {
                    settle(lease);
                    lease.run(runnable);
                }
                None if lease.has_due() => self.deliver(lease),
                None if self.is_interrupted() => {}
                None => {
                    lease.close_inbox();
                    if lease.holds_work() {
                        lease.processor.inbox.open();
                        continue;
                    }
                    // Listed from here on: only `wait` may look at what interrupts.
                    self.park(lease);
                    continue;
                }
            }
            if self.is_interrupted() {
                break;
            }
        }
        debug_assert!(!self.listed.get(), "whoever leaves has left the idle list");
        if let Some(lease) = self.lease() {
            lease.take_yielded(false);
            settle(lease);
        }
    }

    /// Runs what there is to run, and wakes what the reactor has, without waiting for more. Stops when
    /// `goes_on` says so. Whether there was anything; nothing also if the processor is in other hands. The
    /// thread keeps it: see [`leave`](Self::leave).
    pub(crate) fn take_turn(&self, goes_on: impl Fn() -> bool) -> bool {
        if self.lease().is_none() {
            self.acquire();
        }
        let mut found = false;
        while let Some(lease) = self.lease().filter(|_| !self.shared.stop.is_closing()) {
            match next(lease) {
                Next::Runnable(runnable) => {
                    settle(lease);
                    lease.run(runnable);
                }
                Next::Due => self.deliver(lease),
                Next::Nothing if lease.look_at_reactor() => self.deliver(lease),
                Next::Nothing | Next::Surplus => break,
            }
            found = true;
            if !goes_on() {
                break;
            }
        }
        found
    }

    /// What this thread polls itself from now on comes with a fresh slice.
    pub(crate) fn begin_main(&self, called_at: &'static Location<'static>) {
        if let Some(lease) = self.lease() {
            lease.begin_slice();
            lease.begin_poll(Identity::of(called_at));
        }
    }

    /// This thread stops working; see [`give_up`].
    pub(crate) fn leave(&self) {
        if let Some(lease) = self.lease() {
            lease.take_yielded(false);
            // Where nobody can be had, the work waits for the next turn.
            let _ = give_up(lease);
        }
    }

    #[inline]
    fn lease(&self) -> Option<Lease<'a>> {
        current::lease(Arc::as_ptr(self.shared))
    }

    #[inline]
    fn lease_or_wait(&self) -> Option<Lease<'a>> {
        let mut goes_on = true;
        loop {
            let lease = self.lease();
            if lease.is_some() || !goes_on {
                return lease;
            }
            goes_on = self.wait();
        }
    }

    /// Looks everywhere, for as long as the spin window allows. Leaves the processor counted as
    /// searching, unless enough others search. None also if the reactor has collected something.
    fn search(&self, lease: Lease<'_>) -> Option<Runnable> {
        let searching = lease.take_searching().or_else(|| lease.shared.idle.begin_search())?;
        lease.keep_searching(searching);
        lease.begin_other();
        // Where another one sleeps in the reactor, it gets what comes there.
        let in_vain = || self.fed_by_reactor.get() && lease.shared.reactor.is_slept_in();
        let window = match lease.shared.may_spin() && !in_vain() {
            true => lease.shared.config.spin.window(lease.spin()),
            false => Duration::ZERO,
        };
        let mut alone = Alone::after(if window.is_zero() { ONE_MORE_LOOK } else { SPINS_LOOKS });
        if let Some(runnable) = search::stolen(lease, &mut alone) {
            return Some(runnable);
        }
        let mut look = |may_drive: bool| {
            let found = lease
                .pop_inbox()
                .or_else(|| search::injected(lease, search::MOST_INJECTED))
                .or_else(|| search::stolen(lease, &mut alone));
            let done = found.is_some()
                || ((lease.is_alone() || may_drive) && lease.look_at_reactor())
                || self.is_interrupted();
            done.then_some(found)
        };
        let since = Instant::now();
        self.idle_since.set(Some(since));
        let found = if window.is_zero() {
            look(false)
        } else {
            let reactor = &lease.shared.reactor;
            let mut looks = 0;
            let look_on = || {
                looks += 1;
                // Who is busy may not come round to the reactor for long.
                let found = look(looks % SPINS_LOOKS == 0 && reactor.needs_driver());
                found.or_else(|| in_vain().then_some(None))
            };
            let spun = spin::spin(since, window, look_on, thread_state::lost_cpu);
            // For the last time: whose single runnable is still there is stuck, or was just about to take it.
            self.judge(lease, since, spun).or_else(|| {
                alone.settle_for(ONE_MORE_LOOK);
                search::stolen(lease, &mut alone).map(Some)
            })
        };
        let found = found.unwrap_or_else(|| search::left_behind(lease));
        if found.is_some() || lease.has_due() {
            self.idle_since.set(None);
            self.fed_by_reactor.set(found.is_none());
        }
        found
    }

    /// What a spin has come to.
    fn judge(
        &self,
        lease: Lease<'_>,
        since: Instant,
        spun: Spun<Option<Runnable>>,
    ) -> Option<Option<Runnable>> {
        lease.counters().spins.add(1);
        match spun {
            // Out of the way.
            Spun::Found(None) if !lease.has_due() && !self.is_interrupted() => None,
            Spun::Found(found) => {
                lease.counters().spins_won.add(1);
                lease.spin().went_well();
                lease.spin().waited((!lease.has_timers_due()).then(|| since.elapsed()));
                Some(found)
            }
            Spun::Nothing => {
                lease.spin().went_well();
                None
            }
            Spun::Descheduled => {
                lease.spin().descheduled();
                None
            }
        }
    }

    /// There is something to do again.
    fn learn(&self, lease: Lease<'_>, due: &Due) {
        self.fed_by_reactor.set(!due.is_empty());
        if let Some(since) = self.idle_since.take() {
            lease.spin().waited((!due.is_timers()).then(|| since.elapsed()));
        }
    }

    /// This thread holds the processor from now on.
    pub(crate) fn hold(&self, processor: usize, searching: Option<Searching>) {
        hold(self.shared, processor, searching);
    }

    /// Wakes what the reactor has collected.
    fn deliver(&self, lease: Lease<'_>) {
        // Before any user code runs: nobody is woken as long as this counts as searching.
        settle(lease);
        lease.begin_other();
        let mut due = lease.take_due();
        current::deliver(&mut due);
        // A waker is a user's code: the processor may be gone.
        if let Some(lease) = self.lease() {
            lease.keep_due(due);
        }
    }

    /// Takes an idle processor, if there is one.
    pub(crate) fn acquire(&self) {
        if let Some(processor) = self.shared.idle.acquire() {
            hold(self.shared, processor, None);
        }
    }

    /// There is nothing to do.
    fn park(&self, lease: Lease<'_>) {
        debug_assert!(!lease.holds_work(), "processor {}", lease.processor.index);
        lease.counters().parks.add(1);
        current::set_processor(None);
        self.listed.set(give_back(lease, Some(self.me())));
    }

    /// A spare worker that is one too many: what it has goes to the others.
    #[cold]
    fn stand_down(&self, lease: Lease<'_>) {
        debug_assert!(!lease.has_due(), "spare processor {}", lease.processor.index);
        lease.take_yielded(false);
        lease.close_inbox();
        settle(lease);
        let shared = self.shared;
        // As the owner, which no theft keeps from it.
        let own = || lease.processor.open.slot.take().or_else(|| Some(lease.queue().pop()?.0));
        std::iter::from_fn(own).for_each(|runnable| shared.injector.push(runnable));
        current::set_processor(None);
        match shared.idle.bench_held(lease.processor.index, self.me()) {
            Ok(()) => self.listed.set(true),
            Err(Closed) => retire(lease),
        }
        // Where no thread can be had, the work waits for the next worker.
        let _ = shared.wake(1);
    }

    fn me(&self) -> Parked {
        Parked(self.bed.sleeper().clone())
    }

    /// Sleeps until there is a processor, unless interrupted or closed; drives the reactor
    /// meanwhile, if nobody else does. False if there is nothing to wait for any more.
    #[cold]
    fn wait(&self) -> bool {
        // The poll in which the processor was given away is over.
        current::set_adrift(false);
        if !self.listed.get() && !self.enlist() {
            return false;
        }
        let mut goes_on = true;
        let mut due = Due::default();
        while self.listed.get() {
            match self.bed.take_mail() {
                Some(Mail::Processor(processor)) => {
                    self.listed.set(false);
                    self.hold(processor, Some(Searching::received()));
                }
                Some(Mail::Closed) => {
                    self.listed.set(false);
                    goes_on = false;
                }
                None if !due.is_empty() || self.is_interrupted() => {
                    if self.shared.idle.withdraw(&self.me()) {
                        self.listed.set(false);
                        self.acquire();
                        goes_on = !self.is_interrupted();
                    } else {
                        // It was chosen: mail is on its way.
                        self.bed.sleep(None);
                    }
                }
                None => self.shared.reactor.sleep(self.bed, &mut due),
            }
        }
        if let Some(lease) = self.lease() {
            self.learn(lease, &due);
        }
        if let Some(lease) = self.lease().filter(|_| !due.is_empty()) {
            settle(lease);
            if self.shared.hands_over_driving() {
                lease.counters().wakes.add(self.shared.wake(1).unwrap_or(0));
            }
        }
        current::deliver(&mut due);
        if self.shared.reactor.delivered(&mut due) {
            self.shared.rouse_census();
        }
        goes_on
    }

    /// Of a thread that gave its processor away, or never had one.
    fn enlist(&self) -> bool {
        self.acquire();
        if self.lease().is_some()
            || (self.interrupt.is_none() && self.shared.idle.has_enough_threads())
        {
            return false;
        }
        self.listed.set(self.shared.idle.park_thread(self.me()).is_ok());
        self.listed.get()
    }
}

/// What a worker does next.
enum Next {
    Runnable(Runnable),
    /// The reactor has collected something, which is to be woken first.
    Due,
    Nothing,
    /// A spare worker is not needed any more.
    Surplus,
}

/// The next runnable on this processor: from the slot while the slice lasts, else from the queue.
#[inline]
fn next(lease: Lease<'_>) -> Next {
    let polls = lease.counters().polls.get();
    let due = lease.cadence().is_due(polls);
    if let Some(runnable) = lease.take_yielded(!due) {
        lease.begin_slice();
        return Next::Runnable(runnable);
    }
    if let Some(runnable) = lease.next_in_slot() {
        return Next::Runnable(runnable);
    }
    // Whatever comes from elsewhere, here or out of a search, comes with a fresh slice.
    lease.begin_slice();
    if due {
        match look_up(lease, polls) {
            Next::Nothing => {}
            found => return found,
        }
    }
    let Some((runnable, left)) = lease.queue().pop() else {
        return match lease.pop_inbox().or_else(|| search::injected(lease, search::MOST_INJECTED)) {
            Some(runnable) => {
                lease.call_ticker();
                Next::Runnable(runnable)
            }
            None if lease.is_alone() && lease.look_at_reactor() => Next::Due,
            None => Next::Nothing,
        };
    };
    if left == 0 {
        lease.backlog().clear();
    } else if lease.shared.idle.may_wake() {
        mind_backlog(lease, left);
    }
    Next::Runnable(runnable)
}

/// Every so many polls, the reactor and injected work come before the queue.
#[cold]
fn look_up(lease: Lease<'_>, polls: u64) -> Next {
    let interval = lease.cadence().look_up(Instant::now(), polls);
    if lease.shared.is_surplus(lease.processor) {
        return Next::Surplus;
    }
    if lease.look_at_reactor() {
        return Next::Due;
    }
    // As many as have had their turns here since the last look: of a flood from outside and a queue that
    // never ends, neither starves. One each time would be 5,000 a second.
    if let Some(runnable) = search::injected(lease, interval as usize) {
        lease.call_ticker();
        return Next::Runnable(runnable);
    }
    lease.pop_inbox().map_or(Next::Nothing, Next::Runnable)
}

#[cold]
fn mind_backlog(lease: Lease<'_>, left: u32) {
    let helpers = lease.backlog().helpers(left, Instant::now);
    if helpers > 0 {
        let idle = &lease.shared.idle;
        // One at least, however many work: some may be blocked.
        let free = lease.shared.config.cpus.saturating_sub(idle.held_processors()).max(1);
        let wanted = helpers.min(free).min(idle.most_searchers());
        // Where no thread can be had, this one works on alone.
        lease.counters().wakes.add(lease.shared.wake(wanted).unwrap_or(0));
    }
}

/// The search is over; the last one to find something wakes the next to look for more, or to drive the
/// reactor where no ticker sees to that.
#[inline]
fn settle(lease: Lease<'_>) {
    if let Some(searching) = lease.take_searching() {
        let shared = lease.shared;
        lease.call_ticker();
        let more = || {
            !lease.queue().is_empty() || !shared.injector.is_empty() || shared.hands_over_driving()
        };
        if let Some(wake) = shared.idle.found(searching, more) {
            lease.counters().wakes.add(u64::from(shared.deliver(wake).is_ok()));
        }
    }
}

/// Puts a processor that this thread no longer calls its own among the idle ones, and `thread`
/// with it. False if the runtime is closed.
fn give_back(lease: Lease<'_>, thread: Option<Parked>) -> bool {
    let (shared, searching) = (lease.shared, lease.take_searching());
    let leaves = thread.is_none();
    // The host of a local runtime knows what it is to wait for.
    let drives = || leaves && !shared.is_local() && shared.reactor.needs_driver();
    let more = || !shared.injector.is_empty() || drives();
    match shared.idle.park(lease.processor.index, thread, searching, more) {
        Ok(wake) => {
            if let Some(wake) = wake {
                // Where no thread can be had, the work waits for the next worker.
                let _ = shared.deliver(wake);
            }
            true
        }
        Err(_) => {
            retire(lease);
            false
        }
    }
}

/// This thread stops working: its processor goes to another one with what it holds, or is idle.
/// The error is that of a thread that could not be started; then the work waits in the injector.
pub(crate) fn give_up(lease: Lease<'_>) -> io::Result<()> {
    lease.close_inbox();
    current::set_processor(None);
    settle(lease);
    if !lease.holds_work() {
        give_back(lease, None);
        return Ok(());
    }
    match lease.shared.idle.hand_over(lease.processor.index) {
        Ok(wake) => lease.shared.deliver(wake),
        Err(_) => {
            retire(lease);
            Ok(())
        }
    }
}

/// The runtime is closed: the processor goes out of service, and what is scheduled is dropped.
fn retire(lease: Lease<'_>) {
    lease.close_inbox();
    current::set_processor(None);
    lease.take_yielded(false);
    let shared = lease.shared.arc();
    drop(shared.retire(lease.processor));
    shared.drain();
}

/// This thread holds the processor from now on.
fn hold(shared: &Shared, processor: usize, searching: Option<Searching>) {
    current::set_processor(Some(&shared.processors[processor]));
    let lease = current::lease(shared).expect("just set");
    lease.begin(searching);
    // Ordering R2: store-load; the alarm was cleared before, the reactor is looked at after.
    // Pairs with A2 and R1: what was armed by one who still saw it set is seen here.
    fence(SeqCst);
    if shared.reactor.is_used() {
        // If a poll keeps it from looking, somebody else must drive.
        lease.call_watch();
    }
}

/// This thread, in the middle of a poll, had given up its processor: it takes an idle one, if there is one.
/// The poll, of whom it had noted down, goes on there.
pub(crate) fn take_back(polled: Identity) {
    let Some(shared) = current::innermost() else { return };
    if let Some(processor) = shared.idle.acquire() {
        hold(&shared, processor, None);
        current::set_adrift(false);
        let lease = current::lease(Arc::as_ptr(&shared)).expect("just acquired");
        lease.begin_poll(polled);
        lease.call_ticker();
    }
}
