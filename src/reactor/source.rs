//! One registered descriptor: whether it is ready to read and to write, and who waits for that.
//! Knows neither descriptor nor poller; generic over who waits.
//!
//! Each direction counts its events, and remembers at which of them it was found *drained* (the
//! operation would have blocked). It is ready unless the two agree: an event between an operation
//! that would have blocked and the note of it counts as new, and an old one is not taken for it.

use crate::sync::atomic::{AtomicUsize, Ordering::*};
use crate::sync::{Mutex, lock};

/// To read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

/// A flag for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Both {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Both {
    fn get(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// How many events had come when the direction was found ready, and which told of the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    events: usize,
    ended: usize,
}

/// No event told of the end.
const NOT_ENDED: usize = 0;

#[derive(Default)]
struct Readiness {
    /// Written by the driver, under the lock.
    events: AtomicUsize,
    /// The event after which the direction was found drained; one too early for the first.
    drained: AtomicUsize,
    /// The event that told that nothing will block any more: the peer has closed, or an error is
    /// pending. No event may follow. [`NOT_ENDED`] again if an operation would block after all.
    /// Urgent data count as well: only an operation that would block tells that nothing is left.
    ended: AtomicUsize,
}

/// Who waits for one direction.
struct Waiters<W> {
    /// Of the poll functions, which do not tell when they are given up: the last to ask.
    polled: Option<W>,
    /// Of futures, each with its number.
    waiting: Vec<(u64, W)>,
}

/// The number of a future that waits.
pub(crate) type Number = u64;

struct Guarded<W> {
    waiters: [Waiters<W>; 2],
    next_number: Number,
}

pub(crate) struct Source<W> {
    readiness: [Readiness; 2],
    guarded: Mutex<Guarded<W>>,
}

/// What became of the wish to wait.
#[derive(Debug, PartialEq)]
pub(crate) enum Wait {
    /// An event came meanwhile: try again.
    Ready,
    /// The next event wakes.
    Armed,
}

impl<W> Source<W> {
    /// Both directions count as ready, until they are found not to be.
    pub(crate) fn new() -> Self {
        let readiness = || Readiness { events: AtomicUsize::new(1), ..Default::default() };
        let waiters = || Waiters { polled: None, waiting: Vec::new() };
        Source {
            readiness: [readiness(), readiness()],
            guarded: Mutex::new(Guarded { waiters: [waiters(), waiters()], next_number: 0 }),
        }
    }

