//! A task of a local executor: its memory, its wakers and its handle.
//! Knows of its executor only the [`Home`] that it is scheduled in.
//!
//! All threads may have wakers and the handle; only the executor's polls, and only the executor drops
//! the future. On that thread nothing is atomic until the future is gone: state, count and joiner are
//! cells. Elsewhere there is the [`Ledger`].

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, needs_drop};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;

use crate::contain::contain;
use crate::current;
use crate::executor::home::Home;
use crate::executor::ledger::{Claim, Ledger, Reference};
use crate::executor::signal::Signal;
use crate::sync::Arc;
use crate::task::{Outcome, renew};

/// It is to be polled (again); unless it is running, it is in the slot or the queue.
const QUEUED: u8 = 1;
/// The executor has it in hands.
const RUNNING: u8 = 2;
/// The future is gone, the output is there.
const ENDED: u8 = 4;
/// The future is to be dropped.
const CANCELLED: u8 = 8;
/// The handle was dropped on this thread.
const ABANDONED: u8 = 16;
/// It has waited once, and is in the list of those.
const LISTED: u8 = 32;
/// It stands for the main future of a `run`, and is never in slot or queue.
const MAIN: u8 = 64;

pub(super) struct Header {
    /// The executor's thread. Only that one touches the cells below, and the others know it by this.
    owner: u64,
    vtable: &'static Vtable,
    /// Alive until the future is gone and every claim has been delivered.
    home: *const Home,
    spawned_at: &'static Location<'static>,
    state: Cell<u8>,
    /// The references that this thread has made, less those it has dropped. No use after the end.
    count: Cell<i32>,
    /// The next in the queue.
    pub(super) next: Cell<Option<Raw>>,
    /// The neighbours in the list of those that have waited.
    pub(super) older: Cell<Option<Raw>>,
    pub(super) newer: Cell<Option<Raw>>,
    /// Who awaits the task on this thread.
    joiner: Cell<Option<Waker>>,
    /// With who awaits it elsewhere: in a box, since that is rare and every task has room for it.
    ledger: Ledger<Box<Waker>>,
}

const _: () = assert!(size_of::<Header>() <= 96 || size_of::<usize>() != 8);
/// What the owner counts at most, up or down, before it carries that over to the ledger: references that
/// are made on its thread and dropped elsewhere, or the other way round, are as many as it likes.
const CARRY: i32 = if cfg!(test) { 3 } else { 1 << 16 };

/// What is done with a task whose types are forgotten. All on the executor's thread, but for the last.
struct Vtable {
    /// Polls. True if the future is gone and the output in its place.
    poll: unsafe fn(Raw) -> bool,
    /// Drops the future; an output that says so takes its place.
    cancel: unsafe fn(Raw),
    drop_output: unsafe fn(Raw),
    stage: usize,
    layout: Layout,
}

/// Read and written by pointers only.
#[allow(dead_code)]
union Stage<F, T> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Outcome<T>>,
}

#[repr(C)]
struct Memory<F, T> {
    header: Header,
    stage: UnsafeCell<Stage<F, T>>,
}

/// A pointer to a task. Whoever has one has a reference, or borrows that of somebody who does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Raw(NonNull<Header>);

// SAFETY: what is done with it elsewhere is atomic; see `Header`.
unsafe impl Send for Raw {}

impl<F: Future> Memory<F, F::Output> {
    const VTABLE: Vtable = Vtable {
        poll: Self::poll,
        cancel: Self::cancel,
        drop_output: Self::drop_output,
        stage: std::mem::offset_of!(Self, stage),
        layout: Layout::new::<Self>(),
    };

    fn future(task: Raw) -> *mut F {
        task.stage().cast()
    }

    fn output(task: Raw) -> *mut Outcome<F::Output> {
        task.stage().cast()
    }

