//! The wakers of tasks that wait, so that a stopping runtime finds them.
//! A task that never waits is never here: until its first `Pending` it is in a queue.

use std::num::NonZeroU32;
use std::task::Waker;

use crossbeam_utils::CachePadded;
use slab::Slab;

use crate::identity::Identity;
use crate::sync::{Mutex, lock};

/// Where a task is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    shard_plus_one: NonZeroU32,
    key: u32,
}

#[derive(Default)]
struct Shard {
    waiting: Slab<(Waker, Identity)>,
    closed: bool,
}

/// One shard per processor: a task is put where it was first polled.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl Registry {
    pub(crate) fn new(shards: usize) -> Self {
        Registry { shards: (0..shards).map(|_| Default::default()).collect() }
    }

    /// None if the registry is closed: the task must see to its end itself.
    pub(crate) fn insert(&self, shard: usize, waker: &Waker, who: Identity) -> Option<Place> {
        let waker = waker.clone();
        // Spare processors share the others' shards.
        let shard = shard % self.shards.len();
        let mut entries = lock(&self.shards[shard]);
        if entries.closed {
            return None;
        }
        let key = entries.waiting.insert((waker, who));
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

    /// Who is in.
    pub(crate) fn tasks(&self) -> Vec<Identity> {
        let shards = self.shards.iter().map(|shard| lock(shard));
        shards
            .flat_map(|entries| {
                entries.waiting.iter().map(|(_, (_, who))| *who).collect::<Vec<_>>()
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
        let place = registry.insert(1, &waker, Identity::NOBODY).unwrap();
        assert_eq!(registry.close().len(), 1);
        assert!(registry.insert(0, &waker, Identity::NOBODY).is_none());
        assert!(registry.remove(place).will_wake(&waker));
        assert!(registry.close().is_empty());
        assert_eq!(size_of::<Option<Place>>(), 8);
    }
}
