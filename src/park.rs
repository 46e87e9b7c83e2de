//! One thread's sleep, and the mailbox through which a processor reaches it.
//! Knows nothing of who decides to wake it; see [`crate::idle`].

use parking::{Parker, Unparker};

use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering::*};

/// The mailbox is empty.
const NOTHING: usize = 0;
/// The runtime is closed; no processor will come.
const CLOSED: usize = usize::MAX;

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
    unparker: Unparker,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        Bed { parker, sleeper: Arc::new(Sleeper { mail: AtomicUsize::new(NOTHING), unparker }) }
    }

    pub(crate) fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    /// Blocks until somebody unparks the sleeper or sends it mail; at once if that came before.
    pub(crate) fn sleep(&self) {
        self.parker.park();
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
        self.unparker.unpark();
    }

    pub(crate) fn unpark(&self) {
        self.unparker.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_wakes_and_is_taken_once() {
        let bed = Bed::new();
        assert_eq!(bed.take_mail(), None);
        let sleeper = bed.sleeper().clone();
        std::thread::scope(|scope| {
            scope.spawn(move || sleeper.send(&Mail::Processor(0)));
            bed.sleep();
        });
        assert_eq!(bed.take_mail(), Some(Mail::Processor(0)));
        assert_eq!(bed.take_mail(), None);
        bed.sleeper().send(&Mail::Closed);
        bed.sleep();
        assert_eq!(bed.take_mail(), Some(Mail::Closed));
    }
}
