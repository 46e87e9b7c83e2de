//! Who has nothing to do in an embedded executor, and is called when there is something.
//! Knows neither tasks nor queues; generic over who sleeps.
//!
//! Who pushes something looks afterwards whether anybody sleeps; who goes to sleep is listed, and
//! looks afterwards whether anything is there. At least one of them sees the other. One at a time is
//! *called*: until it has looked ([`Sleepers::settle`]) the others sleep on, unless what waits grows,
//! and then it calls the next one if there is more.

use crate::contain::contain;
use crate::sync::atomic::{AtomicU32, Ordering::*, fence};
use crate::sync::{Mutex, lock};

/// Somebody was called and has not looked yet; above the flags, how many are listed who look.
const CALLED: u32 = 1;
/// Somebody is listed who only tells a host, whether or not somebody was called.
const HOST: u32 = 2;
const ONE: u32 = 4;

/// Whether so many that wait are worth one more who comes, although one that was called has not come yet.
fn is_growth(waiting: usize) -> bool {
    waiting >= 8 && waiting.is_power_of_two()
}

/// Somebody who can be called, once.
pub(crate) trait Sleeper {
    /// Whether it looks for work itself when it is called, or only tells a host.
    fn looks(&self) -> bool;
    fn call(self);
}

/// A place in the list.
#[derive(Debug, PartialEq)]
pub(crate) struct Listed(u64);

pub(crate) struct Sleepers<S> {
    word: AtomicU32,
    list: Mutex<List<S>>,
}

struct List<S> {
    entries: Vec<(u64, S)>,
    next: u64,
}

impl<S: Sleeper> Sleepers<S> {
    pub(crate) fn new() -> Self {
        let list = List { entries: Vec::new(), next: 0 };
        Sleepers { word: AtomicU32::new(0), list: Mutex::new(list) }
    }

    /// Lists somebody, who must look once more afterwards whether there is anything.
    #[must_use]
    pub(crate) fn list(&self, sleeper: S) -> Listed {
        let mut list = lock(&self.list);
        let number = list.next;
        list.next += 1;
        if sleeper.looks() {
            self.word.fetch_add(ONE, Relaxed);
        } else {
            self.word.fetch_or(HOST, Relaxed);
        }
        list.entries.push((number, sleeper));
        drop(list);
        // Ordering E4: store-load; it is listed before it looks for the last time. Pairs with E5.
        fence(SeqCst);
        Listed(number)
    }

    /// Takes somebody off the list. False if it was called: then it is to look, and to
    /// [`settle`](Self::settle).
    #[must_use]
    pub(crate) fn leave(&self, Listed(number): Listed) -> bool {
        let mut list = lock(&self.list);
        let Some(place) = list.entries.iter().position(|entry| entry.0 == number) else {
            return false;
        };
        let gone = list.entries.swap_remove(place);
        if gone.1.looks() {
            self.word.fetch_sub(ONE, Relaxed);
        } else if list.entries.iter().all(|entry| entry.1.looks()) {
            self.word.fetch_and(!HOST, Relaxed);
        }
        drop(list);
        contain(|| drop(gone));
        true
    }

