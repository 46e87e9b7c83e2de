//! How a task gives way: at once, or when its timeslice is spent.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::current;

/// Lets every other runnable task of this worker go first, once. In `block_on`'s own future, which
/// is no task, one of them at most.
///
/// # Cancel safety
/// Nothing is lost if it is dropped.
///
/// # Examples
/// ```
/// paceline::block_on(async {
///     paceline::yield_now().await;
/// });
/// ```
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| give_way(cx, &mut yielded)).await;
}

/// Lets other tasks go first if this one's timeslice is spent; otherwise it is ready at once.
///
/// Put it into loops that compute long without awaiting anything else. It costs some nanoseconds:
/// the clock is not read at every call. Outside of a paceline worker it gives way every so often.
///
/// # Cancel safety
/// Nothing is lost if it is dropped.
///
/// # Examples
/// ```
/// paceline::block_on(async {
///     for chunk in [0u8; 4096].chunks(64) {
///         std::hint::black_box(chunk.iter().map(|&byte| u64::from(byte)).sum::<u64>());
///         paceline::yield_if_due().await;
///     }
/// });
/// ```
pub async fn yield_if_due() {
    let mut yielded = !is_due(false);
    poll_fn(|cx| give_way(cx, &mut yielded)).await;
}

/// Without a processor there is no slice: of so many questions in a row one is to give way, so that
/// a loop that is always ready comes back to its `block_on` or executor.
const IN_A_ROW: u32 = 128;

#[inline]
fn is_due(operation: bool) -> bool {
    !current::is_unconstrained()
        && current::with_lease(|lease| match lease {
            Some(lease) => lease.is_to_give_way(operation),
            None => current::count_question() % IN_A_ROW == 0,
        })
}

/// For what awaits the reactor: pending, to be polled again at once, if the timeslice is spent. So a
/// socket or a timer that is always ready cannot hold its worker, nor keep a timeout around it from
/// its turn.
#[inline]
pub(crate) fn poll_if_due(cx: &mut Context<'_>) -> Poll<()> {
    if !is_due(true) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn give_way(cx: &mut Context<'_>, yielded: &mut bool) -> Poll<()> {
    if std::mem::replace(yielded, true) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Runs `future` without [`yield_if_due`] ever giving way in it.
///
/// For what must go on as long as it can. It can hold its worker as long as it likes, and then
/// the tasks behind it wait for the ticker to move them.
///
/// # Examples
/// ```
/// paceline::block_on(paceline::unconstrained(async {
///     paceline::yield_if_due().await; // ready, whatever the slice
/// }));
/// ```
pub fn unconstrained<F: Future>(future: F) -> Unconstrained<F> {
    Unconstrained { future }
}

/// The future of [`unconstrained`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Unconstrained<F> {
    future: F,
}

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        struct Restore(bool);
        impl Drop for Restore {
            fn drop(&mut self) {
                current::set_unconstrained(self.0);
            }
        }
        let _restore = Restore(current::set_unconstrained(true));
        // SAFETY: `future` is pinned as `self` is; it is not moved before it is dropped in place.
        unsafe { self.map_unchecked_mut(|this| &mut this.future) }.poll(cx)
    }
}