    /// Whether anybody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        let guarded = lock(&self.guarded);
        guarded
            .waiters
            .iter()
            .any(|direction| direction.polled.is_some() || !direction.waiting.is_empty())
    }

    /// Evidence that an operation is worth a try.
    #[inline]
    pub(crate) fn ready(&self, direction: Direction) -> Option<Seen> {
        let readiness = &self.readiness[direction as usize];
        // Ordering S1: acquire what the event told; pairs with S2.
        let events = readiness.events.load(Acquire);
        // Relaxed, both: too old a value makes for one more try, or comes with an older event.
        let ended = readiness.ended.load(Relaxed);
        let ready = events != readiness.drained.load(Relaxed) || ended != NOT_ENDED;
        ready.then_some(Seen { events, ended })
    }

    /// The operation that was tried on this evidence would have blocked.
    #[inline]
    pub(crate) fn blocked(&self, direction: Direction, seen: Seen) {
        let readiness = &self.readiness[direction as usize];
        if seen.ended != NOT_ENDED {
            // An error that has been taken, a socket that was not connected yet. A newer event stays.
            let _ = readiness.ended.compare_exchange(seen.ended, NOT_ENDED, Relaxed, Relaxed);
        }
        readiness.drained.store(seen.events, Relaxed);
    }

    /// The operation that was tried on this evidence left nothing behind, so that the next would
    /// block, unless it is to tell of the end.
    #[inline]
    pub(crate) fn drained(&self, direction: Direction, seen: Seen) {
        let readiness = &self.readiness[direction as usize];
        // An end that comes later makes ready by its event.
        if readiness.ended.load(Relaxed) == NOT_ENDED {
            readiness.drained.store(seen.events, Relaxed);
        }
    }

    /// Waits as the last of those who poll. `waiter` is not called under the lock; `arm` is told,
    /// under the lock, for which directions somebody waits from now on.
    pub(crate) fn wait_polled(
        &self,
        direction: Direction,
        is_same: impl Fn(&W) -> bool,
        waiter: impl FnOnce() -> W,
        arm: impl FnOnce(Both),
    ) -> (Wait, Option<W>) {
        let mut guarded = lock(&self.guarded);
        let old = &guarded.waiters[direction as usize].polled;
        if !old.as_ref().is_some_and(is_same) {
            drop(guarded);
            let waiter = waiter();
            guarded = lock(&self.guarded);
            let polled = &mut guarded.waiters[direction as usize].polled;
            let old = polled.replace(waiter);
            return (self.arm(direction, &guarded, arm), old);
        }
        (self.arm(direction, &guarded, arm), None)
    }

    /// Waits as a future, which has `number` from the last time, if at all.
    pub(crate) fn wait_numbered(
        &self,
        direction: Direction,
        number: &mut Option<Number>,
        waiter: W,
        arm: impl FnOnce(Both),
    ) -> (Wait, Option<W>) {
        let mut guarded = lock(&self.guarded);
        let guarded = &mut *guarded;
        let waiting = &mut guarded.waiters[direction as usize].waiting;
        let known = number.and_then(|number| waiting.iter_mut().find(|other| other.0 == number));
        let old = match known {
            Some((_, old)) => Some(std::mem::replace(old, waiter)),
            None => {
                waiting.push((guarded.next_number, waiter));
                *number = Some(guarded.next_number);
                guarded.next_number += 1;
                None
            }
        };
        (self.arm(direction, guarded, arm), old)
    }

    fn arm(&self, direction: Direction, guarded: &Guarded<W>, arm: impl FnOnce(Both)) -> Wait {
        // Events are counted under the lock: from here on, they find the waiter.
        if self.ready(direction).is_some() {
            return Wait::Ready;
        }
        arm(guarded.wanted());
        Wait::Armed
    }

    /// A future waits no more. Whoever waited is to be dropped by the caller.
    #[must_use]
    pub(crate) fn forget(&self, direction: Direction, number: Number) -> Option<W> {
        let waiting = &mut lock(&self.guarded).waiters[direction as usize].waiting;
        let place = waiting.iter().position(|other| other.0 == number)?;
        Some(waiting.swap_remove(place).1)
    }

    /// An event: who waited for it goes to `due`. Directions in `ended` block no more.
    /// `arm` is told, under the lock, for which directions somebody still waits; if it cannot see to
    /// that, they are due as well, and find out why when they wait again.
    pub(crate) fn event(
        &self,
        ready: Both,
        ended: Both,
        due: &mut Vec<W>,
        arm: impl FnOnce(Both) -> bool,
    ) {
        let mut guarded = lock(&self.guarded);
        for direction in [Direction::Read, Direction::Write] {
            if !ready.get(direction) {
                continue;
            }
            let readiness = &self.readiness[direction as usize];
            let event = readiness.events.load(Relaxed).wrapping_add(1).max(1);
            if ended.get(direction) {
                readiness.ended.store(event, Relaxed);
            }
            // Ordering S2: release; pairs with S1.
            readiness.events.store(event, Release);
            guarded.waiters[direction as usize].leave(due);
        }
        if !arm(guarded.wanted()) {
            guarded.waiters.iter_mut().for_each(|waiters| waiters.leave(due));
        }
    }
}

impl<W> Waiters<W> {
    #[inline]
    fn leave(&mut self, due: &mut Vec<W>) {
        if let Some(waiter) = self.polled.take() {
            due.push(waiter);
        }
        if !self.waiting.is_empty() {
            due.extend(self.waiting.drain(..).map(|(_, waiter)| waiter));
        }
    }
}

