//! Whether somebody looks for work, rests, or comes round without being told: one side of a handshake
//! whose other side publishes work and then calls.
//!
//! Who looks begins, looks, and then rests unless it was called since. What was published before it began
//! is found by the look, and of what was published later it is called, or whoever is to wake it: nothing
//! is lost. Who was called comes, and so is called no second time.

use crate::sync::atomic::{AtomicU8, Ordering::*};

/// It looks; only [`Attention::rest`] leaves this state for a rest.
const LOOKS: u8 = 0;
/// It was called, or comes unasked, and is to look before it rests.
const COMES: u8 = 1;
/// It rests; who calls it has it woken.
const RESTS: u8 = 2;

pub(crate) struct Attention(AtomicU8);

impl Attention {
    /// Of somebody who looks.
    pub(crate) fn new() -> Self {
        Attention(AtomicU8::new(LOOKS))
    }

    /// It looks from now on: whoever called before was heard.
    #[inline]
    pub(crate) fn begin(&self) {
        if self.0.load(Relaxed) != LOOKS {
            // Ordering G1: acquire what was done before the call; pairs with G2.
            self.0.swap(LOOKS, AcqRel);
        }
    }

    /// Whether it was called since it began to look.
    pub(crate) fn is_called(&self) -> bool {
        self.0.load(Relaxed) == COMES
    }

    /// There is something to do; or it comes unasked. True if it rests: the caller has it woken.
    #[must_use]
    pub(crate) fn call(&self) -> bool {
        // Ordering G2: release what was done before; pairs with G1. Acquire: what it left before its rest.
        self.0.swap(COMES, AcqRel) == RESTS
    }

    /// It has found nothing. False if it was called meanwhile: then it is to look again.
    #[must_use]
    pub(crate) fn rest(&self) -> bool {
        self.0.compare_exchange(LOOKS, RESTS, AcqRel, Acquire).is_ok()
    }

    /// It rests, whatever it did, and looks itself afterwards whether it should.
    pub(crate) fn lie_down(&self) {
        self.0.swap(RESTS, AcqRel);
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicBool;

    /// Something is published while one looks and goes to rest, after a rest or not: a look sees it, or who
    /// published it has the resting one woken.
    #[test]
    fn what_is_published_beside_a_look_is_seen_or_called_for() {
        for comes in [false, true] {
            loom::model(move || {
                let shared = Arc::new((Attention::new(), AtomicBool::new(false)));
                if comes {
                    assert!(!shared.0.call());
                }
                let other = {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        shared.1.store(true, Relaxed);
                        shared.0.call()
                    })
                };
                let seen = loop {
                    shared.0.begin();
                    let seen = shared.1.load(Relaxed);
                    if seen || shared.0.rest() {
                        break seen;
                    }
                };
                let wakes = other.join().unwrap();
                assert!(seen || wakes, "it rests, and nobody has it woken");
            });
        }
    }
}
