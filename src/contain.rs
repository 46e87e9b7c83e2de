//! Keeps panics of user code (destructors, wakers, hooks) out of the runtime's own.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic in it ends here, after the panic hook has reported it.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // The payload is the user's too, and its destructor may panic in turn.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
    }
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
