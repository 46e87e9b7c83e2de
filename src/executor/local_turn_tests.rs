//! Tests of a local executor's turns: when it looks up, when it gives way, and what it owes to a host's
//! callback.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::future::yield_now;

use crate::executor::LocalExecutor;

fn elsewhere<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// A future that gives its waker away, and is ready when it is polled again.
fn given_away(to: mpsc::Sender<Waker>) -> impl Future<Output = ()> {
    let mut to = Some(to);
    poll_fn(move |cx| match to.take() {
        None => Poll::Ready(()),
        Some(to) => {
            to.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }
    })
}

/// Two tasks that wake each other for ever, and so stay in the wake slot while their slice lasts.
fn spawn_chain(executor: &LocalExecutor<'_>) {
    let wakers = Rc::new([RefCell::new(None::<Waker>), RefCell::new(None)]);
    for own in [0, 1] {
        let wakers = wakers.clone();
        let link = poll_fn(move |cx| {
            wakers[own].replace(Some(cx.waker().clone()));
            let other = wakers[1 - own].take();
            other.into_iter().for_each(Waker::wake);
            Poll::<()>::Pending
        });
        executor.spawn(link).detach();
    }
}

#[test]
fn chains_on_endless_slices_do_not_keep_what_comes_from_elsewhere_waiting() {
    let executor = LocalExecutor::with(true, Duration::MAX);
    let (to, wakers) = mpsc::channel();
    let mut waits = Vec::new();
    executor.spawn_many((0..3).map(|_| given_away(to.clone())), &mut waits);
    spawn_chain(&executor);
    spawn_chain(&executor);
    let ticks = |n: usize| (0..n).for_each(|_| assert!(executor.try_tick()));
    ticks(300);
    for _ in 0..3 {
        let waker: Waker = wakers.recv().unwrap();
        elsewhere(|| waker.wake());
    }
    assert!(waits.iter().all(|task| !task.is_finished()));
    ticks(3_000);
    assert!(waits.iter().all(|task| task.is_finished()));
}

#[test]
fn a_chain_on_an_endless_slice_keeps_no_main_future_waiting() {
    let executor = LocalExecutor::with(true, Duration::MAX);
    spawn_chain(&executor);
    let (to, wakers) = mpsc::channel();
    let mut run = Box::pin(executor.run(async {
        // Once from elsewhere, once from here.
        given_away(to.clone()).await;
        given_away(to).await;
    }));
    let mut poll = || run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    let waker = wakers.recv().unwrap();
    elsewhere(|| waker.wake());
    assert!((0..3).all(|_| poll().is_pending()));
    wakers.try_recv().unwrap().wake();
    assert!(poll().is_ready());
}

/// How many polls of at least a millisecond a run makes before it gives way for the first time.
fn long_polls(executor: &LocalExecutor<'_>) -> usize {
    let polls = Rc::new(Cell::new(0));
    for _ in 0..200 {
        let polls = polls.clone();
        let long = async move {
            polls.set(polls.get() + 1);
            #[allow(clippy::disallowed_methods)] // a poll that takes long is what is tested
            std::thread::sleep(Duration::from_millis(1));
        };
        executor.spawn(long).detach();
    }
    let mut run = Box::pin(executor.run(pending::<()>()));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    polls.get()
}

#[test]
fn a_fresh_run_gives_way_after_few_long_polls() {
    assert!(long_polls(&LocalExecutor::new()) <= 4);
}

#[test]
fn a_run_that_knew_short_polls_only_gives_way_after_half_a_turn_of_long_ones() {
    let executor = LocalExecutor::new();
    let task = executor.spawn(async {
        for _ in 0..10_000 {
            yield_now().await;
        }
    });
    crate::block_on(executor.run(task));
    assert!(long_polls(&executor) <= 66);
}

/// A callback's captive, whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a callback's destructor");
    }
}

#[test]
fn a_callback_whose_destructor_panics_is_replaced_by_one_that_is_called() {
    let executor = LocalExecutor::new();
    let bomb = Bomb;
    executor.on_ready(move || _ = &bomb);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    executor.on_ready(move || _ = count.fetch_add(1, SeqCst));
    executor.spawn(async {}).detach();
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn a_callback_whose_destructor_panics_goes_with_its_executor() {
    let executor = LocalExecutor::new();
    let bomb = Bomb;
    executor.on_ready(move || _ = &bomb);
    drop(executor);
}

/// The last to hold it is a waker's thread, which is in the middle of a call.
#[test]
fn a_callback_whose_destructor_panics_does_no_harm_to_who_wakes() {
    let executor = LocalExecutor::new();
    let (bomb, meet) = (Bomb, Arc::new(Barrier::new(2)));
    let (to, wakers) = mpsc::channel();
    executor.spawn(given_away(to)).detach();
    assert!(executor.run_until_stalled(Duration::from_secs(60)));
    let there = meet.clone();
    executor.on_ready(move || {
        let _bomb = &bomb;
        // It is being called; it has been replaced.
        there.wait();
        there.wait();
    });
    let waker: Waker = wakers.recv().unwrap();
    std::thread::scope(|scope| {
        let wakes = scope.spawn(|| waker.wake());
        meet.wait();
        executor.on_ready(|| {});
        meet.wait();
        wakes.join().unwrap();
    });
}
