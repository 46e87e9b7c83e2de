//! The candidates for the injector, behind what is done with it.

use std::collections::VecDeque;
use std::sync::Mutex;

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::SegQueue;

use super::Item;
use crate::injector;
use crate::queue::Owner;

/// The most that a worker takes at once, as in the runtime.
const MOST: usize = 128;

/// Unbounded; everybody pushes, workers take.
pub(crate) trait Injector: Sync {
    const NAME: &'static str;
    /// A worker's own queue.
    type Own;

    fn new() -> Self;

    fn new_own() -> Self::Own;

    fn push(&self, item: Item);

    /// The oldest; and a worker's share of the others, if so many workers take, to its own queue.
    fn take(&self, own: &Self::Own, workers: usize) -> Option<Item>;

    fn pop(own: &Self::Own) -> Option<Item>;
}

/// With paceline's queue as the worker's own.
macro_rules! own {
    () => {
        type Own = Owner<Item>;

        fn new_own() -> Owner<Item> {
            Owner::new()
        }

        #[inline]
        fn pop(own: &Owner<Item>) -> Option<Item> {
            own.pop().map(|(item, _)| item)
        }
    };
}

impl Injector for injector::Injector<Item> {
    const NAME: &'static str = "paceline";
    own!();

    fn new() -> Self {
        injector::Injector::new()
    }

    fn push(&self, item: Item) {
        self.push(item);
    }

    fn take(&self, own: &Owner<Item>, workers: usize) -> Option<Item> {
        self.pop(|rest| (rest / workers).min(MOST), |item| own.push(item))
    }
}

impl Injector for crossbeam_deque::Injector<Item> {
    const NAME: &'static str = "crossbeam-deque";
    type Own = crossbeam_deque::Worker<Item>;

    fn new() -> Self {
        crossbeam_deque::Injector::new()
    }

    fn new_own() -> Self::Own {
        crossbeam_deque::Worker::new_fifo()
    }

    fn push(&self, item: Item) {
        self.push(item);
    }

    fn take(&self, own: &Self::Own, workers: usize) -> Option<Item> {
        let share = (self.len() / workers).clamp(1, MOST);
        self.steal_batch_with_limit_and_pop(own, share).success()
    }

    #[inline]
    fn pop(own: &Self::Own) -> Option<Item> {
        own.pop()
    }
}

/// One by one, as many as the share.
fn share(len: usize, workers: usize, mut pop: impl FnMut() -> Option<Item>, own: &Owner<Item>) {
    let share = (len / workers).min(MOST);
    std::iter::from_fn(&mut pop).take(share).for_each(|item| own.push(item));
}

impl Injector for SegQueue<Item> {
    const NAME: &'static str = "SegQueue";
    own!();

    fn new() -> Self {
        SegQueue::new()
    }

    fn push(&self, item: Item) {
        self.push(item);
    }

    fn take(&self, own: &Owner<Item>, workers: usize) -> Option<Item> {
        let first = self.pop()?;
        share(self.len(), workers, || self.pop(), own);
        Some(first)
    }
}

impl Injector for ConcurrentQueue<Item> {
    const NAME: &'static str = "concurrent-queue";
    own!();

    fn new() -> Self {
        ConcurrentQueue::unbounded()
    }

    fn push(&self, item: Item) {
        assert!(self.push(item).is_ok(), "it has no bound");
    }

    fn take(&self, own: &Owner<Item>, workers: usize) -> Option<Item> {
        let first = self.pop().ok()?;
        share(self.len(), workers, || self.pop().ok(), own);
        Some(first)
    }
}

/// One item for each lock; no length beside it.
impl Injector for Mutex<VecDeque<Item>> {
    const NAME: &'static str = "Mutex<VecDeque>";
    own!();

    fn new() -> Self {
        Mutex::default()
    }

    fn push(&self, item: Item) {
        self.lock().unwrap().push_back(item);
    }

    fn take(&self, _: &Owner<Item>, _: usize) -> Option<Item> {
        self.lock().unwrap().pop_front()
    }
}
