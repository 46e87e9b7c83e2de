//! No poll too many, none too few.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use futures_lite::future::block_on;

use super::{Ex, assert_works, bell, counts_polls, idle_run, poll_idly, tick_all, yields};
use crate::common::watched;

fn counters() -> (Arc<AtomicUsize>, Arc<AtomicBool>) {
    Default::default()
}

#[test]
fn a_task_that_nobody_wakes_is_polled_once() {
    watched("", || {
        let (ex, (polls, done)) = (Ex::new(), counters());
        let tasks: Vec<_> =
            (0..10).map(|_| ex.spawn(counts_polls(&polls, |_| {}, &done))).collect();
        block_on(ex.run(yields(100)));
        for _ in 0..100 {
            assert_works(&ex);
        }
        assert!(!ex.try_tick());
        drop(ex);
        assert_eq!(polls.load(SeqCst), 10);
        assert!(tasks.iter().all(|task| task.is_finished()));
    });
}

#[test]
fn a_ready_main_future_is_polled_once() {
    watched("", || {
        let (ex, mut polls) = (Ex::new(), 0);
        ex.spawn(yields(10)).detach();
        let output = block_on(ex.run(poll_fn(|cx| {
            polls += 1;
            // A wake that comes with the end is no reason to poll again.
            cx.waker().wake_by_ref();
            Poll::Ready("output")
        })));
        assert_eq!((output, polls), ("output", 1));
    });
}

#[test]
fn a_main_future_is_polled_again_when_woken() {
    watched("", || {
        let (ex, mut polls) = (Ex::new(), 0);
        block_on(ex.run(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls == 1_000 { Poll::Ready(()) } else { Poll::Pending }
        })));
        assert_eq!(polls, 1_000);
    });
}

#[test]
fn wakes_before_a_poll_count_as_one_and_one_during_it_brings_another() {
    watched("", || {
        let (ex, (polls, done)) = (Ex::new(), counters());
        let (lend, lent) = mpsc::channel();
        let lend = move |waker: &Waker| lend.send(waker.clone()).unwrap();
        let task = ex.spawn(counts_polls(&polls, lend, &done));
        tick_all(&ex);
        let waker = lent.recv().unwrap();
        for polled in 2..10 {
            (0..3).for_each(|_| waker.wake_by_ref());
            assert!(ex.try_tick() && !ex.try_tick());
            assert_eq!(polls.load(SeqCst), polled);
        }
        drop(task);
        tick_all(&ex);

        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let task = ex.spawn(poll_fn(move |cx| {
            (0..3).for_each(|_| cx.waker().wake_by_ref());
            if counted.fetch_add(1, SeqCst) == 9 { Poll::Ready(()) } else { Poll::Pending }
        }));
        (0..10).for_each(|_| assert!(ex.try_tick()));
        assert!(task.is_finished() && !ex.try_tick());
        assert_eq!(polls.load(SeqCst), 10);
    });
}

#[test]
fn a_wake_after_the_end_brings_no_poll() {
    watched("", || {
        let (ex, (polls, done), (lend, lent)) = (Ex::new(), counters(), mpsc::channel());
        done.store(true, SeqCst);
        let lend = move |waker: &Waker| lend.send(waker.clone()).unwrap();
        let task = ex.spawn(counts_polls(&polls, lend, &done));
        assert!(ex.try_tick());
        let waker = lent.recv().unwrap();
        waker.wake_by_ref();
        assert!(!ex.try_tick());
        block_on(ex.run(task));
        waker.wake();
        assert!(!ex.try_tick());
        assert_eq!(polls.load(SeqCst), 1);
    });
}

#[test]
fn a_tick_polls_one_task_once() {
    watched("", || {
        let (ex, (polls, done)) = (Ex::new(), counters());
        assert!(!ex.try_tick());
        let wakes_itself = |waker: &Waker| waker.wake_by_ref();
        let _tasks = [0; 5].map(|_| ex.spawn(counts_polls(&polls, wakes_itself, &done)));
        for polled in 1..20 {
            if polled % 2 == 0 {
                assert!(ex.try_tick());
            } else {
                block_on(ex.tick());
            }
            assert_eq!(polls.load(SeqCst), polled);
        }
    });
}

#[test]
fn nothing_is_polled_unless_somebody_drives() {
    watched("", || {
        let (ex, (polls, done)) = (Ex::new(), counters());
        {
            let _tasks = [0; 5].map(|_| ex.spawn(counts_polls(&polls, |_| {}, &done)));
            let _run = ex.run(pending::<()>());
            let _tick = ex.tick();
            assert!(!ex.is_empty());
        }
        drop(ex);
        assert_eq!(polls.load(SeqCst), 0);
    });
}

#[test]
fn an_idle_run_or_tick_is_woken_by_a_spawn_and_a_wake_once_each() {
    watched("", || {
        let (ex, (polls, done)) = (Ex::new(), counters());
        let (lend, lent) = mpsc::channel();
        let (waker, rings) = bell();
        let mut cx = Context::from_waker(&waker);
        let mut run = pin!(idle_run(&ex));
        assert!(run.as_mut().poll(&mut cx).is_pending());
        assert_eq!(rings.load(SeqCst), 0);
        let lend = move |waker: &Waker| lend.send(waker.clone()).unwrap();
        let _task = ex.spawn(counts_polls(&polls, lend, &done));
        assert_eq!(rings.load(SeqCst), 1);
        assert!(run.as_mut().poll(&mut cx).is_pending());
        assert_eq!((polls.load(SeqCst), rings.load(SeqCst)), (1, 1));
        lent.recv().unwrap().wake();
        assert_eq!(rings.load(SeqCst), 2);
        assert!(run.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.load(SeqCst), 2);

        let ex = Ex::new();
        let mut tick = pin!(ex.tick());
        assert!(tick.as_mut().poll(&mut cx).is_pending());
        let _task = ex.spawn(async {});
        assert_eq!(rings.load(SeqCst), 3);
        assert!(tick.as_mut().poll(&mut cx).is_ready());
    });
}

#[test]
fn a_run_or_tick_wakes_the_waker_that_polled_it_last() {
    watched("", || {
        let [(first, first_rings), (second, second_rings)] = [bell(), bell()];
        let ex = Ex::new();
        let mut run = pin!(idle_run(&ex));
        assert!(run.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        assert!(run.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
        ex.spawn(async {}).detach();
        assert_eq!((first_rings.load(SeqCst), second_rings.load(SeqCst)), (0, 1));
        // Woken, and polled by somebody else.
        assert!(run.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        ex.spawn(async {}).detach();
        assert_eq!((first_rings.load(SeqCst), second_rings.load(SeqCst)), (1, 1));

        let ex = Ex::new();
        let mut tick = pin!(ex.tick());
        assert!(tick.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        assert!(tick.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
        ex.spawn(async {}).detach();
        assert_eq!((first_rings.load(SeqCst), second_rings.load(SeqCst)), (1, 2));
        assert!(poll_idly(tick).is_ready());
    });
}
