//! The primitives that the model checker replaces, and the one decision on poisoned locks.
//!
//! `cfg(paceline_loom)` and not `cfg(loom)`, so that modelling paceline does not flip its
//! dependencies as well. `cfg(paceline_tsan)` brings a lock that the thread sanitizer can see into.

#[cfg(paceline_loom)]
pub(crate) use loom::sync::{Arc, atomic};
#[cfg(not(paceline_loom))]
pub(crate) use std::sync::{Arc, atomic};

#[cfg(paceline_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(paceline_tsan)]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(any(paceline_loom, paceline_tsan)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(not(paceline_loom))]
pub(crate) use event_listener::{Event, Listener};

/// A cell whose accesses the model checker watches.
#[cfg(paceline_loom)]
pub(crate) use loom::cell::UnsafeCell;

/// As loom's, so that one source serves both.
#[cfg(not(paceline_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(paceline_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// Locks, whatever a panic in another holder left behind.
///
/// No user code runs under any lock of this crate, so a poisoned lock still guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(paceline_tsan)]
    return mutex.lock();
    #[cfg(not(paceline_tsan))]
    return mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
}

/// What a model sees of `event_listener`: a listener hears every notification after its birth.
#[cfg(paceline_loom)]
mod event {
    use loom::sync::{Arc, Condvar, Mutex};
    use std::time::{Duration, Instant};

    #[derive(Clone)]
    pub(crate) struct Event(Arc<(Mutex<u32>, Condvar)>);

    pub(crate) struct EventListener(Event, u32);

    impl Event {
        pub(crate) fn new() -> Self {
            Event(Arc::new((Mutex::new(0), Condvar::new())))
        }

        pub(crate) fn listen(&self) -> EventListener {
            EventListener(self.clone(), *self.0.0.lock().unwrap())
        }

        pub(crate) fn notify(&self, _: usize) {
            *self.0.0.lock().unwrap() += 1;
            self.0.1.notify_all();
        }
    }

    pub(crate) trait Listener {
        fn wait(self);
        fn wait_timeout(self, timeout: Duration) -> Option<()>;
        fn wait_deadline(self, deadline: Instant) -> Option<()>;
    }

    impl Listener for EventListener {
        fn wait(self) {
            let (count, condvar) = &*self.0.0;
            let mut now = count.lock().unwrap();
            while *now == self.1 {
                now = condvar.wait(now).unwrap();
            }
        }

        /// A model has no clock: the longest wait of all.
        fn wait_timeout(self, _: Duration) -> Option<()> {
            self.wait();
            Some(())
        }

        fn wait_deadline(self, _: Instant) -> Option<()> {
            self.wait();
            Some(())
        }
    }
}
#[cfg(paceline_loom)]
pub(crate) use event::{Event, Listener};
