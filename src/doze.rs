//! How the ticker waits: for the next tick, or without a limit while nothing runs; and how it is
//! roused and stopped. Knows nothing of what it does at a tick; see [`crate::ticker`].
//!
//! The ticker listens, then looks, then waits: what comes between look and wait ends the wait.

use std::time::Duration;

use crate::sync::atomic::{AtomicBool, Ordering::*, fence};
use crate::sync::{Event, Listener};

pub(crate) struct Doze {
    /// Nobody looks after the workers: the ticker waits without a limit, or was never started.
    asleep: AtomicBool,
    stopped: AtomicBool,
    event: Event,
}

impl Doze {
    pub(crate) fn new() -> Self {
        Doze { asleep: AtomicBool::new(true), stopped: AtomicBool::new(false), event: Event::new() }
    }

    /// A worker asks, once after it took a processor out of the idle list.
    pub(crate) fn is_asleep(&self) -> bool {
        // Ordering D1: store-load; the idle count was changed before. Pairs with D2.
        fence(SeqCst);
        self.asleep.load(SeqCst)
    }

    /// As [`is_asleep`](Self::is_asleep), for who has fenced already.
    pub(crate) fn seems_asleep(&self) -> bool {
        self.asleep.load(SeqCst)
    }

    /// Ends a wait without a limit.
    pub(crate) fn rouse(&self) {
        if self.asleep.swap(false, SeqCst) {
            self.event.notify(usize::MAX);
        }
    }

    /// There is no ticker to rouse after all.
    pub(crate) fn not_started(&self) {
        self.asleep.store(true, SeqCst);
    }

    /// Ends any wait, and all that follow.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.event.notify(usize::MAX);
    }

    /// Waits for one tick. False if the ticker is to end.
    #[must_use]
    pub(crate) fn tick(&self, length: Duration) -> bool {
        let listener = self.event.listen();
        if self.stopped.load(SeqCst) {
            return false;
        }
        listener.wait_timeout(length);
        !self.stopped.load(SeqCst)
    }

    /// Waits until roused, unless something runs. False if the ticker is to end.
    #[must_use]
    pub(crate) fn sleep(&self, nothing_runs: impl FnOnce() -> bool) -> bool {
        let listener = self.event.listen();
        self.asleep.store(true, SeqCst);
        // Ordering D2: store-load; the idle count is read after. Pairs with D1: a worker that this
        // look missed sees that the ticker is asleep.
        fence(SeqCst);
        if !self.stopped.load(SeqCst) && nothing_runs() {
            listener.wait();
        }
        self.asleep.store(false, SeqCst);
        !self.stopped.load(SeqCst)
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicUsize;

    fn stop_while(waits: fn(&Doze) -> bool) {
        loom::model(move || {
            let doze = Arc::new(Doze::new());
            let ticker = {
                let doze = doze.clone();
                loom::thread::spawn(move || while waits(&doze) {})
            };
            doze.stop();
            // In a model a tick has no end of its own: a lost stop is a deadlock.
            ticker.join().unwrap();
        });
    }

    #[test]
    fn a_stop_is_never_lost_by_a_tick() {
        stop_while(|doze| doze.tick(Duration::MAX));
    }

    #[test]
    fn a_stop_is_never_lost_by_a_sleep() {
        stop_while(|doze| doze.sleep(|| true));
    }

    /// A worker that starts to run while the ticker falls asleep either is seen or rouses it.
    #[test]
    fn a_busy_worker_always_has_a_ticker() {
        loom::model(|| {
            let doze = Arc::new(Doze::new());
            doze.rouse();
            let running = Arc::new(AtomicUsize::new(0));
            let ticker = {
                let (doze, running) = (doze.clone(), running.clone());
                loom::thread::spawn(move || {
                    assert!(doze.sleep(|| running.load(SeqCst) == 0));
                })
            };
            running.fetch_add(1, SeqCst);
            if doze.is_asleep() {
                doze.rouse();
            }
            ticker.join().unwrap();
        });
    }
}