impl<W> Guarded<W> {
    /// For which directions somebody waits.
    fn wanted(&self) -> Both {
        let [read, write] = &self.waiters;
        let wants = |w: &Waiters<W>| w.polled.is_some() || !w.waiting.is_empty();
        Both { read: wants(read), write: wants(write) }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;
    use Direction::*;

    const READ: Both = Both { read: true, write: false };
    const NEITHER: Both = Both { read: false, write: false };

    fn poll(source: &Source<u32>, waiter: u32) -> Wait {
        source.wait_polled(Read, |old| *old == waiter, || waiter, |_| ()).0
    }

    fn event(source: &Source<u32>) -> Vec<u32> {
        let mut due = Vec::new();
        source.event(READ, NEITHER, &mut due, |_| true);
        due
    }

    #[test]
    fn an_event_after_the_try_makes_ready_again() {
        let source = Source::new();
        let seen = source.ready(Read).expect("ready until found drained");
        assert_eq!(event(&source), []);
        source.blocked(Read, seen);
        let seen = source.ready(Read).expect("the event came after the try");
        source.blocked(Read, seen);
        assert!(source.ready(Read).is_none() && source.ready(Write).is_some());
        assert_eq!(poll(&source, 1), Wait::Armed);
        assert_eq!(event(&source), [1]);
        assert_eq!(poll(&source, 1), Wait::Ready);
    }

    #[test]
    fn the_last_to_poll_and_every_future_wait() {
        let source = Source::new();
        source.drained(Read, source.ready(Read).unwrap());
        assert_eq!(poll(&source, 1), Wait::Armed);
        assert_eq!(source.wait_polled(Read, |_| false, || 2, |_| ()), (Wait::Armed, Some(1)));
        let (mut first, mut second) = (None, None);
        for (number, waiter) in [(&mut first, 3), (&mut second, 4)] {
            assert_eq!(source.wait_numbered(Read, number, waiter, |_| ()), (Wait::Armed, None));
        }
        let replaced = source.wait_numbered(Read, &mut second, 5, |_| ());
        assert_eq!(replaced, (Wait::Armed, Some(4)));
        assert_eq!(source.forget(Read, first.unwrap()), Some(3));
        assert_eq!(event(&source), [2, 5]);
        assert_eq!(source.forget(Read, second.unwrap()), None);
    }

    #[test]
    fn a_short_count_does_not_hide_the_end() {
        let source = Source::<u32>::new();
        source.drained(Read, source.ready(Read).unwrap());
        assert!(source.ready(Read).is_none());
        source.event(READ, READ, &mut Vec::new(), |_| true);
        source.drained(Read, source.ready(Read).unwrap());
        assert!(source.ready(Read).is_some());
        // It was an error, say, that has been taken since.
        source.blocked(Read, source.ready(Read).unwrap());
        assert!(source.ready(Read).is_none());
    }

    #[test]
    fn the_interest_is_that_of_all_who_wait() {
        let source = Source::new();
        for direction in [Read, Write] {
            source.drained(direction, source.ready(direction).unwrap());
        }
        let mut wanted = Vec::new();
        source.wait_polled(Write, |_| false, || 1, |both| wanted.push(both));
        source.wait_polled(Read, |_| false, || 2, |both| wanted.push(both));
        source.event(READ, NEITHER, &mut Vec::new(), |both| {
            wanted.push(both);
            true
        });
        let (both, write) = (Both { read: true, write: true }, Both { read: false, write: true });
        assert_eq!(wanted, [write, both, write]);
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// A task tries, would block, and waits, while an event comes: it is woken or tries again.
    #[test]
    fn an_event_beside_a_try_and_a_wait_is_never_lost() {
        loom::model(|| {
            let source = Arc::new(Source::<u32>::new());
            let data = Arc::new(AtomicUsize::new(0));
            let driver = {
                let (source, data) = (source.clone(), data.clone());
                loom::thread::spawn(move || {
                    data.store(1, Relaxed);
                    let mut due = Vec::new();
                    let read = Both { read: true, write: false };
                    source.event(read, Both::default(), &mut due, |_| true);
                    due.len()
                })
            };
            let mut armed = false;
            while let Some(seen) = source.ready(Direction::Read) {
                if data.load(Relaxed) == 1 {
                    break;
                }
                source.drained(Direction::Read, seen);
                let (wait, _) = source.wait_polled(Direction::Read, |_| false, || 7, |_| ());
                armed = wait == Wait::Armed;
                if armed {
                    break;
                }
            }
            let woken = driver.join().unwrap();
            assert!(!armed || woken == 1, "armed, and nobody was woken");
        });
    }

    /// As above, with two who wait at once: both are woken, or try again.
    #[test]
    fn two_who_wait_for_one_direction_are_both_woken() {
        loom::model(|| {
            let source = Arc::new(Source::<u32>::new());
            source.drained(Direction::Read, source.ready(Direction::Read).unwrap());
            let waits = |source: Arc<Source<u32>>| {
                move || {
                    let (wait, _) = source.wait_numbered(Direction::Read, &mut None, 7, |_| ());
                    usize::from(wait == Wait::Armed)
                }
            };
            let other = loom::thread::spawn(waits(source.clone()));
            let driver = {
                let source = source.clone();
                loom::thread::spawn(move || {
                    let mut due = Vec::new();
                    let read = Both { read: true, write: false };
                    source.event(read, Both::default(), &mut due, |_| true);
                    due.len()
                })
            };
            let armed = waits(source.clone())() + other.join().unwrap();
            let woken = driver.join().unwrap();
            // Who found it ready after it was put in may be woken as well.
            assert!(armed <= woken, "{armed} wait, {woken} were woken");
        });
    }
}
