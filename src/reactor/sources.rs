//! The registered sources, by the key under which the poller reports them.
//! Knows neither poller nor descriptor; generic over who waits, and over what else is kept.

use slab::Slab;

use crate::reactor::source::{Both, Source};
use crate::sync::{Arc, Mutex, lock};

/// What the poller reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) key: usize,
    pub(crate) ready: Both,
    pub(crate) ended: Both,
}

pub(crate) struct Registered<W, R> {
    pub(crate) source: Source<W>,
    pub(crate) kept: R,
}

pub(crate) struct Sources<W, R> {
    sources: Mutex<Slab<Arc<Registered<W, R>>>>,
}

impl<W, R> Sources<W, R> {
    pub(crate) fn new() -> Self {
        Sources { sources: Mutex::new(Slab::new()) }
    }

    /// A new source, and its key.
    pub(crate) fn insert(&self, kept: R) -> (usize, Arc<Registered<W, R>>) {
        let registered = Arc::new(Registered { source: Source::new(), kept });
        let key = lock(&self.sources).insert(registered.clone());
        (key, registered)
    }

    /// The poller reports it no more. What it reported before may come later, under a key that is
    /// another's by then: that one tries once for nothing.
    #[must_use]
    pub(crate) fn remove(&self, key: usize) -> Arc<Registered<W, R>> {
        lock(&self.sources).remove(key)
    }

    /// Delivers what the poller reported: who waited goes to `due`. `arm` is told of what is still
    /// waited for, with the source locked, and says whether that will be reported.
    pub(crate) fn deliver(
        &self,
        events: impl Iterator<Item = Event>,
        due: &mut Vec<W>,
        arm: impl Fn(usize, &R, Both) -> bool,
    ) {
        let sources = lock(&self.sources);
        for Event { key, ready, ended } in events {
            if let Some(registered) = sources.get(key) {
                let arm = |wanted| arm(key, &registered.kept, wanted);
                registered.source.event(ready, ended, due, arm);
            }
        }
    }

    /// All that are registered.
    pub(crate) fn all(&self) -> Vec<Arc<Registered<W, R>>> {
        lock(&self.sources).iter().map(|(_, registered)| registered.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.sources).len()
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::reactor::source::{Direction, Wait};

    const READ: Both = Both { read: true, write: false };

    fn event(sources: &Sources<u32, ()>, key: usize) -> Vec<u32> {
        let (mut due, event) = (Vec::new(), Event { key, ready: READ, ended: Both::default() });
        sources.deliver([event].into_iter(), &mut due, |_, (), _| true);
        due
    }

    fn wait(registered: &Registered<u32, ()>, waiter: u32) -> Wait {
        if let Some(seen) = registered.source.ready(Direction::Read) {
            registered.source.drained(Direction::Read, seen);
        }
        registered.source.wait_polled(Direction::Read, |_| false, || waiter, |_| ()).0
    }

    /// A turn that has an event in hand delivers it while the source goes and another takes its
    /// key: the newcomer's own event, which comes later, finds who waits for it.
    #[test]
    fn a_source_that_goes_during_a_turn_takes_nothing_from_the_next() {
        loom::model(|| {
            let sources = Arc::new(Sources::<u32, ()>::new());
            let (key, old) = sources.insert(());
            assert_eq!(wait(&old, 1), Wait::Armed);
            let turn = {
                let sources = sources.clone();
                loom::thread::spawn(move || event(&sources, key))
            };
            drop(sources.remove(key));
            drop(old);
            let (again, new) = sources.insert(());
            assert_eq!(key, again);
            let armed = wait(&new, 2) == Wait::Armed;
            let stale = turn.join().unwrap();
            assert!(stale.len() <= 1);
            let due = event(&sources, again);
            let woken = stale.contains(&2) || due.contains(&2);
            assert!(!armed || woken, "stale {stale:?}, due {due:?}");
        });
    }
}
