//! Keeps panics of user code (destructors, wakers, hooks) out of the runtime's own.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic in it ends here, after the panic hook has reported it.
pub(crate) fn contain(f: impl FnOnce()) {
    let mut outcome = catch_unwind(AssertUnwindSafe(f));
    // The payload is the user's too: its destructor may panic, with a payload that does so again.
    for _ in 0..8 {
        match outcome {
            Ok(()) => return,
            Err(payload) => outcome = catch_unwind(AssertUnwindSafe(|| drop(payload))),
        }
    }
    std::mem::forget(outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_panics_is_contained_as_well() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in a payload's destructor");
            }
        }
        contain(|| std::panic::panic_any(Bomb));
    }
}
