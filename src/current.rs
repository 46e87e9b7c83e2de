//! This thread's place: which scheduler it works for, which processor it holds.
//! Knows nothing of how it got them.

use std::cell::{Cell, RefCell};
use std::ptr;

use crate::contain::contain;
use crate::processor::{Lease, Processor};
use crate::reactor::Due;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct This {
    /// Of the innermost frame; null outside.
    shared: Cell<*const Shared>,
    /// Held by the innermost frame; null if it has none.
    processor: Cell<*const Processor>,
    frame: Cell<*const Frame>,
    /// `enter` guards within the innermost frame.
    entered: Cell<bool>,
    /// The innermost frame is in the middle of a poll and has given its processor away.
    adrift: Cell<bool>,
    /// It is a `block_on` that polls its future, as far as anybody counts that.
    runs_main: Cell<bool>,
    unconstrained: Cell<bool>,
    /// This thread calls the wakers of timers and descriptors, in no task's poll: of one that was set
    /// on this processor.
    delivering: Cell<Option<usize>>,
    /// How often it was asked whether to give way without a slice.
    questions: Cell<u32>,
    /// Its number; zero until somebody asks.
    id: Cell<u64>,
}

thread_local! {
    // No destructor: usable from the destructors of other thread-locals.
    static THIS: This = const {
        This {
            shared: Cell::new(ptr::null()),
            processor: Cell::new(ptr::null()),
            frame: Cell::new(ptr::null()),
            entered: Cell::new(false),
            adrift: Cell::new(false),
            runs_main: Cell::new(false),
            unconstrained: Cell::new(false),
            delivering: Cell::new(None),
            questions: Cell::new(0),
            id: Cell::new(0),
        }
    };
    static ENTERED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// This thread's number, which no other has or had. Also while its thread-locals are destroyed.
#[inline]
pub(crate) fn thread_id() -> u64 {
    #[cold]
    fn first() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Relaxed) + 1;
        THIS.with(|this| this.id.set(id));
        id
    }
    let id = THIS.with(|this| this.id.get());
    if id == 0 { first() } else { id }
}

/// The processor of `shared` that this thread holds.
///
/// The pointer is only compared; what it points to is not touched unless it is held.
#[inline]
pub(crate) fn lease<'a>(shared: *const Shared) -> Option<Lease<'a>> {
    THIS.with(|this| {
        let processor = this.processor.get();
        if processor.is_null() || this.shared.get() != shared {
            return None;
        }
        // SAFETY: a non-null processor in the innermost frame was given to this thread and not
        // given back, and the frame keeps `shared` alive, processors included.
        Some(unsafe { Lease::new(&*shared, &*processor) })
    })
}

/// As [`lease`], of whichever scheduler this thread works for.
#[inline]
pub(crate) fn with_lease<R>(use_it: impl FnOnce(Option<Lease<'_>>) -> R) -> R {
    use_it(lease(THIS.with(|this| this.shared.get())))
}

/// What an embedded executor polls next in this poll has a timeslice of its own, as the tasks of a worker
/// have.
#[inline]
pub(crate) fn begin_slice() {
    if THIS.with(|this| !this.processor.get().is_null()) {
        with_lease(|lease| lease.into_iter().for_each(Lease::begin_slice));
    }
}

/// This thread holds that processor from now on, or none.
pub(crate) fn set_processor(processor: Option<&Processor>) {
    THIS.with(|this| this.processor.set(processor.map_or(ptr::null(), ptr::from_ref)));
}

/// One worker loop or `block_on` on this thread's stack.
struct Frame {
    shared: *const Shared,
    /// What the enclosing frame had when this one began.
    outer: Cell<Place>,
    parent: *const Frame,
}

#[derive(Clone, Copy)]
struct Place {
    shared: *const Shared,
    processor: *const Processor,
    entered: bool,
    adrift: bool,
    runs_main: bool,
    unconstrained: bool,
}

/// Runs `body` with `shared` as this thread's scheduler, without a processor at first.
/// `body` learns whether it is nested in another frame.
pub(crate) fn within<R>(shared: &Arc<Shared>, body: impl FnOnce(bool) -> R) -> R {
    struct Restore<'a>(&'a Frame);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            set_adrift(false);
            let outer = self.0.outer.get();
            THIS.with(|this| {
                this.adrift.set(outer.adrift);
                this.runs_main.set(outer.runs_main);
                this.shared.set(outer.shared);
                this.processor.set(outer.processor);
                this.entered.set(outer.entered);
                this.unconstrained.set(outer.unconstrained);
                this.frame.set(self.0.parent);
            });
        }
    }
    let frame = THIS.with(|this| Frame {
        shared: Arc::as_ptr(shared),
        outer: Cell::new(Place {
            shared: this.shared.replace(Arc::as_ptr(shared)),
            processor: this.processor.replace(ptr::null()),
            entered: this.entered.replace(false),
            adrift: this.adrift.replace(false),
            runs_main: this.runs_main.replace(false),
            unconstrained: this.unconstrained.replace(false),
        }),
        parent: this.frame.get(),
    });
    let nested = !frame.parent.is_null();
    THIS.with(|this| this.frame.set(&frame));
    let _restore = Restore(&frame);
    body(nested)
}

