//! Where the tasks of one local executor are: its wake slot, its queue, the list of those that have
//! waited, and the inbox for what comes from other threads.
//! Knows nothing of the loop that runs them; see [`crate::executor::local`].

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::contain::contain;
use crate::current;
use crate::executor::local_task::Raw;
use crate::executor::quantum::Quantum;
use crate::executor::remote::Remote;
use crate::executor::signal::Signal;
use crate::slice::Slice;
use crate::sync::Arc;

/// Who is called when there is something to do.
#[derive(Clone)]
pub(super) enum Listed {
    Run(Arc<Signal>),
    /// The one callback of [`on_ready`](crate::LocalExecutor::on_ready).
    Host(Arc<dyn Fn() + Send + Sync>),
}

impl Listed {
    pub(super) fn call(self) {
        match self {
            Listed::Run(signal) => contain(|| signal.call()),
            Listed::Host(callback) => {
                contain(|| callback());
                // It may be the last to hold it.
                contain(|| drop(callback));
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Listed::Run(one), Listed::Run(other)) => Arc::ptr_eq(one, other),
            (Listed::Host(_), Listed::Host(_)) => true,
            _ => false,
        }
    }

    /// Whether it only tells a host, and does not look for work itself: then a run is called beside it.
    fn is_host(&self) -> bool {
        matches!(self, Listed::Host(_))
    }
}

/// All but `remote` is the executor's thread's alone.
pub(super) struct Home {
    wake_slot: bool,
    slot: Cell<Option<Raw>>,
    first: Cell<Option<Raw>>,
    last: Cell<Option<Raw>>,
    /// The latest of those that have waited.
    newest: Cell<Option<Raw>>,
    /// How many futures there are.
    alive: Cell<usize>,
    /// How many claims of tasks that have ended are still to be taken out of the inbox.
    owed: Cell<usize>,
    /// A task is being polled.
    polling: Cell<bool>,
    /// Somebody will look into slot and queue without being called.
    awake: Cell<bool>,
    /// Somebody may be in the list of whom to call.
    has_listed: Cell<bool>,
    polls: Cell<u64>,
    quantum: Quantum,
    /// Something that came from elsewhere may still be in the queue.
    brought: Cell<bool>,
    slice: Slice,
    host: RefCell<Option<Listed>>,
    remote: Remote<Raw, Listed>,
    /// The memory of an inbox that was taken, for the next.
    taken: Cell<Vec<Raw>>,
}

