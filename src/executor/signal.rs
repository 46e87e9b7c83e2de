//! Whether a `run` is to be polled again, and whom to tell: the seam to the outer executor.
//! Knows nothing of tasks.

use std::task::{Wake, Waker};

use crate::contain::contain;
use crate::executor::attention::Attention;
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::sync::{Mutex, lock};

pub(crate) struct Signal {
    attention: Attention,
    /// The main future is to be polled.
    main: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Signal {
            attention: Attention::new(),
            main: AtomicBool::new(false),
            outer: Mutex::new(None),
        }
    }

    /// A poll begins: whoever called before was heard.
    #[inline]
    pub(crate) fn begin(&self) {
        self.attention.begin();
    }

    /// Whether it was called in this poll.
    pub(crate) fn is_called(&self) -> bool {
        self.attention.is_called()
    }

    /// The main future is to be polled, whether or not anybody woke it.
    pub(crate) fn set_main(&self) {
        self.main.store(true, Relaxed);
    }

    /// Whether the main future is to be polled.
    pub(crate) fn is_main_woken(&self) -> bool {
        self.main.load(Relaxed)
    }

    /// Whether the main future is to be polled; if so, it is not any more.
    #[inline]
    pub(crate) fn take_main(&self) -> bool {
        // Ordering G3: acquire what the main future's waker did; pairs with G4.
        self.main.load(Relaxed) && self.main.swap(false, AcqRel)
    }

    /// There is something to do.
    pub(crate) fn call(&self) {
        if self.attention.call() {
            let outer = lock(&self.outer).take();
            if let Some(outer) = outer {
                contain(|| outer.wake());
            }
        }
    }

    /// Nothing is left to do: `outer` is woken by the next call. False if that has come already;
    /// then look again.
    pub(crate) fn rest(&self, outer: &Waker) -> bool {
        let outer = outer.clone();
        // The lock is released before the old one is dropped: it may run a user's code.
        let before = lock(&self.outer).replace(outer);
        drop(before);
        let rests = self.attention.rest();
        if !rests {
            self.begin();
        }
        rests
    }

    /// It will not be polled any more.
    pub(crate) fn retire(&self) {
        self.begin();
        self.main.store(false, Relaxed);
        let outer = lock(&self.outer).take();
        contain(|| drop(outer));
    }
}

/// The waker of the main future.
impl Wake for Signal {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        // Ordering G4: release what the waker did; pairs with G3.
        if !self.main.swap(true, AcqRel) {
            self.call();
        }
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use std::sync::atomic::AtomicU32 as Count;

    struct Outer(Count);

    impl Wake for Outer {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A call while the run goes to rest: it looks again, or its outer executor is told.
    #[test]
    fn a_call_beside_a_rest_is_never_lost() {
        loom::model(|| {
            let shared = Arc::new((Signal::new(), AtomicBool::new(false)));
            let outer = std::sync::Arc::new(Outer(Count::new(0)));
            let waker = Waker::from(outer.clone());
            let caller = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.store(true, Relaxed);
                    shared.0.call();
                })
            };
            let rests = shared.0.rest(&waker);
            if !rests {
                assert!(shared.1.load(Relaxed), "called, and sees what for");
            }
            caller.join().unwrap();
            if rests {
                assert_eq!(outer.0.load(SeqCst), 1, "rests, and nobody was told");
            }
        });
    }
}
