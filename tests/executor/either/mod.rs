//! What both executors promise, driven by one thread; others wake. These files are compiled for each
//! of them: `Ex` is the one at hand.

mod ends;
mod fair;
mod panics;
mod polls;
mod races;
pub mod runs;
mod shape;
mod turns;
mod wakes;

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use crate::common::waker_that;
use crate::{Ex, Shared, ex};

pub fn poll_idly<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker, and how often it was called.
pub fn bell() -> (Waker, Arc<AtomicUsize>) {
    let rings = Arc::new(AtomicUsize::new(0));
    let counted = rings.clone();
    (waker_that(move || _ = counted.fetch_add(1, SeqCst)), rings)
}

/// A future under its own waker, polled when this test says so.
pub struct Puppet<F: Future> {
    future: Pin<Box<F>>,
    waker: Waker,
    woken: Arc<AtomicBool>,
}

impl<F: Future> Puppet<F> {
    pub fn new(future: F) -> Self {
        let woken = Arc::new(AtomicBool::new(true));
        let flag = woken.clone();
        let waker = waker_that(move || flag.store(true, SeqCst));
        Puppet { future: Box::pin(future), waker, woken }
    }

    /// True at first, and after a wake-up that no poll has followed.
    pub fn is_woken(&self) -> bool {
        self.woken.load(SeqCst)
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        self.woken.store(false, SeqCst);
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }

    /// Polls while it is woken, as an executor would.
    pub fn settle(&mut self) -> Poll<F::Output> {
        while self.is_woken() {
            if let Poll::Ready(output) = self.poll() {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }
}

/// `true` for what is of that auto trait: an inherent function goes before a trait's.
macro_rules! implements {
    ($type:ty: $auto:ident) => {{
        #[allow(dead_code)] // where the answer is yes
        trait Otherwise {
            fn answer() -> bool {
                false
            }
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Asked<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)] // where the answer is no
        impl<T: ?Sized + $auto> Asked<T> {
            fn answer() -> bool {
                true
            }
        }
        <Asked<$type>>::answer()
    }};
}
pub(crate) use implements;

/// Counts its polls; pending until `done`, and tells `lend` its waker.
pub fn counts_polls<L: FnMut(&Waker) + Send>(
    polls: &Arc<AtomicUsize>,
    mut lend: L,
    done: &Arc<AtomicBool>,
) -> impl Future<Output = ()> + Send + use<L> {
    let (polls, done) = (polls.clone(), done.clone());
    poll_fn(move |cx| {
        polls.fetch_add(1, SeqCst);
        lend(cx.waker());
        if done.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Gives way so many times.
pub async fn yields(times: usize) {
    for _ in 0..times {
        futures_lite::future::yield_now().await;
    }
}

/// Takes a little time, so much of it.
pub fn linger(steps: usize) {
    (0..steps).for_each(|step| _ = std::hint::black_box(step));
}

/// The executor still does its work.
#[track_caller]
pub fn assert_works(ex: &Ex<'_>) {
    let tasks: Vec<_> = (0..10)
        .map(|i| {
            ex.spawn(async move {
                yields(2).await;
                i
            })
        })
        .collect();
    let sum = futures_lite::future::block_on(ex.run(async {
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    }));
    assert_eq!(sum, 45);
}

pub fn idle_run<'e, 'a>(ex: &'e Ex<'a>) -> impl Future<Output = ()> + use<'e, 'a> {
    ex.run(pending::<()>())
}

/// Polls what is there to be polled. Only for executors without a `run`.
pub fn tick_all(ex: &Ex<'_>) {
    while ex.try_tick() {}
}
