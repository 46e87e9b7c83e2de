//! How what is scheduled while a scheduler closes still finds somebody who drops it.
//! Knows neither queues nor tasks: draining comes in as a closure.
//!
//! A pusher pushes, then looks whether the end has begun; the end begins, then looks what was
//! pushed. At least one of them sees the other.

use std::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering::*, fence};
use crate::sync::{Event, Listener};

pub(crate) struct Closing {
    begun: AtomicBool,
    /// Nobody attends to the end any more, or nobody could.
    abandoned: AtomicBool,
    /// Something was pushed after the end had begun, or it is over.
    event: Event,
}

impl Closing {
    pub(crate) fn new() -> Self {
        Closing {
            begun: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            event: Event::new(),
        }
    }

    /// Begins the end; false if it has begun. The caller drains afterwards.
    pub(crate) fn begin(&self) -> bool {
        let first = !self.begun.swap(true, SeqCst);
        // Ordering E2: store-load; `begun` is set before the queues are looked at. Pairs with E1.
        fence(SeqCst);
        first
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed: who must see it has it ordered otherwise (a lock, a task's state, E1).
        self.begun.load(Relaxed)
    }

    /// After a push: if the end has begun, sees to it that the push is found.
    pub(crate) fn pushed(&self, drain: impl FnOnce()) {
        // Ordering E1: store-load; the push is before, the looks at `begun` and `abandoned` after.
        // Pairs with E2 and E3.
        fence(SeqCst);
        if self.begun.load(Relaxed) {
            if self.abandoned.load(SeqCst) {
                drain();
            } else {
                self.event.notify(usize::MAX);
            }
        }
    }

    /// It is over: whoever attends may leave.
    pub(crate) fn over(&self) {
        self.event.notify(usize::MAX);
    }

    /// Drains until it is over. False if `deadline` came first; then nobody attends any more.
    pub(crate) fn attend(
        &self,
        deadline: Option<Instant>,
        drain: impl Fn(),
        is_over: impl Fn() -> bool,
    ) -> bool {
        loop {
            let listener = self.event.listen();
            drain();
            if is_over() {
                return true;
            }
            match deadline {
                None => listener.wait(),
                Some(deadline) if listener.wait_deadline(deadline).is_some() => {}
                Some(_) => {
                    self.abandon(drain);
                    return is_over();
                }
            }
        }
    }

    /// Nobody attends from here on: whoever pushes something drains it.
    pub(crate) fn abandon(&self, drain: impl FnOnce()) {
        self.abandoned.store(true, SeqCst);
        // Ordering E3: store-load; who pushes after the drain below has looked sees that nobody
        // attends. Pairs with E1.
        fence(SeqCst);
        drain();
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicUsize;

    struct Stage {
        closing: Closing,
        queued: AtomicUsize,
        drained: AtomicUsize,
    }

    impl Stage {
        fn drain(&self) {
            // Relaxed: the fences of `Closing` must do.
            let queued = self.queued.swap(0, Relaxed);
            if queued > 0 && self.drained.fetch_add(queued, AcqRel) + queued == 1 {
                self.closing.over();
            }
        }

        /// One push beside an end.
        fn model(end: fn(&Stage)) {
            loom::model(move || {
                let stage = Arc::new(Stage {
                    closing: Closing::new(),
                    queued: AtomicUsize::new(0),
                    drained: AtomicUsize::new(0),
                });
                let pusher = {
                    let stage = stage.clone();
                    loom::thread::spawn(move || {
                        stage.queued.fetch_add(1, Relaxed);
                        stage.closing.pushed(|| stage.drain());
                    })
                };
                assert!(stage.closing.begin());
                end(&stage);
                pusher.join().unwrap();
                assert_eq!(stage.drained.load(Relaxed), 1);
            });
        }
    }

    /// A lost push is a deadlock here.
    #[test]
    fn push_racing_the_end_is_drained_by_who_attends() {
        Stage::model(|stage| {
            stage.closing.attend(None, || stage.drain(), || stage.drained.load(Acquire) == 1);
        });
    }

    #[test]
    fn push_racing_an_abandoned_end_is_drained_by_somebody() {
        Stage::model(|stage| stage.closing.abandon(|| stage.drain()));
    }
}