    unsafe fn poll(task: Raw) -> bool {
        let future = Self::future(task);
        // A reference is borrowed for the time of the poll: not to be dropped.
        let waker = ManuallyDrop::new(task.waker());
        let mut cx = Context::from_waker(&waker);
        // SAFETY: the caller polls a task that has its future, which stays in this place until it is
        // dropped here; nobody else refers to it.
        let poll = || unsafe { Pin::new_unchecked(&mut *future).poll(&mut cx) };
        let result = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(payload),
        };
        // SAFETY: as above.
        unsafe { Self::replace(task, Outcome(Some(result))) };
        true
    }

    unsafe fn cancel(task: Raw) {
        // SAFETY: the caller's promise.
        unsafe { Self::replace(task, Outcome(None)) }
    }

    /// The future goes first: what it holds is free when somebody learns of the output.
    #[inline]
    unsafe fn replace(task: Raw, outcome: Outcome<F::Output>) {
        if needs_drop::<F>() {
            // SAFETY: the future is there, by the caller's promise, and is not used again.
            contain(|| unsafe { ptr::drop_in_place(Self::future(task)) });
        }
        // SAFETY: the memory is of the right size and alignment, and holds nothing.
        unsafe { Self::output(task).write(outcome) };
    }

    unsafe fn drop_output(task: Raw) {
        // SAFETY: the output is there, and the caller's, by its promise. It stays in place empty.
        drop(unsafe { (*Self::output(task)).0.take() }.map(|result| Outcome(Some(result))));
    }
}

/// Makes a task, with two references: the executor's and the handle's. It is alive, and nowhere yet.
///
/// # Safety
/// This is the thread of `home`, which came from [`Arc::as_ptr`] and lives until the task has ended and [`Raw::finish`] tells of no
/// claim, or the claim was delivered. The future lives no longer than what it borrows.
#[inline]
pub(super) unsafe fn make<F: Future>(
    home: *const Home,
    spawned_at: &'static Location<'static>,
    future: F,
) -> (Raw, Handle<F::Output>) {
    let layout = Layout::new::<Memory<F, F::Output>>();
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { alloc(layout) }.cast::<Memory<F, F::Output>>();
    let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
    let header = Header {
        owner: current::thread_id(),
        vtable: &Memory::<F, F::Output>::VTABLE,
        home,
        spawned_at,
        state: Cell::new(QUEUED),
        count: Cell::new(2),
        next: Cell::new(None),
        older: Cell::new(None),
        newer: Cell::new(None),
        joiner: Cell::new(None),
        ledger: Ledger::new(),
    };
    let task = Raw(memory.cast());
    // SAFETY: fresh memory of that layout; `repr(C)` puts the header first.
    unsafe {
        task.0.as_ptr().write(header);
        Memory::<F, F::Output>::future(task).write(future);
    }
    (task, Handle { task, output: PhantomData })
}

impl Raw {
    #[inline]
    pub(super) fn header<'a>(self) -> &'a Header {
        // SAFETY: whoever has a `Raw` keeps the memory, and asks no longer than that.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn stage(self) -> *mut () {
        // SAFETY: within the memory.
        unsafe { self.0.as_ptr().byte_add(self.header().vtable.stage).cast() }
    }

    #[inline]
    fn is(self, flags: u8) -> bool {
        self.header().state.get() & flags != 0
    }

    #[inline]
    fn set(self, flags: u8) {
        let state = &self.header().state;
        state.set(state.get() | flags);
    }

    #[inline]
    fn clear(self, flags: u8) {
        let state = &self.header().state;
        state.set(state.get() & !flags);
    }

    /// Whether this is the executor's thread.
    #[inline]
    fn is_here(self) -> bool {
        self.header().owner == current::thread_id()
    }

    fn home<'a>(self) -> &'a Home {
        // SAFETY: called by the executor, or for a task whose future is there; see `Header::home`.
        unsafe { &*self.header().home }
    }

    pub(super) fn is_main(self) -> bool {
        self.is(MAIN)
    }

    pub(super) fn spawned_at(self) -> &'static Location<'static> {
        self.header().spawned_at
    }

