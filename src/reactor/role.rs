//! The role of the driver: who has it, and who wanted it in vain.
//! Knows no reactor; generic over what belongs to the role, and over who is told.

use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::sync::{Mutex, UnsafeCell, lock};

/// Nobody has the role.
const FREE: u32 = 0;
/// Somebody has; only that one leaves this state, or who misses it.
const TAKEN: u32 = 1;
/// Somebody has, and is to tell who missed it.
const MISSED: u32 = 2;

pub(crate) struct Role<T, S> {
    state: AtomicU32,
    part: UnsafeCell<T>,
    /// Who missed the role last.
    missed: Mutex<Option<S>>,
}

// SAFETY: `part` is reached through a `Taken` only, of which there is one at a time.
unsafe impl<T: Send, S: Send> Sync for Role<T, S> {}

/// Evidence that this thread has the role.
pub(crate) struct Taken<'a, T, S: Missed>(&'a Role<T, S>);

/// Who can be told that the role is free.
pub(crate) trait Missed {
    fn tell(self);
}

impl<T, S: Missed> Role<T, S> {
    pub(crate) fn new(part: T) -> Self {
        let (state, part) = (AtomicU32::new(FREE), UnsafeCell::new(part));
        Role { state, part, missed: Mutex::new(None) }
    }

    /// Takes the role, unless somebody has it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Taken<'_, T, S>> {
        // Relaxed: a look before the exchange, which would take the line from whoever has the role; every
        // busy worker asks for it every so many polls.
        if self.state.load(Relaxed) != FREE {
            return None;
        }
        // Ordering O1: acquire what the last one did with the part; pairs with O2.
        let taken = self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok();
        // Not made unless it is true: its drop gives the role up.
        taken.then(|| Taken(self))
    }

    /// Takes the role, or has `who` told when it is free.
    pub(crate) fn take_or_be_told(&self, who: impl FnOnce() -> S) -> Option<Taken<'_, T, S>> {
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        // Whoever missed it before is told no more: one is enough.
        let before = lock(&self.missed).replace(who());
        drop(before);
        loop {
            // Ordering O3: release who it is; pairs with O2.
            match self.state.compare_exchange(TAKEN, MISSED, Release, Relaxed) {
                Ok(_) | Err(MISSED) => return None,
                Err(_) => {
                    // Free by now.
                    if let Some(taken) = self.take() {
                        return Some(taken);
                    }
                }
            }
        }
    }
}

impl<T, S: Missed> Taken<'_, T, S> {
    #[inline]
    pub(crate) fn with<R>(&mut self, use_it: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: there is one `Taken` at a time, which is borrowed mutably.
        self.0.part.with_mut(|part| use_it(unsafe { &mut *part }))
    }
}

impl<T, S: Missed> Drop for Taken<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        // Ordering O2: release what was done with the part, acquire who missed it; pairs with O1
        // and O3.
        if self.0.state.swap(FREE, AcqRel) == MISSED {
            let missed = lock(&self.0.missed).take();
            missed.into_iter().for_each(Missed::tell);
        }
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    struct Told(Arc<loom::sync::Notify>);

    impl Missed for Told {
        fn tell(self) {
            self.0.notify();
        }
    }

    /// One has the role for a moment; another wants it for longer, and sleeps if it is taken: it gets
    /// it in the end. A lost word is a deadlock here.
    #[test]
    fn who_misses_the_role_is_told_when_it_is_free() {
        loom::model(|| {
            let role = Arc::new(Role::new(0));
            let looks = {
                let role = role.clone();
                loom::thread::spawn(move || {
                    if let Some(mut taken) = role.take() {
                        taken.with(|part| *part += 1);
                    }
                })
            };
            let notify = Arc::new(loom::sync::Notify::new());
            loop {
                if let Some(mut taken) = role.take_or_be_told(|| Told(notify.clone())) {
                    taken.with(|part| *part += 1);
                    break;
                }
                notify.wait();
            }
            looks.join().unwrap();
            assert!(role.take().unwrap().with(|part| *part) >= 1);
        });
    }

    /// Two have it one after the other, never at once.
    #[test]
    fn one_at_a_time_has_the_role() {
        loom::model(|| {
            let role = Arc::new(Role::<u32, Told>::new(0));
            let other = {
                let role = role.clone();
                loom::thread::spawn(move || {
                    role.take().map(|mut taken| taken.with(|part| *part += 1)).is_some()
                })
            };
            let mine = role.take().map(|mut taken| taken.with(|part| *part += 1)).is_some();
            let had = u32::from(mine) + u32::from(other.join().unwrap());
            assert_eq!(role.take().unwrap().with(|part| *part), had);
        });
    }
}
