//! Whether this process is a fork of the one that a runtime was made in: only the forking thread
//! lives on there, and locks may be held by threads that do not.

#[cfg(unix)]
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How often the process that started it all has forked down to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        #[cfg(unix)]
        {
            extern "C" fn in_child() {
                FORKS.fetch_add(1, Relaxed);
            }
            static WATCHED: Once = Once::new();
            WATCHED.call_once(|| {
                // SAFETY: the handler does nothing but change an atomic. If it cannot be installed,
                // for want of memory, forks go unnoticed.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            });
        }
        Origin(FORKS.load(Relaxed))
    }

    /// Whether this is another process by now.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        FORKS.load(Relaxed) != self.0
    }

    /// # Panics
    /// If this is another process by now.
    #[inline]
    #[track_caller]
    pub(crate) fn check(&self) {
        if self.is_elsewhere() {
            refuse();
        }
    }
}

/// What to say, and how to mend it.
pub(crate) const MESSAGE: &str = "this process was forked from the one in which the paceline \
                                  runtime was made, and the runtime's threads were not. Make a \
                                  runtime of its own in the child, after the fork, and no use of \
                                  the default one; or fork before the first use";

#[cold]
#[track_caller]
fn refuse() -> ! {
    panic!("{MESSAGE}");
}
