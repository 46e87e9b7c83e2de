//! The candidates for a worker's own queue, behind the few calls that a worker makes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::SegQueue;

use super::{BOUND, Item};
use crate::queue::{Owner, Stealer};

/// FIFO; one pushes and pops, others steal half.
pub trait Local: Send + Sized {
    const NAME: &'static str;

    /// So many queues, each of which can steal from the first.
    fn team(members: usize) -> Vec<Self>;

    fn push(&mut self, item: Item);

    fn pop(&mut self) -> Option<Item>;

    /// The older half of the first one's items: the oldest, and the others to this queue.
    fn steal(&mut self) -> Option<Item>;
}

pub struct Ours {
    queue: Owner<Item>,
    first: Stealer<Item>,
}

impl Local for Ours {
    const NAME: &'static str = "paceline";

    fn team(members: usize) -> Vec<Self> {
        let queues: Vec<_> = (0..members).map(|_| Owner::new()).collect();
        let stealers: Vec<_> = queues.iter().map(|_| queues[0].stealer()).collect();
        queues.into_iter().zip(stealers).map(|(queue, first)| Ours { queue, first }).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.queue.push(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.queue.pop().map(|(item, _)| item)
    }

    fn steal(&mut self) -> Option<Item> {
        if self.first.len() == 0 {
            return None;
        }
        self.first.steal(&self.queue)
    }
}

pub struct ChaseLev {
    queue: crossbeam_deque::Worker<Item>,
    first: crossbeam_deque::Stealer<Item>,
}

impl Local for ChaseLev {
    const NAME: &'static str = "crossbeam-deque";

    fn team(members: usize) -> Vec<Self> {
        let queues: Vec<_> = (0..members).map(|_| crossbeam_deque::Worker::new_fifo()).collect();
        let first = queues[0].stealer();
        queues.into_iter().map(|queue| ChaseLev { queue, first: first.clone() }).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.queue.push(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.queue.pop()
    }

    fn steal(&mut self) -> Option<Item> {
        self.first.steal_batch_with_limit_and_pop(&self.queue, BOUND).success()
    }
}

/// Its slots run out where a thief is preempted midway: what is too much goes to a shared queue.
pub struct St3 {
    queue: st3::fifo::Worker<Item>,
    first: st3::fifo::Stealer<Item>,
    rest: Arc<SegQueue<Item>>,
}

impl Local for St3 {
    const NAME: &'static str = "st3";

    fn team(members: usize) -> Vec<Self> {
        let queues: Vec<_> = (0..members).map(|_| st3::fifo::Worker::new(BOUND)).collect();
        let (first, rest) = (queues[0].stealer(), Arc::<SegQueue<Item>>::default());
        let member = |queue| St3 { queue, first: first.clone(), rest: rest.clone() };
        queues.into_iter().map(member).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.queue.push(item).unwrap_or_else(|item| self.rest.push(item));
    }

    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.queue.pop().or_else(|| self.rest.pop())
    }

    fn steal(&mut self) -> Option<Item> {
        let stolen = self.first.steal_and_pop(&self.queue, |count| count - count / 2);
        stolen.ok().map(|stolen| stolen.0)
    }
}

/// As tokio's: 256 slots, and a shared queue for what is too much.
pub struct WorkQueue(work_queue::LocalQueue<Item>);

impl Local for WorkQueue {
    const NAME: &'static str = "work-queue";

    fn team(members: usize) -> Vec<Self> {
        let queue = work_queue::Queue::new(members, BOUND as u16);
        queue.local_queues().map(WorkQueue).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.0.push_yield(item);
    }

    /// Steals as well.
    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.0.pop()
    }

    fn steal(&mut self) -> Option<Item> {
        self.0.pop()
    }
}

/// Several producers' and consumers' as one worker's own; bounded or not.
pub struct Concurrent<const BOUNDED: bool> {
    queue: Arc<ConcurrentQueue<Item>>,
    first: Arc<ConcurrentQueue<Item>>,
}

impl<const BOUNDED: bool> Local for Concurrent<BOUNDED> {
    const NAME: &'static str =
        if BOUNDED { "concurrent-queue, bounded" } else { "concurrent-queue" };

    fn team(members: usize) -> Vec<Self> {
        let new = || match BOUNDED {
            true => ConcurrentQueue::bounded(BOUND),
            false => ConcurrentQueue::unbounded(),
        };
        let queues: Vec<_> = (0..members).map(|_| Arc::new(new())).collect();
        let first = queues[0].clone();
        queues.into_iter().map(|queue| Concurrent { queue, first: first.clone() }).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        assert!(self.queue.push(item).is_ok(), "no workload fills it");
    }

    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.queue.pop().ok()
    }

    fn steal(&mut self) -> Option<Item> {
        let more = self.first.len() / 2;
        let oldest = self.first.pop().ok()?;
        let full = self.first.try_iter().take(more).any(|item| self.queue.push(item).is_err());
        assert!(!full, "no workload fills it");
        Some(oldest)
    }
}

type Shared = Arc<Mutex<VecDeque<Item>>>;

pub struct Locked {
    queue: Shared,
    first: Shared,
}

impl Local for Locked {
    const NAME: &'static str = "Mutex<VecDeque>";

    fn team(members: usize) -> Vec<Self> {
        let queues: Vec<Shared> = (0..members).map(|_| Arc::default()).collect();
        let first = queues[0].clone();
        queues.into_iter().map(|queue| Locked { queue, first: first.clone() }).collect()
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.queue.lock().unwrap().push_back(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<Item> {
        self.queue.lock().unwrap().pop_front()
    }

    fn steal(&mut self) -> Option<Item> {
        let mut first = self.first.lock().unwrap();
        let oldest = first.pop_front()?;
        let more = first.len() / 2;
        self.queue.lock().unwrap().extend(first.drain(..more));
        Some(oldest)
    }
}
