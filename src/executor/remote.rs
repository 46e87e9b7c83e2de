//! What reaches a local executor from other threads: an inbox of claimed tasks, and whom to call when
//! there is something to do. Knows neither tasks nor runs; generic over both.

use crate::sync::atomic::{AtomicUsize, Ordering::*};
use crate::sync::{Event, Listener, Mutex, lock};

pub(crate) struct Remote<T, C> {
    state: Mutex<State<T, C>>,
    /// How many entries there are; written under the lock, for a look without it.
    len: AtomicUsize,
    /// Something was left while the executor waits for it.
    left: Event,
}

struct State<T, C> {
    entries: Vec<T>,
    /// Those that have nothing to do.
    listed: Vec<C>,
    /// The executor is at its end, and waits for what is still to come.
    is_closing: bool,
}

/// Who is to be called, outside of the lock.
pub(crate) struct Called<C>([Option<C>; 2]);

impl<C> Called<C> {
    pub(crate) fn for_each(self, call: impl FnMut(C)) {
        self.0.into_iter().flatten().for_each(call);
    }
}

impl<T, C> State<T, C> {
    /// One that looks for work itself, and one that only tells others.
    fn pop(&mut self, only_tells: impl Fn(&C) -> bool) -> Called<C> {
        let first = self.listed.pop();
        let tells = first.as_ref().is_some_and(&only_tells);
        let other = self.listed.iter().rposition(|other| only_tells(other) != tells);
        let second = first.is_some().then_some(other).flatten();
        Called([first, second.map(|place| self.listed.swap_remove(place))])
    }
}

impl<T, C> Remote<T, C> {
    pub(crate) fn new() -> Self {
        let state = State { entries: Vec::new(), listed: Vec::new(), is_closing: false };
        Remote { state: Mutex::new(state), len: AtomicUsize::new(0), left: Event::new() }
    }

    /// Leaves an entry. Those who are returned are to be called, by the caller, who holds no lock: one, and
    /// any that only tells others.
    pub(crate) fn leave(&self, entry: T, only_tells: impl Fn(&C) -> bool) -> Called<C> {
        let mut state = lock(&self.state);
        state.entries.push(entry);
        // Relaxed, as the other accesses to it: the look that counts is under the lock.
        self.len.store(state.entries.len(), Relaxed);
        if state.is_closing {
            drop(state);
            self.left.notify(usize::MAX);
            return Called([None, None]);
        }
        state.pop(only_tells)
    }

    /// Whether a look is worth its lock.
    #[inline]
    pub(crate) fn seems_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// Swaps what is there with `into`, which is empty.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.entries, into);
        self.len.store(0, Relaxed);
    }

    /// Lists whom to call, once, unless there are entries already. False if so.
    pub(crate) fn list(&self, who: C, is_same: impl Fn(&C, &C) -> bool) -> bool {
        let mut state = lock(&self.state);
        if !state.entries.is_empty() {
            return false;
        }
        if !state.listed.iter().any(|other| is_same(other, &who)) {
            state.listed.push(who);
        }
        true
    }

    /// Takes those out of the list, to be dropped outside of the lock.
    pub(crate) fn unlist(&self, is_it: impl Fn(&C) -> bool) -> Option<C> {
        let mut state = lock(&self.state);
        let place = state.listed.iter().position(is_it)?;
        Some(state.listed.swap_remove(place))
    }

    /// Who is to be called, since there is something to do; and whether more are listed.
    pub(crate) fn next_listed(&self, only_tells: impl Fn(&C) -> bool) -> (Called<C>, bool) {
        let mut state = lock(&self.state);
        (state.pop(only_tells), !state.listed.is_empty())
    }

    /// Waits until `owed` entries have come, and gives all to `take`, which tells how many it took of
    /// those. Nobody is called any more.
    pub(crate) fn close(&self, mut owed: usize, mut take: impl FnMut(T) -> usize) {
        let mut entries = Vec::new();
        let listed = {
            let mut state = lock(&self.state);
            state.is_closing = true;
            std::mem::take(&mut state.listed)
        };
        drop(listed);
        loop {
            let listener = (owed > 0).then(|| self.left.listen());
            self.take(&mut entries);
            owed -= entries.drain(..).map(&mut take).sum::<usize>();
            match listener {
                Some(listener) if owed > 0 => listener.wait(),
                _ => return,
            }
        }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_who_looks_and_one_who_tells_are_called_and_nobody_is_where_there_is_something() {
        let remote = Remote::new();
        for who in ["one", "host", "two", "one"] {
            assert!(remote.list(who, |one, other| one == other));
        }
        let is_host = |who: &&str| *who == "host";
        let mut called = Vec::new();
        remote.leave(1, is_host).for_each(|who| called.push(who));
        assert_eq!(called, ["two", "host"]);
        assert!(!remote.list("two", |one, other| one == other));
        let (rest, more) = remote.next_listed(is_host);
        rest.for_each(|who| called.push(who));
        assert_eq!((called.len(), more, remote.seems_empty()), (3, false, false));
        let mut entries = Vec::new();
        remote.take(&mut entries);
        assert_eq!((entries, remote.seems_empty()), (vec![1], true));
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// Something is left while the one who would take it goes to rest: it is called, or it sees it.
    #[test]
    fn what_is_left_beside_a_listing_is_seen_or_called_for() {
        loom::model(|| {
            let remote = Arc::new(Remote::new());
            let other = {
                let remote = remote.clone();
                loom::thread::spawn(move || {
                    let mut called = 0;
                    remote.leave((), |()| false).for_each(|()| called += 1);
                    called
                })
            };
            let rests = remote.list((), |(), ()| true);
            assert_eq!(other.join().unwrap(), usize::from(rests));
        });
    }

    /// Something is left while the inbox is emptied: what stays shows.
    #[test]
    fn what_is_left_beside_a_take_shows() {
        loom::model(|| {
            let remote = Arc::new(Remote::<(), ()>::new());
            let other = {
                let remote = remote.clone();
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        remote.leave((), |()| false).for_each(drop);
                    }
                })
            };
            let mut taken = Vec::new();
            remote.take(&mut taken);
            other.join().unwrap();
            assert_eq!(remote.seems_empty(), taken.len() == 2);
        });
    }
}
