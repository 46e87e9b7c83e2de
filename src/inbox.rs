//! A worker's inbox: runnables that others leave for it, since it ran them last and has what they
//! need in its cache. Open while somebody holds the processor.
//! Knows nothing of who that is; generic over what is left.
//!
//! Who leaves something looks afterwards whether the inbox is still open; who closes it takes out
//! afterwards what is there. At least one of them sees the other, so nothing stays in a closed one.

use crate::injector::Injector;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

pub(crate) struct Inbox<T> {
    open: AtomicBool,
    items: Injector<T>,
}

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox { open: AtomicBool::new(false), items: Injector::new() }
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Relaxed);
    }

    /// Whether it is worth leaving something.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Leaves an item. If the inbox was closed meanwhile, what is there comes back.
    pub(crate) fn leave(&self, item: T, back: impl FnMut(T)) {
        self.items.push(item);
        // Ordering N1: store-load; the item is there before the look whether it is open. Pairs with N2.
        fence(SeqCst);
        if !self.is_open() {
            self.take_all(back);
        }
    }

    /// Nothing is left here from now on; what was is handed out.
    pub(crate) fn close(&self, out: impl FnMut(T)) {
        self.open.store(false, Relaxed);
        // Ordering N2: store-load; it is closed before the look at what is there. Pairs with N1.
        fence(SeqCst);
        self.take_all(out);
    }

    pub(crate) fn take_all(&self, mut out: impl FnMut(T)) {
        let mut rest = Vec::new();
        if let Some(first) = self.items.pop(|rest| rest, |item| rest.push(item)) {
            // Outside of the lock: who gets them may drop them.
            std::iter::once(first).chain(rest).for_each(&mut out);
        }
    }

    /// The oldest; all others to `into`, which runs under the lock.
    #[inline]
    pub(crate) fn pop(&self, into: impl FnMut(T)) -> Option<T> {
        self.items.pop(|rest| rest, into)
    }

    pub(crate) fn pop_one(&self) -> Option<T> {
        self.items.pop(|_| 0, |_| ())
    }

    /// As [`pop`](Self::pop), but only half of what is there: for another than the owner.
    pub(crate) fn pop_half(&self, into: impl FnMut(T)) -> Option<T> {
        self.items.pop(|rest| rest / 2, into)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_one_keeps_nothing() {
        let inbox = Inbox::new();
        let mut back = Vec::new();
        inbox.leave(1, |item| back.push(item));
        inbox.open();
        inbox.leave(2, |item| back.push(item));
        inbox.leave(3, |item| back.push(item));
        assert_eq!((inbox.len(), inbox.pop(|item| back.push(item))), (2, Some(2)));
        inbox.leave(4, |item| back.push(item));
        inbox.close(|item| back.push(item));
        assert_eq!((inbox.is_open(), inbox.len(), back), (false, 0, vec![1, 3, 4]));
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn what_is_left_while_the_inbox_closes_comes_out_exactly_once() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            inbox.open();
            let sender = {
                let inbox = inbox.clone();
                loom::thread::spawn(move || {
                    let mut back = 0;
                    inbox.leave((), |()| back += 1);
                    back
                })
            };
            let mut out = 0;
            inbox.close(|()| out += 1);
            assert_eq!(out + sender.join().unwrap(), 1);
            assert_eq!(inbox.len(), 0);
        });
    }
}
