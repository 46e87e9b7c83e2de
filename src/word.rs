//! What fits in one machine word, so that a slot or a queue can hold it in an atomic pointer.
//! Knows nothing of tasks; a runnable is one of its implementors.

use std::ptr::NonNull;

/// An owned value that is one non-null pointer.
///
/// # Safety
/// `from_raw(into_raw(x))` is `x` again, also when another thread calls `from_raw`.
pub(crate) unsafe trait Word: Send + Sized {
    /// Gives up ownership; only [`Word::from_raw`] brings it back.
    fn into_raw(self) -> NonNull<()>;

    /// # Safety
    /// `raw` came from [`Word::into_raw`] of the same type, and is taken back only once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

// SAFETY: async-task's own round trip; a `Runnable` of a `Send` future may change threads.
#[cfg(not(paceline_loom))]
unsafe impl<M: Send + Sync> Word for async_task::Runnable<M> {
    #[inline]
    fn into_raw(self) -> NonNull<()> {
        async_task::Runnable::into_raw(self)
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller's promise is this function's.
        unsafe { async_task::Runnable::from_raw(raw) }
    }
}

// SAFETY: the round trip of `Box::into_raw`.
#[cfg(test)]
unsafe impl<T: Send> Word for Box<T> {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: `raw` is a leaked box of `T`, by the caller's promise.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }
}