    /// After a push: calls somebody, if anybody sleeps and nobody has been called who will find it. False
    /// if somebody has been.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        // Ordering E5: store-load; the push is before, the look at the sleepers after. Pairs with E4
        // and E6.
        fence(SeqCst);
        let word = self.word.load(Relaxed);
        if word & HOST != 0 || (word >= ONE && word & CALLED == 0) {
            self.call(false);
        }
        word & CALLED == 0
    }

    /// As [`notify`](Self::notify), after a push by which so many wait: where that grows, one more is called.
    #[inline]
    pub(crate) fn notify_of(&self, waiting: impl FnOnce() -> usize) {
        if !self.notify() && is_growth(waiting()) {
            self.call_another();
        }
    }

    /// Calls one more, although one has been called: it may not come for long.
    #[cold]
    pub(crate) fn call_another(&self) {
        if self.word.load(Relaxed) >= ONE {
            self.call(true);
        }
    }

    #[cold]
    fn call(&self, another: bool) {
        let mut called = Vec::new();
        let mut list = lock(&self.list);
        // Every host, and the one of the others that was the last to go to sleep.
        let mut one = self.word.load(Relaxed) & CALLED == 0 || another;
        for place in (0..list.entries.len()).rev() {
            if !list.entries[place].1.looks() {
                called.push(list.entries.remove(place).1);
            } else if std::mem::take(&mut one) {
                called.push(list.entries.remove(place).1);
                self.word.fetch_sub(ONE, Relaxed);
                self.word.fetch_or(CALLED, Relaxed);
            }
        }
        self.word.fetch_and(!HOST, Relaxed);
        drop(list);
        // Outside of the lock: they run a user's code.
        called.into_iter().for_each(Sleeper::call);
    }

    /// Who was called has looked. It must look once more afterwards whether there is more, and
    /// [`notify`](Self::notify) if so, or be listed.
    pub(crate) fn settle(&self) {
        self.word.fetch_and(!CALLED, Relaxed);
        // Ordering E6: store-load; nobody counts as called before the last look. Pairs with E5.
        fence(SeqCst);
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    struct Told(Rc<Cell<u32>>, bool);

    impl Sleeper for Told {
        fn looks(&self) -> bool {
            self.1
        }
        fn call(self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn one_is_called_at_a_time_and_hosts_beside_it() {
        let sleepers = Sleepers::new();
        let told: [Rc<Cell<u32>>; 3] = Default::default();
        let first = sleepers.list(Told(told[0].clone(), true));
        let second = sleepers.list(Told(told[1].clone(), true));
        let host = sleepers.list(Told(told[2].clone(), false));
        let times = || [told[0].get(), told[1].get(), told[2].get()];
        sleepers.notify();
        sleepers.notify();
        assert_eq!(times(), [0, 1, 1]);
        assert!(!sleepers.leave(second) && !sleepers.leave(host));
        sleepers.settle();
        sleepers.notify();
        assert_eq!(times(), [1, 1, 1]);
        assert!(!sleepers.leave(first));
        sleepers.settle();
        sleepers.notify();
        assert_eq!(times(), [1, 1, 1]);
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::executor::signal::Signal;
    use crate::sync::Arc;
    use std::task::{Wake, Waker};

    impl Sleeper for Arc<Signal> {
        fn looks(&self) -> bool {
            true
        }
        fn call(self) {
            Signal::call(&self);
        }
    }

    struct Outer(loom::sync::Notify);

    impl Wake for Outer {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    struct Stage {
        sleepers: Sleepers<Arc<Signal>>,
        items: AtomicU32,
        taken: AtomicU32,
    }

    impl Stage {
        fn new() -> Arc<Self> {
            let sleepers = Sleepers::new();
            Arc::new(Stage { sleepers, items: AtomicU32::new(0), taken: AtomicU32::new(0) })
        }

        fn push(&self) {
            // Relaxed: the fences of `Sleepers` must do.
            self.items.fetch_add(1, Relaxed);
            self.sleepers.notify();
        }

        fn take(&self) -> bool {
            let one_less = |items: u32| items.checked_sub(1);
            let taken = self.items.fetch_update(Relaxed, Relaxed, one_less).is_ok();
            self.taken.fetch_add(u32::from(taken), Relaxed);
            taken
        }

        /// As a `run` does it; until so many have been taken by all together.
        fn run(&self, signal: &Arc<Signal>, outer: &std::sync::Arc<Outer>, until: u32) {
            let waker = Waker::from(outer.clone());
            let mut called = false;
            loop {
                signal.begin();
                let found = self.take();
                if std::mem::take(&mut called) {
                    self.sleepers.settle();
                    if found && self.items.load(Relaxed) > 0 {
                        self.sleepers.notify();
                    }
                }
                if found {
                    continue;
                }
                if self.taken.load(Relaxed) >= until {
                    return;
                }
                let listed = self.sleepers.list(signal.clone());
                if self.items.load(Relaxed) == 0 && signal.rest(&waker) {
                    outer.0.wait();
                }
                called = !self.sleepers.leave(listed);
            }
        }
    }

    /// A lost push is a deadlock here.
    #[test]
    fn push_racing_sleep_is_never_lost() {
        loom::model(|| {
            let stage = Stage::new();
            let pusher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.push())
            };
            let outer = std::sync::Arc::new(Outer(loom::sync::Notify::new()));
            stage.run(&Arc::new(Signal::new()), &outer, 1);
            pusher.join().unwrap();
        });
    }

    /// Who was called takes one thing, and then does not come back for long, while another is pushed: the next
    /// one is called for that.
    #[test]
    fn push_beside_the_look_of_the_called_one_calls_the_next() {
        loom::model(|| {
            let stage = Stage::new();
            let [next, first] = [(); 2].map(|()| Arc::new(Signal::new()));
            let _listed = stage.sleepers.list(next.clone());
            let listed = stage.sleepers.list(first.clone());
            stage.push();
            let pusher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.push())
            };
            assert!(first.is_called() && !stage.sleepers.leave(listed));
            assert!(stage.take());
            stage.sleepers.settle();
            if stage.items.load(Relaxed) > 0 {
                stage.sleepers.notify();
            }
            pusher.join().unwrap();
            assert!(next.is_called(), "nobody comes for the second");
        });
    }

    /// Two pushes by two threads, one of which may rely on who was called for the other.
    #[test]
    fn push_that_relied_on_the_called_one_is_taken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let stage = Stage::new();
            let pusher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.push())
            };
            let other = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.push())
            };
            let outer = std::sync::Arc::new(Outer(loom::sync::Notify::new()));
            stage.run(&Arc::new(Signal::new()), &outer, 2);
            pusher.join().unwrap();
            other.join().unwrap();
        });
    }
}