/// Walks the frames of this thread, the innermost first.
fn frames<R>(mut visit: impl FnMut(&Frame) -> Option<R>) -> Option<R> {
    let mut frame = THIS.with(|this| this.frame.get());
    while !frame.is_null() {
        // SAFETY: a frame outlives its place in this list, which `within` ends before it returns.
        let here = unsafe { &*frame };
        if let Some(found) = visit(here) {
            return Some(found);
        }
        frame = here.parent;
    }
    None
}

/// Whether this thread is in the middle of that scheduler's work.
pub(crate) fn is_inside(shared: &Shared) -> bool {
    frames(|frame| ptr::eq(frame.shared, shared).then_some(())).is_some()
}

/// Whether the innermost frame goes on with a poll without a processor. To its scheduler that is a job that
/// goes on while no worker runs.
pub(crate) fn set_adrift(adrift: bool) {
    let was = THIS.with(|this| this.adrift.replace(adrift));
    if was != adrift {
        // SAFETY: the innermost frame keeps its scheduler alive.
        let shared = THIS.with(|this| unsafe { &*this.shared.get() });
        if adrift {
            shared.outside.job_begins();
        } else {
            shared.outside.job_ends();
            shared.rouse_census();
        }
    }
}

/// The innermost frame is a `block_on` that polls its future from now on, or does not.
pub(crate) fn set_runs_main(runs: bool) {
    THIS.with(|this| this.runs_main.set(runs));
}

/// As how many jobs of that scheduler the enclosing frames count: their polls wait for what the innermost
/// one does.
pub(crate) fn outer_jobs(shared: &Shared) -> usize {
    let mut count = 0;
    frames(|frame| {
        let outer = frame.outer.get();
        if ptr::eq(outer.shared, shared) {
            count += usize::from(outer.adrift) + usize::from(outer.runs_main);
        }
        None::<()>
    });
    count
}

/// Gives back every processor that the frames around the innermost one hold: this thread is
/// about to block, or to work for the innermost one only.
pub(crate) fn give_up_outer(give_up: impl Fn(Lease<'_>)) {
    struct Restore(*const Processor);
    impl Drop for Restore {
        fn drop(&mut self) {
            THIS.with(|this| this.processor.set(self.0));
        }
    }
    // Whoever gives one up takes it for that of the innermost frame.
    let _restore = Restore(THIS.with(|this| this.processor.get()));
    frames(|frame| {
        let outer = frame.outer.get();
        if !outer.processor.is_null() {
            frame.outer.set(Place { processor: ptr::null(), adrift: true, ..outer });
            // SAFETY: the enclosing frame held it and keeps `outer.shared` alive; from now on it
            // finds that it holds none.
            let lease = unsafe { Lease::new(&*outer.shared, &*outer.processor) };
            lease.shared.outside.job_begins();
            give_up(lease);
        }
        None::<()>
    });
}

/// The scheduler that `spawn` means on this thread.
pub(crate) fn shared() -> Option<Arc<Shared>> {
    THIS.with(|this| {
        if this.entered.get() {
            // Out of reach only while this thread's own destructors run.
            ENTERED.try_with(|entered| entered.borrow().clone()).ok().flatten()
        } else {
            innermost()
        }
    })
}

/// The scheduler of the innermost frame.
pub(crate) fn innermost() -> Option<Arc<Shared>> {
    // SAFETY: the innermost frame keeps its scheduler alive.
    THIS.with(|this| unsafe { this.shared.get().as_ref() }.map(Shared::arc))
}

/// Whether a guard of [`enter`] overrides the innermost frame's scheduler: then the processor that
/// this thread holds is not of the scheduler that `spawn` means.
#[inline]
pub(crate) fn is_overridden() -> bool {
    THIS.with(|this| this.entered.get())
}

/// What was entered before.
#[derive(Debug)]
pub(crate) struct Entered {
    entered: bool,
    shared: Option<Arc<Shared>>,
}

/// Makes `shared` the scheduler that `spawn` means; [`leave`] wants back what this returns.
pub(crate) fn enter(shared: Arc<Shared>) -> Entered {
    let shared = ENTERED.with(|entered| entered.replace(Some(shared)));
    Entered { entered: THIS.with(|this| this.entered.replace(true)), shared }
}

pub(crate) fn leave(before: Entered) {
    THIS.with(|this| this.entered.set(before.entered));
    // Dropped outside of the cell's borrow.
    drop(ENTERED.try_with(|entered| entered.replace(before.shared)));
}

/// Sets whether cooperation is off, and returns what was set before.
pub(crate) fn set_unconstrained(on: bool) -> bool {
    THIS.with(|this| this.unconstrained.replace(on))
}

pub(crate) fn is_unconstrained() -> bool {
    THIS.with(|this| this.unconstrained.get())
}

/// Calls wakers that the reactor has collected: what they wake goes to a queue, not to the slot.
pub(crate) fn deliver(due: &mut Due) {
    let before = THIS.with(|this| this.delivering.get());
    due.drain(|waker, home| {
        THIS.with(|this| this.delivering.set(Some(home)));
        contain(|| waker.wake());
    });
    THIS.with(|this| this.delivering.set(before));
}

/// One more question whether to give way, on a thread without a processor. How many there were.
pub(crate) fn count_question() -> u32 {
    THIS.with(|this| {
        this.questions.set(this.questions.get().wrapping_add(1));
        this.questions.get()
    })
}

/// The processor on which the task was that is being woken by the reactor, if one is.
#[inline]
pub(crate) fn delivering() -> Option<usize> {
    THIS.with(|this| this.delivering.get())
}
