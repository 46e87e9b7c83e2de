//! The wakers of tasks that wait, so that a scheduler's end finds them.
//! A task that never waits is never here: until its first `Pending` it is in a queue.
//! Knows nothing of what else is noted of a task; generic over that.

use std::num::NonZeroU32;
use std::task::Waker;

use crossbeam_utils::CachePadded;
use slab::Slab;

use crate::sync::{Mutex, lock};

/// Where a task is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    shard_plus_one: NonZeroU32,
    key: u32,
}

struct Shard<N> {
    waiting: Slab<(Waker, N)>,
    closed: bool,
}

/// One shard per processor: a task is put where it was first polled.
pub(crate) struct Registry<N> {
    shards: Box<[CachePadded<Mutex<Shard<N>>>]>,
}

impl<N: Copy> Registry<N> {
    pub(crate) fn new(shards: usize) -> Self {
        let shard = || Mutex::new(Shard { waiting: Slab::new(), closed: false });
        Registry { shards: (0..shards).map(|_| CachePadded::new(shard())).collect() }
    }

    /// None if the registry is closed: the task must see to its end itself.
    pub(crate) fn insert(&self, shard: usize, waker: &Waker, note: N) -> Option<Place> {
        let waker = waker.clone();
        // Spare processors share the others' shards.
        let shard = shard % self.shards.len();
        let mut entries = lock(&self.shards[shard]);
        if entries.closed {
            return None;
        }
        let key = entries.waiting.insert((waker, note));
        drop(entries);
        let key = u32::try_from(key).expect("fewer than 2^32 waiting tasks");
        Some(Place { shard_plus_one: NonZeroU32::MIN.saturating_add(shard as u32), key })
    }

    /// The waker is to be dropped by the caller, outside the lock.
    #[must_use]
    pub(crate) fn remove(&self, place: Place) -> Waker {
        let shard = place.shard_plus_one.get() as usize - 1;
        lock(&self.shards[shard]).waiting.remove(place.key as usize).0
    }

    /// What is noted of those that are in.
    pub(crate) fn notes(&self) -> Vec<N> {
        let shards = self.shards.iter().map(|shard| lock(shard));
        shards
            .flat_map(|entries| {
                entries.waiting.iter().map(|(_, (_, note))| *note).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Nothing gets in any more. Returns the wakers of all that are in.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut entries = lock(shard);
            entries.closed = true;
            all.extend(entries.waiting.iter().map(|(_, (waker, _))| waker.clone()));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }

    #[test]
    fn a_closed_registry_takes_nobody_and_still_lets_them_out() {
        let registry = Registry::new(2);
        let waker = Waker::from(std::sync::Arc::new(Nobody));
        let place = registry.insert(1, &waker, 7).unwrap();
        assert_eq!(registry.close().len(), 1);
        assert!(registry.insert(0, &waker, 8).is_none());
        assert_eq!(registry.notes(), [7]);
        assert!(registry.remove(place).will_wake(&waker));
        assert!(registry.close().is_empty());
        assert_eq!(size_of::<Option<Place>>(), 8);
    }
}
