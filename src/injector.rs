//! The injector: where runnables come in from outside the workers. FIFO, unbounded.
//! Knows nothing of who is to be woken for them; see [`crate::idle`].
//!
//! A lock and a length: a batch costs one lock, and a waiting pusher blocks on a futex. (A
//! lock-free queue yields the CPU where a pusher was preempted midway.)

use std::collections::VecDeque;

use crate::sync::atomic::{AtomicUsize, Ordering::*};
use crate::sync::{Mutex, lock};

pub(crate) struct Injector<T> {
    /// The length of `items`, so that a look at an empty injector takes no lock.
    len: AtomicUsize,
    items: Mutex<VecDeque<T>>,
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Injector { len: AtomicUsize::new(0), items: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn push(&self, item: T) {
        let mut items = lock(&self.items);
        items.push_back(item);
        // Ordering J1: release; pairs with J2. (Whether a worker about to park sees it is settled
        // by the fences in `idle`.)
        self.len.store(items.len(), Release);
    }

    pub(crate) fn push_many(&self, new: impl Iterator<Item = T>) {
        let mut items = lock(&self.items);
        items.extend(new);
        self.len.store(items.len(), Release);
    }

    /// The oldest item, and `share(rest)` more of them to `into`.
    pub(crate) fn pop(
        &self,
        share: impl FnOnce(usize) -> usize,
        mut into: impl FnMut(T),
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut items = lock(&self.items);
        let first = items.pop_front()?;
        let more = share(items.len()).min(items.len());
        items.drain(..more).for_each(&mut into);
        self.len.store(items.len(), Release);
        Some(first)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Ordering J2: acquire; pairs with J1.
        self.len.load(Acquire)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_the_order() {
        let injector = Injector::new();
        (0..10).for_each(|i| injector.push(i));
        let mut batch = Vec::new();
        assert_eq!(injector.pop(|rest| rest / 2, |item| batch.push(item)), Some(0));
        assert_eq!(batch, [1, 2, 3, 4]);
        assert_eq!(injector.len(), 5);
        assert_eq!(injector.pop(|_| 0, |_| unreachable!()), Some(5));
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// Two pushers and one that takes batches: nothing is lost, nothing comes twice.
    #[test]
    fn every_injected_item_is_taken_exactly_once() {
        loom::model(|| {
            let injector = Arc::new(Injector::new());
            let pusher = {
                let injector = injector.clone();
                loom::thread::spawn(move || injector.push(1))
            };
            injector.push(2);
            let mut seen = Vec::new();
            let first = injector.pop(|rest| rest, |item| seen.push(item));
            seen.extend(first);
            pusher.join().unwrap();
            let first = injector.pop(|rest| rest, |item| seen.push(item));
            seen.extend(first);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }
}