    /// What the executor does: a task out of the queue is polled, or dropped if it is cancelled.
    #[inline]
    pub(super) fn run(self) {
        debug_assert!(self.is(QUEUED) && !self.is(RUNNING | ENDED));
        let state = &self.header().state;
        state.set(state.get() & !QUEUED | RUNNING);
        let vtable = self.header().vtable;
        // SAFETY: the executor's thread has it in hands, and the future is there.
        if self.is(CANCELLED) || unsafe { !(vtable.poll)(self) } {
            if !self.is(CANCELLED) {
                return self.pause();
            }
            // SAFETY: as above.
            unsafe { (vtable.cancel)(self) };
        }
        self.finish();
    }

    /// Drops the future of a task that was in slot or queue.
    pub(super) fn end_queued(self) {
        self.set(CANCELLED);
        self.run();
    }

    /// Drops the future of a task that waits.
    pub(super) fn end(self) {
        debug_assert!(self.is(MAIN) || !self.is(QUEUED | RUNNING | ENDED));
        self.clear(RUNNING);
        self.set(QUEUED);
        self.end_queued();
    }

    /// It waits, or has yielded.
    #[inline]
    fn pause(self) {
        let home = self.home();
        self.clear(RUNNING);
        if !self.is(LISTED) {
            self.set(LISTED);
            home.link(self);
        }
        if self.is(QUEUED) {
            home.push(self);
        }
    }

    /// The future is gone. The executor's reference is gone when this returns.
    #[inline]
    fn finish(self) {
        let Header { vtable, joiner, state, count, ledger, .. } = self.header();
        let home = self.home();
        if self.is(LISTED) {
            home.unlink(self);
        }
        if !self.is(MAIN) {
            home.count_one_less();
        }
        let joiner = joiner.take();
        if self.is(ABANDONED) {
            // SAFETY: nobody else takes the output.
            unsafe { (vtable.drop_output)(self) };
        }
        // From here to the end in the ledger nobody else's code runs.
        state.set(ENDED);
        let end = ledger.end(count.get() as isize);
        if end.is_claimed {
            home.owe();
        }
        match end.reference {
            // SAFETY: it was the last.
            Reference::Last => unsafe { self.free() },
            Reference::Given => {}
            Reference::Kept => {
                if end.is_abandoned {
                    // SAFETY: nobody else takes it, and the reference keeps the memory.
                    unsafe { (vtable.drop_output)(self) };
                    contain(|| drop(end.waker));
                } else if let Some(waker) = end.waker {
                    contain(|| waker.wake());
                }
                self.release();
            }
        }
        if let Some(waker) = joiner {
            contain(|| waker.wake());
        }
    }

    /// On the executor's thread: the task is to be polled, or dropped.
    #[inline]
    fn wake_here(self) {
        if self.is(QUEUED | ENDED) {
            return;
        }
        self.set(QUEUED);
        if !self.is(RUNNING | MAIN) {
            self.home().wake(self);
        } else if !self.is(RUNNING) {
            self.call_run();
        }
    }

    #[inline]
    fn cancel_here(self) {
        self.set(CANCELLED);
        if !self.is(QUEUED | RUNNING | ENDED) {
            self.set(QUEUED);
            self.home().push_and_call(self);
        }
    }

    /// The executor takes an entry out of its inbox. True if its task had ended already.
    pub(super) fn accept(self) -> bool {
        if self.is(ENDED) {
            self.release();
            return true;
        }
        let header = self.header();
        let entry = header.ledger.accept();
        // The entry's reference; the executor has its own.
        self.count(-1);
        if entry.is_cancelled() {
            self.set(CANCELLED);
        }
        if !self.is(QUEUED) {
            self.set(QUEUED);
            if !self.is(RUNNING | MAIN) {
                self.home().push(self);
            } else if !self.is(RUNNING) {
                self.call_run();
            }
        }
        false
    }

    #[cold]
    fn call_run(self) {
        debug_assert!(self.is(MAIN) && !self.is(ENDED));
        // SAFETY: what stands for a main future has this as its own, until its end.
        let signal = unsafe { &*self.stage().cast::<Called>() }.0.clone();
        contain(|| signal.call());
    }

