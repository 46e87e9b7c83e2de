//! Who awaits a task: at most one waker, left by the task's handle, taken by the task at its end.
//! Knows nothing of outputs. Cheaper than async-task's own awaiter by two locked operations, and
//! a waker that panics is the caller's to contain, not an abort.

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU8, Ordering::*};

/// No waker; only the handle leaves this state, or the task's end.
const NOBODY: u8 = 0;
/// A waker is in the cell; whoever leaves this state owns the cell.
const WAITING: u8 = 1;
/// The task has ended, or is about to.
const DONE: u8 = 2;
/// The handle has gone and nobody will ever wait.
const DETACHED: u8 = 3;

pub(crate) struct Joiner<W> {
    state: AtomicU8,
    waker: UnsafeCell<Option<W>>,
}

// SAFETY: the cell is touched by the handle in `NOBODY` and by whoever left `WAITING`.
unsafe impl<W: Send> Send for Joiner<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Sync for Joiner<W> {}

impl<W> Joiner<W> {
    pub(crate) fn new() -> Self {
        Joiner { state: AtomicU8::new(NOBODY), waker: UnsafeCell::new(None) }
    }

    /// Leaves a waker: `renew` makes it from the one that was left before, if any. False if the
    /// task has ended or is about to; then nobody will be woken.
    ///
    /// # Safety
    /// Only the one handle of the task calls this, from one thread at a time.
    #[inline]
    pub(crate) unsafe fn wait(&self, renew: impl FnOnce(Option<W>) -> W) -> bool {
        let mut before = None;
        match self.state.load(Relaxed) {
            NOBODY => {}
            // Ordering W1: acquire only pairs with this handle's own W2; the cell is its own again.
            WAITING if self.state.compare_exchange(WAITING, NOBODY, Acquire, Relaxed).is_ok() => {
                // SAFETY: this exchange left `WAITING`.
                before = self.waker.with_mut(|waker| unsafe { (*waker).take() });
            }
            _ => return false,
        }
        let waker = renew(before);
        // SAFETY: the state is `NOBODY` or `DONE`, and in both the task does not touch the cell.
        self.waker.with_mut(|cell| unsafe { *cell = Some(waker) });
        // Ordering W2: release; pairs with W3, so that the task sees the waker. If the task's end
        // came first, acquire its doings.
        if self.state.compare_exchange(NOBODY, WAITING, Release, Acquire).is_ok() {
            return true;
        }
        // SAFETY: the end came in `NOBODY`: the cell stays the handle's.
        drop(self.waker.with_mut(|waker| unsafe { (*waker).take() }));
        false
    }

    /// The task has ended, or is about to, so that who is woken now waits a moment at most.
    /// Only the task calls this. Calls after the first do nothing.
    #[inline]
    pub(crate) fn finish(&self) -> Option<W> {
        if self.state.load(Relaxed) >= DONE {
            return None;
        }
        // Ordering W3: acquire; pairs with W2. Release; pairs with W2's failure.
        if self.state.swap(DONE, AcqRel) != WAITING {
            return None;
        }
        // SAFETY: this swap left `WAITING`.
        self.waker.with_mut(|waker| unsafe { (*waker).take() })
    }

    /// The handle will not wait any more; spares the task a locked operation.
    #[inline]
    pub(crate) fn detach(&self) {
        if self.state.load(Relaxed) == NOBODY {
            // The task may have come to its end meanwhile; it makes no difference to anybody.
            self.state.store(DETACHED, Relaxed);
        }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_waker_is_taken_at_the_end_and_none_is_left_after_it() {
        let joiner = Joiner::new();
        // SAFETY: one handle.
        unsafe {
            assert!(joiner.wait(|before: Option<u32>| before.unwrap_or(1)));
            assert!(joiner.wait(|before| before.unwrap() + 1));
            assert_eq!(joiner.finish(), Some(2));
            assert!(!joiner.wait(|_| 3));
        }
        assert_eq!(joiner.finish(), None);
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// A handle that leaves a waker, twice, while the task ends: it is told that it waits in vain,
    /// or its latest waker is taken.
    #[test]
    fn an_end_is_never_missed() {
        loom::model(|| {
            let joiner = Arc::new(Joiner::new());
            let task = {
                let joiner = joiner.clone();
                loom::thread::spawn(move || joiner.finish())
            };
            // SAFETY: one handle.
            let (first, second) = unsafe {
                let first = joiner.wait(|_: Option<loom::sync::Arc<u32>>| Arc::new(1));
                (first, joiner.wait(|_| Arc::new(2)))
            };
            let taken = task.join().unwrap().map(|waker| *waker);
            match (first, second) {
                (_, true) => assert_eq!(taken, Some(2)),
                // Told that it waits in vain; the first waker may have been taken back already.
                (_, false) => assert!(taken.is_none() || (first && taken == Some(1))),
            }
        });
    }
}
