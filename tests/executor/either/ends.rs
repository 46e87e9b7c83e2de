//! How executors, tasks and wakers end, in every order.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::{mem, panic, thread};

use futures_lite::future::block_on;

use super::{Ex, Shared, bell, tick_all, yields};
use crate::common::{Census, lend_waker, on_drop, poll_once, watched};

/// What is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Executor,
    Task,
    Waker,
}
use Part::{Executor, Task};

const ORDERS: [[Part; 3]; 6] = [
    [Executor, Task, Part::Waker],
    [Executor, Part::Waker, Task],
    [Task, Executor, Part::Waker],
    [Task, Part::Waker, Executor],
    [Part::Waker, Executor, Task],
    [Part::Waker, Task, Executor],
];

/// How far the task has come before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    NeverPolled,
    Pending,
    Finished,
}

/// What is done between the drops.
#[derive(Clone, Copy, Debug)]
struct Between {
    /// The waker is called, not dropped.
    wakes: bool,
    /// What is to be polled is polled, while there is an executor.
    ticks: bool,
}

fn drop_in(order: [Part; 3], stage: Stage, between: Between) {
    struct Awaits;
    impl Wake for Awaits {
        fn wake(self: Arc<Self>) {}
    }
    let case = format!("{order:?} {stage:?} {between:?}");
    let (futures, outputs, awaits) = (Census::new(), Census::new(), Arc::new(Awaits));
    let ex = Ex::new();
    let (lend, lent) = mpsc::channel();
    let (future, output) = (futures.one(), outputs.one());
    let mut task = ex.spawn(async move {
        let _future = future;
        poll_fn(|cx| {
            // Nobody wants a second one.
            let _ = lend.send(cx.waker().clone());
            if stage == Stage::Finished { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        output
    });
    assert!(poll_once(&mut task, &Waker::from(awaits.clone())).is_pending());
    if stage != Stage::NeverPolled {
        assert!(ex.try_tick());
    }
    let mut waker = lent.try_recv().ok();
    assert_eq!(waker.is_none(), stage == Stage::NeverPolled);
    let (mut ex, mut task) = (Some(ex), Some(task));
    for part in order {
        match part {
            Executor => drop(ex.take()),
            Task => drop(task.take()),
            Part::Waker if between.wakes => waker.take().into_iter().for_each(Waker::wake),
            Part::Waker => drop(waker.take()),
        }
        if between.ticks {
            ex.iter().for_each(tick_all);
        }
        let must_be_over = ex.is_none() || stage == Stage::Finished;
        let may_be_over = must_be_over || task.is_none() || (between.ticks && waker.is_none());
        assert!(futures.dead() == 1 || !must_be_over, "{case}: {part:?}");
        assert!(futures.dead() == 0 || may_be_over, "{case}: {part:?}");
        if stage == Stage::Finished {
            assert_eq!(outputs.dead(), usize::from(task.is_none()), "{case}: {part:?}");
        }
    }
    assert_eq!((futures.dead(), outputs.dead()), (1, 1), "{case}");
    assert_eq!(Arc::strong_count(&awaits), 1, "{case}: the awaiter is forgotten");
}

#[test]
fn executor_task_and_waker_are_dropped_in_any_order() {
    watched("in six orders", || {
        for order in ORDERS {
            for stage in [Stage::NeverPolled, Stage::Pending, Stage::Finished] {
                for (wakes, ticks) in [(false, false), (false, true), (true, false), (true, true)] {
                    drop_in(order, stage, Between { wakes, ticks });
                }
            }
        }
    });
}

/// Never polled, waiting, woken, about to run again, finished, detached, cancelled.
#[test]
fn every_future_is_dropped_by_the_time_the_executor_is() {
    watched("a thousand times", || {
        for round in 0..1_000 {
            let (census, (lend, lent)) = (Census::new(), mpsc::channel());
            let ex = Ex::new();
            let waits = || {
                let (one, lend) = (census.one(), lend.clone());
                async move {
                    let _one = one;
                    lend_waker(lend).await;
                }
            };
            let yields = |times| {
                let one = census.one();
                async move {
                    yields(times).await;
                    drop(one);
                }
            };
            let mut kept = Vec::new();
            for _ in 0..4 {
                kept.push(ex.spawn(waits()));
                kept.push(ex.spawn(yields(2)));
                kept.push(ex.spawn(yields(1_000)));
                ex.spawn(waits()).detach();
                drop(ex.spawn(waits()));
            }
            block_on(ex.run(super::yields(round % 5)));
            kept.push(ex.spawn(waits()));
            ex.spawn(waits()).detach();
            lent.try_iter().step_by(2).for_each(Waker::wake);
            drop(ex);
            assert_eq!(census.dead(), census.born(), "in round {round}");
        }
    });
}

#[test]
fn a_waker_outlives_its_executor_and_does_nothing_then() {
    watched("", || {
        let (census, (lend, lent)) = (Census::new(), mpsc::channel());
        let ex = Ex::new();
        let one = census.one();
        let task = ex.spawn(async move {
            let _one = one;
            lend_waker(lend).await;
        });
        tick_all(&ex);
        let waker = lent.recv().unwrap();
        drop(ex);
        assert_eq!(census.dead(), 1);
        waker.wake_by_ref();
        let clone = waker.clone();
        thread::spawn(move || clone.wake()).join().unwrap();
        drop(task);
        waker.wake_by_ref();
        drop(waker.clone());
        waker.wake();
        assert_eq!(census.dead(), 1);
    });
}

#[test]
fn a_leaked_executor_leaks_its_tasks_and_they_stay_pending() {
    watched("", || {
        let census = Census::new();
        let ex = Ex::new();
        let (one, other, (lend, lent)) = (census.one(), census.one(), mpsc::channel());
        let mut polled = ex.spawn(async move {
            let _one = one;
            lend_waker(lend).await;
        });
        tick_all(&ex);
        let mut never_polled = ex.spawn(async move { drop(other) });
        mem::forget(ex);
        let (waker, rings) = bell();
        lent.recv().unwrap().wake();
        assert!(poll_once(&mut polled, &waker).is_pending());
        assert!(poll_once(&mut never_polled, &waker).is_pending());
        assert_eq!((census.dead(), rings.load(SeqCst)), (0, 0));
        drop((polled, never_polled));
        assert_eq!(census.dead(), 0);
    });
}

#[test]
fn an_output_outlives_the_executor_also_a_borrowed_one() {
    watched("", || {
        let text = String::from("borrowed");
        let ex = Ex::new();
        let borrowed: crate::ex::Task<&str> = ex.spawn(async { &text[..6] });
        let fallible = ex.spawn(async { &text });
        let cancelled = ex.spawn(async { text.len() });
        tick_all(&ex);
        assert!(borrowed.is_finished());
        drop(ex);
        assert_eq!(block_on(borrowed), "borrow");
        assert_eq!(block_on(fallible.fallible()), Some(&text));
        assert_eq!(block_on(cancelled.cancel()), Some(8));
    });
}

#[test]
fn a_task_cancelled_by_the_executors_end_says_so() {
    watched("", || {
        for is_polled in [false, true] {
            let ex = Ex::new();
            let [awaited, fallible, cancelled, detached] =
                [0; 4].map(|_| ex.spawn(pending::<()>()));
            if is_polled {
                tick_all(&ex);
            }
            assert!(!awaited.is_finished());
            drop(ex);
            assert!(awaited.is_finished());
            assert!(panic::catch_unwind(|| block_on(awaited)).is_err());
            assert_eq!(block_on(fallible.fallible()), None);
            assert_eq!(block_on(cancelled.cancel()), None);
            detached.detach();
        }
    });
}

#[test]
fn whoever_awaits_a_task_is_woken_by_the_executors_end() {
    watched("", || {
        let ex = Ex::new();
        let (mut polled, mut never_polled) = (ex.spawn(pending::<()>()).fallible(), None);
        tick_all(&ex);
        let (waker, rings) = bell();
        assert!(poll_once(&mut polled, &waker).is_pending());
        let other = never_polled.insert(ex.spawn(pending::<()>()).fallible());
        assert!(poll_once(other, &waker).is_pending());
        let third = ex.spawn(pending::<()>()).fallible();
        let waits = thread::spawn(move || block_on(third));
        assert_eq!(rings.load(SeqCst), 0);
        drop(ex);
        assert_eq!(rings.load(SeqCst), 2);
        assert_eq!(poll_once(&mut polled, &waker), Poll::Ready(None));
        assert_eq!(poll_once(other, &waker), Poll::Ready(None));
        assert_eq!(waits.join().unwrap(), None);
    });
}

#[test]
fn a_dropped_task_is_polled_no_more_and_its_future_dropped() {
    watched("", || {
        let (census, polls, done) = (Census::new(), Arc::new(AtomicUsize::new(0)), Arc::default());
        let ex = Ex::new();
        let spawn = || {
            let (one, polled) = (census.one(), super::counts_polls(&polls, |_| {}, &done));
            ex.spawn(async move {
                let _one = one;
                polled.await;
            })
        };
        drop(spawn());
        tick_all(&ex);
        let (waits, fallible) = (spawn(), spawn().fallible());
        tick_all(&ex);
        assert_eq!((polls.load(SeqCst), census.dead()), (2, 1));
        drop((waits, fallible));
        tick_all(&ex);
        assert_eq!((polls.load(SeqCst), census.dead()), (2, 3));
        assert!(ex.is_empty());
    });
}

#[test]
fn a_cancelled_task_is_over_once_that_is_awaited() {
    watched("", || {
        let census = Census::new();
        let ex = Ex::new();
        let spawn = || {
            let one = census.one();
            ex.spawn(async move {
                let _one = one;
                pending::<()>().await;
            })
        };
        block_on(ex.run(async {
            for polled in 0..3 {
                let (task, other) = (spawn(), spawn());
                yields(polled).await;
                assert_eq!(task.cancel().await, None);
                assert_eq!(other.fallible().cancel().await, None);
                assert_eq!(census.dead(), census.born());
            }
            let finished = ex.spawn(async { 5 });
            while !finished.is_finished() {
                yields(1).await;
            }
            assert_eq!(finished.cancel().await, Some(5));
        }));
        assert!(ex.is_empty());
    });
}

#[test]
fn a_detached_task_runs_to_its_end() {
    watched("", || {
        let (ex, (tell, told)) = (Ex::new(), mpsc::channel());
        for i in 0..10 {
            let tell = tell.clone();
            let task = ex.spawn(async move {
                yields(i).await;
                tell.send(i).unwrap();
            });
            if i % 2 == 0 { task.detach() } else { task.fallible().detach() }
        }
        tick_all(&ex);
        let mut ended: Vec<_> = told.try_iter().collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..10));
    });
}

#[test]
fn destructors_that_wake_each_other_while_the_executor_ends_finish() {
    watched("", || {
        for _ in 0..100 {
            let (census, (lend, lent)) = (Census::new(), mpsc::channel::<Waker>());
            let ex = Ex::new();
            let wakers = Arc::new(std::sync::Mutex::new(Vec::<Waker>::new()));
            for _ in 0..10 {
                let (one, lend, wakers) = (census.one(), lend.clone(), wakers.clone());
                ex.spawn(async move {
                    let _one = one;
                    let _wakes = on_drop(|| {
                        let all = wakers.lock().unwrap();
                        all.iter().for_each(Waker::wake_by_ref);
                    });
                    lend_waker(lend).await;
                })
                .detach();
            }
            tick_all(&ex);
            wakers.lock().unwrap().extend(lent.try_iter());
            drop(ex);
            assert_eq!(census.dead(), 10);
        }
    });
}

#[test]
fn tasks_that_hold_each_others_handles_end_with_the_executor() {
    watched("", || {
        let census = Census::new();
        let ex = Ex::new();
        for _ in 0..20 {
            let cell = Arc::new(std::sync::Mutex::new(None));
            let (one, held) = (census.one(), cell.clone());
            let task = ex.spawn(async move {
                let _held = (one, held);
                pending::<()>().await;
            });
            *cell.lock().unwrap() = Some(task);
        }
        block_on(ex.run(yields(1)));
        drop(ex);
        assert_eq!(census.dead(), 20);
    });
}

#[test]
fn a_destructor_may_spawn_wake_and_lock() {
    watched("", || {
        let ex = Shared::new(Ex::new());
        let lock = Arc::new(std::sync::Mutex::new(0));
        let (tell, told) = mpsc::channel();
        let (lend, lent) = mpsc::channel();
        ex.spawn(lend_waker(lend)).detach();
        tick_all(&ex);
        let other = lent.recv().unwrap();
        for round in 0..50 {
            let (lock, other, tell, inner) =
                (lock.clone(), other.clone(), tell.clone(), ex.clone());
            let guard = on_drop(move || {
                let mut held = lock.lock().unwrap();
                *held += 1;
                other.wake();
                let lock = lock.clone();
                // It needs the lock that is held here.
                inner.spawn(async move { tell.send(*lock.lock().unwrap()).unwrap() }).detach();
            });
            let task = ex.spawn(async move {
                let _guard = guard;
                // Dropped at its end, or by being cancelled.
                if round % 2 == 0 {
                    pending::<()>().await;
                }
            });
            tick_all(&ex);
            drop(task);
            tick_all(&ex);
        }
        assert_eq!(*lock.lock().unwrap(), 50);
        assert!(told.try_iter().eq(1..=50));
    });
}

#[test]
fn an_executor_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static EX: Ex<'static> = const { Ex::new() };
    }
    watched("", || {
        let census = Census::new();
        let (one, other, finished) = (census.one(), census.one(), Arc::new(AtomicBool::new(false)));
        let done = finished.clone();
        let body = move || {
            EX.with(|ex| {
                let task = async move {
                    let _one = one;
                    pending::<()>().await;
                };
                ex.spawn(task).detach();
                block_on(ex.run(ex.spawn(async move { done.store(true, SeqCst) })));
                ex.spawn(async move { drop(other) }).detach();
            });
        };
        thread::spawn(body).join().unwrap();
        assert!(finished.load(SeqCst));
        assert_eq!(census.dead(), 2);
    });
}