    /// One reference less, of those that the ledger counts.
    fn release(self) {
        if self.header().ledger.release() {
            // SAFETY: it was the last.
            unsafe { self.free() };
        }
    }

    /// # Safety
    /// There is no other reference.
    unsafe fn free(self) {
        let layout = self.header().vtable.layout;
        // The joiners' wakers have been taken at the end, the output by who had it then.
        // SAFETY: `make` allocated it so.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) };
    }

    /// One reference more, on any thread.
    #[inline]
    fn refer(self) {
        let header = self.header();
        if !self.is_here() || self.is(ENDED) {
            return header.ledger.refer();
        }
        self.count(1);
    }

    /// The owner counts one reference more or less.
    #[inline]
    fn count(self, change: i32) {
        let header = self.header();
        let count = header.count.get() + change;
        if count.abs() < CARRY {
            header.count.set(count);
        } else {
            header.count.set(0);
            header.ledger.carry(count as isize);
        }
    }

    /// One reference less, on any thread.
    #[inline]
    fn unrefer(self) {
        if !self.is_here() || self.is(ENDED) {
            return self.release();
        }
        self.count(-1);
    }

    /// Elsewhere: a wake, with a reference if there is one to be given away.
    #[cold]
    fn wake_elsewhere(self, owned: bool) {
        if self.header().ledger.wake() == Claim::Mine {
            if !owned {
                self.header().ledger.refer();
            }
            self.deliver();
        } else if owned {
            self.release();
        }
    }

    /// Puts a claimed task into the inbox, with one reference.
    fn deliver(self) {
        Home::deliver(self.header().home, self);
    }

    /// A waker for one reference.
    fn waker(self) -> Waker {
        // SAFETY: the functions keep the contract: any thread may call them, each waker has a
        // reference, which keeps the memory.
        unsafe { Waker::new(self.0.as_ptr().cast_const().cast(), &WAKER) }
    }