// SAFETY: other threads have it only through `Home::deliver`, which touches `remote` alone; and if they
// are the last to let go of it, the executor has left nothing in the cells.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    pub(super) fn new(wake_slot: bool, timeslice: Duration) -> Arc<Self> {
        Arc::new(Home {
            wake_slot,
            slot: Cell::new(None),
            first: Cell::new(None),
            last: Cell::new(None),
            newest: Cell::new(None),
            alive: Cell::new(0),
            owed: Cell::new(0),
            polling: Cell::new(false),
            awake: Cell::new(false),
            has_listed: Cell::new(false),
            polls: Cell::new(0),
            quantum: Quantum::new(),
            brought: Cell::new(false),
            slice: Slice::new(timeslice),
            host: RefCell::new(None),
            remote: Remote::new(),
            taken: Cell::default(),
        })
    }

    /// Elsewhere: a task that this thread has claimed, with one reference.
    pub(super) fn deliver(this: *const Home, task: Raw) {
        // SAFETY: it is alive: the executor waits for the claim before it lets go of it; and came from
        // an `Arc`.
        let home = unsafe {
            Arc::increment_strong_count(this);
            Arc::from_raw(this)
        };
        home.remote.leave(task, Listed::is_host).for_each(Listed::call);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alive.get() == 0
    }

    /// A new task.
    #[inline]
    pub(super) fn spawn(&self, task: Raw) {
        self.alive.set(self.alive.get() + 1);
        self.push_and_call(task);
    }

    #[inline]
    pub(super) fn count_one_less(&self) {
        self.alive.set(self.alive.get() - 1);
    }

    #[cold]
    pub(super) fn owe(&self) {
        self.owed.set(self.owed.get() + 1);
    }

    /// A task that is to be polled: to the slot if another is being polled, else to the queue's tail.
    #[inline]
    pub(super) fn wake(&self, task: Raw) {
        if !self.polling.get() {
            self.push_and_call(task);
        } else if !self.wake_slot {
            self.push(task);
        } else if let Some(displaced) = self.slot.replace(Some(task)) {
            self.push(displaced);
        }
    }

    #[inline]
    pub(super) fn push_and_call(&self, task: Raw) {
        self.push(task);
        if !self.awake.get() {
            self.call_one();
        }
    }

    /// To the queue's tail.
    #[inline]
    pub(super) fn push(&self, task: Raw) {
        debug_assert!(task.header().next.get().is_none());
        match self.last.replace(Some(task)) {
            Some(last) => last.header().next.set(Some(task)),
            None => self.first.set(Some(task)),
        }
    }

    #[inline]
    fn pop(&self) -> Option<Raw> {
        let task = self.first.get()?;
        let next = task.header().next.take();
        self.first.set(next);
        if next.is_none() {
            self.last.set(None);
        }
        Some(task)
    }

    /// The task has waited for the first time.
    #[inline]
    pub(super) fn link(&self, task: Raw) {
        let older = self.newest.replace(Some(task));
        task.header().older.set(older);
        if let Some(older) = older {
            older.header().newer.set(Some(task));
        }
    }

    #[inline]
    pub(super) fn unlink(&self, task: Raw) {
        let (older, newer) = (task.header().older.get(), task.header().newer.get());
        match newer {
            Some(newer) => newer.header().older.set(older),
            None => self.newest.set(older),
        }
        if let Some(older) = older {
            older.header().newer.set(newer);
        }
    }

    /// Those that have waited, the latest first.
    pub(super) fn waited(&self) -> impl Iterator<Item = Raw> {
        let all = std::iter::successors(self.newest.get(), |task| task.header().older.get());
        all.filter(|task| !task.is_main())
    }

    /// Runs one task, if there is any.
    #[inline]
    pub(super) fn run_one(&self) -> bool {
        let Some(task) = self.next() else { return false };
        let outer = self.polling.replace(true);
        task.run();
        self.polling.set(outer);
        self.count_poll();
        true
    }

    /// Somebody's code has run, and may have called `rest` for another run.
    #[inline]
    pub(super) fn count_poll(&self) {
        self.awake.set(true);
        self.polls.set(self.polls.get() + 1);
    }

    #[inline]
    fn next(&self) -> Option<Raw> {
        if let Some(task) = self.slot.take() {
            if !self.slice.is_spent(Instant::now) {
                return Some(task);
            }
            self.push(task);
        }
        self.slice.begin();
        current::begin_slice();
        self.pop().or_else(|| self.next_from_elsewhere())
    }

    #[inline]
    fn next_from_elsewhere(&self) -> Option<Raw> {
        if self.remote.seems_empty() {
            return None;
        }
        self.take_inbox();
        self.pop()
    }

    #[cold]
    fn take_inbox(&self) {
        let mut entries = self.taken.take();
        self.remote.take(&mut entries);
        self.brought.set(true);
        for task in entries.drain(..) {
            if task.accept() {
                self.owed.set(self.owed.get() - 1);
            }
        }
        self.taken.set(entries);
    }

    /// Whether it is time to give way, or to look up from the queue.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.quantum.is_due(self.polls.get()) && self.is_over()
    }

    #[cold]
    fn is_over(&self) -> bool {
        self.quantum.is_over(Instant::now, self.polls.get())
    }

    /// Whoever is polled next looks up if it gave way, and has a quantum of its own.
    pub(super) fn give_way(&self) {
        self.quantum.begin(None, self.polls.get());
        self.pass_on();
    }

    #[cold]
    pub(super) fn look_up(&self) {
        self.quantum.begin(Some(Instant::now()), self.polls.get());
        if !self.remote.seems_empty() {
            self.take_inbox();
        }
        // However long slices are: what came from elsewhere comes one nearer at each look up.
        if self.first.get().is_none() {
            self.brought.set(false);
        } else if self.brought.get() {
            self.slot.take().into_iter().for_each(|task| self.push(task));
        }
    }

    /// Whether there is something to run.
    pub(super) fn has_work(&self) -> bool {
        self.slot_is_full() || self.first.get().is_some() || !self.remote.seems_empty()
    }

    fn slot_is_full(&self) -> bool {
        let task = self.slot.take();
        self.slot.set(task);
        task.is_some()
    }

    /// Somebody looks for work from now on.
    #[inline]
    pub(super) fn wake_up(&self) {
        self.awake.set(true);
    }

    /// Nobody does any more, or not until polled again.
    #[inline]
    pub(super) fn fall_asleep(&self) {
        self.awake.set(false);
        self.quantum.pause();
    }

    /// `who` has found nothing to do and is to be called. False if there is something.
    #[cold]
    pub(super) fn list(&self, who: Listed) -> bool {
        self.has_listed.set(true);
        !self.has_work() && self.remote.list(who, Listed::is_same)
    }

    pub(super) fn unlist(&self, who: &Listed) {
        if self.has_listed.get() {
            drop(self.remote.unlist(|other| who.is_same(other)));
        }
    }

    /// Calls one of those that have nothing to do.
    #[inline]
    fn call_one(&self) {
        if self.has_listed.get() {
            self.call_listed();
        }
    }

    #[cold]
    fn call_listed(&self) {
        let (listed, more) = self.remote.next_listed(Listed::is_host);
        self.has_listed.set(more);
        listed.for_each(Listed::call);
    }

    /// Somebody stops to look for work: if there is any, another is called.
    pub(super) fn pass_on(&self) {
        self.fall_asleep();
        if self.has_work() {
            self.call_one();
        }
    }

    /// Calls `callback` when there is something to do: once, after each [`arm`](Self::arm).
    pub(super) fn set_host(&self, callback: Arc<dyn Fn() + Send + Sync>) {
        let host = Listed::Host(callback);
        self.unlist(&host);
        let before = self.host.replace(Some(host));
        contain(|| drop(before));
    }

    /// Lists the callback, if there is one. False if there is something to do already.
    pub(super) fn arm(&self) -> bool {
        let host = self.host.borrow().clone();
        match host {
            Some(host) => self.list(host),
            None => !self.has_work(),
        }
    }

    /// The host is here, and need not be called.
    pub(super) fn disarm(&self) {
        let host = self.host.borrow().clone();
        if let Some(host) = host {
            self.unlist(&host);
        }
    }

    pub(super) fn call_host(&self) {
        let host = self.host.borrow().clone();
        if let Some(host) = host {
            host.call();
        }
    }

    /// Drops all futures, and waits until no other thread is about to put a task into the inbox.
    pub(super) fn close(&self) {
        // Nobody is to be called.
        self.wake_up();
        loop {
            if let Some(task) = self.slot.take().or_else(|| self.pop()) {
                task.end_queued();
            } else if let Some(task) = self.newest.get() {
                // Whoever is in the list and not in the queue waits.
                task.end();
            } else {
                break;
            }
        }
        debug_assert!(self.is_empty());
        self.remote.close(self.owed.take(), |task| {
            let has_ended = task.accept();
            debug_assert!(has_ended);
            1
        });
        let host = self.host.take();
        contain(|| drop(host));
        drop(self.taken.take());
    }
}
