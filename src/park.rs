//! One thread's sleep, and the mailbox through which a processor reaches it.
//! Knows nothing of who decides to wake it; see [`crate::idle`].

use std::time::Duration;

use parking::{Parker, Unparker};

use crate::reactor::Reactor;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// The mailbox is empty.
const NOTHING: usize = 0;
/// The runtime is closed; no processor will come.
const CLOSED: usize = usize::MAX;

/// The thread is awake; only it leaves this state for a sleep.
const AWAKE: u32 = 0;
/// It sleeps in its bed; whoever unparks it leaves this state.
const PARKED: u32 = 1;
/// It sleeps in the reactor's poller; likewise.
const POLLING: u32 = 2;
/// It was unparked; its next sleep, or the one that it is in, is over at once.
const UNPARKED: u32 = 3;

/// What a thread that waits for a processor gets in the end.
#[derive(Debug, PartialEq)]
pub(crate) enum Mail {
    Processor(usize),
    Closed,
}

/// A thread that can be put to sleep; held by that thread.
pub(crate) struct Bed {
    parker: Parker,
    sleeper: Arc<Sleeper>,
}

/// The same thread, as others see it.
pub(crate) struct Sleeper {
    /// [`NOTHING`], [`CLOSED`], or a processor's index plus one.
    mail: AtomicUsize,
    state: AtomicU32,
    unparker: Unparker,
    reactor: Arc<Reactor>,
}

impl Bed {
    pub(crate) fn new(reactor: Arc<Reactor>) -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let (mail, state) = (AtomicUsize::new(NOTHING), AtomicU32::new(AWAKE));
        Bed { parker, sleeper: Arc::new(Sleeper { mail, state, unparker, reactor }) }
    }

    pub(crate) fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    /// Blocks until somebody unparks the sleeper or sends it mail, at once if that came before; or
    /// until `limit` is over. May return early.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        self.rest(PARKED, || match limit {
            None => self.parker.park(),
            Some(limit) => drop(self.parker.park_timeout(limit)),
        });
    }

    /// As [`sleep`](Self::sleep), where `wait` blocks in the reactor's poller.
    pub(crate) fn sleep_in(&self, wait: impl FnOnce()) {
        self.rest(POLLING, wait);
    }

    fn rest(&self, place: u32, sleep: impl FnOnce()) {
        let state = &self.sleeper.state;
        // Ordering K1: acquire what was done before the unpark; pairs with K2.
        if state.compare_exchange(AWAKE, place, AcqRel, Acquire).is_ok() {
            sleep();
        }
        // Ordering K1: likewise.
        state.swap(AWAKE, AcqRel);
    }

    pub(crate) fn take_mail(&self) -> Option<Mail> {
        if self.sleeper.mail.load(Relaxed) == NOTHING {
            return None;
        }
        // Ordering M1: acquire; pairs with M2.
        match self.sleeper.mail.swap(NOTHING, Acquire) {
            CLOSED => Some(Mail::Closed),
            index_plus_one => Some(Mail::Processor(index_plus_one - 1)),
        }
    }
}

impl Sleeper {
    /// Gives the thread what it waits for, and wakes it.
    pub(crate) fn send(&self, mail: &Mail) {
        let word = match *mail {
            Mail::Processor(index) => index + 1,
            Mail::Closed => CLOSED,
        };
        // Ordering M2: release; pairs with M1.
        let before = self.mail.swap(word, Release);
        debug_assert_eq!(before, NOTHING, "a thread gets one mail at a time, now {mail:?}");
        self.unpark();
    }

    pub(crate) fn unpark(&self) {
        // Ordering K2: release what was done before; pairs with K1.
        match self.state.swap(UNPARKED, AcqRel) {
            // The thread may be awake again by now: then some later sleep of it, or of who waits in
            // the poller then, ends early.
            PARKED => drop(self.unparker.unpark()),
            POLLING => self.reactor.notify(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_wakes_and_is_taken_once() {
        let bed = Bed::new(Reactor::new(1, false));
        assert_eq!(bed.take_mail(), None);
        let sleeper = bed.sleeper().clone();
        std::thread::scope(|scope| {
            scope.spawn(move || sleeper.send(&Mail::Processor(0)));
            while bed.sleeper().mail.load(Acquire) == NOTHING {
                bed.sleep(None);
            }
        });
        assert_eq!(bed.take_mail(), Some(Mail::Processor(0)));
        assert_eq!(bed.take_mail(), None);
        bed.sleeper().send(&Mail::Closed);
        bed.sleep(None);
        assert_eq!(bed.take_mail(), Some(Mail::Closed));
    }

    #[test]
    fn a_sleep_after_an_unpark_is_over_at_once_wherever() {
        let bed = Bed::new(Reactor::new(1, false));
        bed.sleeper().unpark();
        bed.sleep_in(|| unreachable!("it must not wait"));
        bed.sleeper().unpark();
        bed.sleep(None);
    }
}