    /// # Safety
    /// `data` is that of a waker of such a task.
    #[inline]
    unsafe fn of_waker(data: *const ()) -> Self {
        // SAFETY: `waker` put in a pointer that is not null.
        Raw(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) })
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: called by a waker of ours.
    unsafe { Raw::of_waker(data) }.refer();
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: as above.
    let task = unsafe { Raw::of_waker(data) };
    if task.is_here() {
        task.wake_here();
        task.unrefer();
    } else {
        task.wake_elsewhere(true);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: as above.
    let task = unsafe { Raw::of_waker(data) };
    if task.is_here() {
        task.wake_here();
    } else {
        task.wake_elsewhere(false);
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: as above.
    unsafe { Raw::of_waker(data) }.unrefer();
}

/// The future of what stands for a main future; nobody polls it.
struct Called(Arc<Signal>);

impl Future for Called {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// What stands for the main future of a `run`: its wakers are those of a task, so that they cost no
/// more on the executor's thread. While the run is being polled it is marked as running, and otherwise
/// a wake calls the run.
pub(super) struct Main(Raw);

impl Main {
    /// Woken at first.
    ///
    /// # Safety
    /// As of [`make`]; and it is dropped before the executor's end, or never touched again.
    pub(super) unsafe fn new(home: &Arc<Home>, signal: Arc<Signal>) -> Self {
        // SAFETY: the caller's promise.
        let (task, handle) = unsafe { make(Arc::as_ptr(home), Location::caller(), Called(signal)) };
        // The executor's reference is the only one at first.
        let _handle = ManuallyDrop::new(handle);
        task.header().count.set(1);
        task.set(MAIN | ABANDONED | LISTED);
        home.link(task);
        Main(task)
    }

    /// The run is being polled from now on: it looks itself whether the main future was woken.
    #[inline]
    pub(super) fn begin(&self) {
        self.0.set(RUNNING);
    }

    /// It is not, any more: a wake calls it.
    pub(super) fn pause(&self) {
        self.0.clear(RUNNING);
    }

    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.0.is(QUEUED)
    }

    /// The main future is to be polled, with that waker.
    #[inline]
    pub(super) fn take_woken(&self) -> Option<ManuallyDrop<Waker>> {
        let woken = self.is_woken();
        self.0.clear(QUEUED);
        // Borrowed: the executor's reference is there until the end.
        woken.then(|| ManuallyDrop::new(self.0.waker()))
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A task's handle. Dropping it cancels the task.
pub(crate) struct Handle<T> {
    task: Raw,
    output: PhantomData<T>,
}

// SAFETY: away from the executor's thread it touches the ledger and the output, which is then its own.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: as above; through a shared reference nothing but `is_finished` can be called.
unsafe impl<T> Sync for Handle<T> {}
/// The output is somewhere else.
impl<T> Unpin for Handle<T> {}

impl<T> Handle<T> {
    fn ledger(&self) -> &Ledger<Box<Waker>> {
        &self.task.header().ledger
    }

    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        if self.task.is_here() { self.task.is(ENDED) } else { self.ledger().has_ended() }
    }

    /// The output of a task that has ended; none if there is none (any more).
    #[inline]
    fn take_output(&mut self) -> Option<thread::Result<T>> {
        debug_assert!(self.is_finished());
        // SAFETY: it has ended, and so the output is there and the handle's.
        unsafe { (*self.task.stage().cast::<Outcome<T>>()).0.take() }
    }

    /// The output, or none if the task was cancelled.
    #[inline]
    pub(crate) fn poll_join(&mut self, cx: &mut Context<'_>) -> Poll<Option<thread::Result<T>>> {
        if !self.task.is_here() {
            return self.poll_elsewhere(cx);
        }
        let joiner = &self.task.header().joiner;
        if !self.task.is(ENDED) {
            // User code, which may run the executor: before the look that counts.
            let waker = renew(joiner.take(), cx.waker());
            if !self.task.is(ENDED) {
                joiner.set(Some(waker));
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take_output())
    }

    #[cold]
    fn poll_elsewhere(&mut self, cx: &mut Context<'_>) -> Poll<Option<thread::Result<T>>> {
        // SAFETY: the one handle, borrowed mutably.
        let waits = !self.ledger().has_ended()
            && unsafe {
                self.ledger().wait(|old| Box::new(renew(old.map(|old| *old), cx.waker())))
            };
        if waits { Poll::Pending } else { Poll::Ready(self.take_output()) }
    }

    /// The future is to be dropped. The handle still waits for that.
    pub(crate) fn cancel(&self) {
        if self.task.is_here() {
            self.task.cancel_here();
        } else if self.ledger().cancel() == Claim::Mine {
            self.ledger().refer();
            self.task.deliver();
        }
    }

    pub(crate) fn detach(self) {
        let this = ManuallyDrop::new(self);
        if this.task.is_here() {
            this.leave_here(false);
        } else if this.ledger().detach() {
            this.leave_ended();
        } else {
            this.task.release();
        }
    }

    /// The handle goes, on the executor's thread.
    #[inline]
    fn leave_here(&self, cancels: bool) {
        if self.task.is(ENDED) {
            return self.leave_ended();
        }
        self.task.set(ABANDONED);
        let joiner = self.task.header().joiner.take();
        if cancels {
            self.task.cancel_here();
        }
        self.task.unrefer();
        contain(|| drop(joiner));
    }

    /// The handle of a task that has ended goes.
    fn leave_ended(&self) {
        // SAFETY: it has ended, so the output is there and the handle's.
        let outcome = unsafe { &mut *self.task.stage().cast::<Outcome<T>>() }.0.take();
        self.task.release();
        drop(Outcome(outcome));
    }
}

impl<T> Drop for Handle<T> {
    #[inline]
    fn drop(&mut self) {
        if self.task.is_here() {
            return self.leave_here(true);
        }
        match self.ledger().abandon() {
            // The handle's reference is the entry's.
            Claim::Mine => self.task.deliver(),
            Claim::Others => self.task.release(),
            Claim::Ended => self.leave_ended(),
        }
    }
}
