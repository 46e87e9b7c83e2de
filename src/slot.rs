//! The wake slot: at most one item, put by its owner, taken by its owner or by a rescuer.
//! Knows nothing of timeslices; see [`crate::slice`].

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::sync::atomic::{AtomicPtr, Ordering::*};
use crate::word::Word;

/// One cell. Only its owner may [`put`](Slot::put); anyone may [`take`](Slot::take).
pub(crate) struct Slot<T: Word> {
    cell: AtomicPtr<()>,
    holds: PhantomData<T>,
}

impl<T: Word> Slot<T> {
    pub(crate) fn new() -> Self {
        Slot { cell: AtomicPtr::new(ptr::null_mut()), holds: PhantomData }
    }

    /// Fills the slot and returns who sat there. Owner only: two puts at once could lose an item.
    #[inline]
    pub(crate) fn put(&self, item: T) -> Option<T> {
        let raw = item.into_raw().as_ptr();
        if self.cell.load(Relaxed).is_null() {
            self.fill(raw);
            return None;
        }
        // Ordering L3: release as L1, acquire as L2.
        Self::own(self.cell.swap(raw, AcqRel))
    }

    /// Nobody but the owner writes a non-null pointer, and a load that read null orders the store
    /// after it behind the exchange that wrote that null: an empty cell stays empty, and a plain
    /// store overwrites nothing.
    #[inline]
    fn fill(&self, raw: *mut ()) {
        // Ordering L1: release; pairs with L2.
        #[cfg(not(paceline_loom))]
        self.cell.store(raw, Release);
        // The model checker does not know of that order (a store beside an exchange may go either
        // way in it); so it is shown what is claimed.
        #[cfg(paceline_loom)]
        assert!(self.cell.swap(raw, Release).is_null(), "a plain store would have lost an item");
    }

    /// Empties the slot.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // Ordering L2: acquire; pairs with L1, so that the taker sees what the putter wrote.
        Self::own(self.cell.swap(ptr::null_mut(), AcqRel))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cell.load(Relaxed).is_null()
    }

    #[inline]
    fn own(raw: *mut ()) -> Option<T> {
        // SAFETY: a non-null pointer in the cell came from `into_raw` in `put`, and the swap that
        // brought it here left another value behind, so nobody else takes it back.
        NonNull::new(raw).map(|raw| unsafe { T::from_raw(raw) })
    }
}

impl<T: Word> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_put_returns_the_occupant() {
        let slot = Slot::new();
        assert!(slot.take().is_none());
        assert!(slot.put(Box::new(1)).is_none());
        assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
        assert_eq!(slot.take(), Some(Box::new(2)));
        assert!(slot.is_empty());
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// The owner puts and takes while a rescuer takes: each item reaches exactly one of them.
    #[test]
    fn an_item_is_taken_exactly_once_whoever_rescues() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let rescuer = {
                let slot = slot.clone();
                loom::thread::spawn(move || slot.take().map(|item: Box<u32>| *item))
            };
            let mut seen = Vec::new();
            seen.extend(slot.put(Box::new(1)).map(|item| *item));
            seen.extend(slot.put(Box::new(2)).map(|item| *item));
            seen.extend(slot.take().map(|item| *item));
            seen.extend(slot.put(Box::new(3)).map(|item| *item));
            seen.extend(rescuer.join().unwrap());
            seen.extend(slot.take().map(|item| *item));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3]);
        });
    }
}
