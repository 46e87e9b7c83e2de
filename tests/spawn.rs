//! What a spawned task may rely on: spawn, join, cancel, panic, and `block_on` beside it.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones; polls sleep to be long

mod common;

use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use paceline::{Handle, Runtime, Task, block_on, spawn};

use common::{
    Census, hand_made, lend_waker, on_drop, on_each, on_each_size, poll_once, silent_panic,
};

/// The workers still do their work.
fn assert_works(runtime: &Runtime) {
    assert_eq!(runtime.block_on(runtime.spawn(async { 7 })), 7);
    // Not on the thread of `block_on`.
    let (tx, rx) = mpsc::channel();
    runtime.spawn(async move { tx.send(7).unwrap() }).detach();
    assert_eq!(rx.recv(), Ok(7));
}

fn runtime_here() -> String {
    Handle::try_current().expect("a worker").config().thread_name().to_owned()
}

#[test]
fn hundreds_of_tasks_are_completed_by_a_foreign_thread() {
    on_each(|runtime| {
        for count in [200, 500] {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..count).map(|_| oneshot::channel()).unzip();
            let tasks: Vec<_> = receivers.into_iter().map(|rx| runtime.spawn(rx)).collect();
            let foreign = thread::spawn(move || {
                senders.into_iter().enumerate().for_each(|(i, tx)| tx.send(i).unwrap());
            });
            let outputs = runtime.block_on(futures::future::join_all(tasks));
            foreign.join().unwrap();
            assert!(outputs.into_iter().map(Result::unwrap).eq(0..count));
        }
    });
}

#[test]
fn nested_joins_give_their_outputs() {
    fn fibonacci(n: u32) -> Task<u32> {
        spawn(async move {
            if n < 2 {
                return n;
            }
            let (a, b) = (fibonacci(n - 1), fibonacci(n - 2));
            a.await + b.await
        })
    }
    on_each(|runtime| assert_eq!(runtime.block_on(async { fibonacci(14).await }), 377));
}

#[test]
fn foreign_threads_spawn() {
    on_each(|runtime| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let handle = runtime.handle().clone();
                thread::spawn(move || {
                    (0..100).map(|j| handle.spawn(async move { i * j })).collect()
                })
            })
            .collect();
        let tasks: Vec<Task<i32>> =
            threads.into_iter().flat_map(|t| -> Vec<_> { t.join().unwrap() }).collect();
        let sum: i32 = runtime.block_on(futures::future::join_all(tasks)).into_iter().sum();
        assert_eq!(sum, 6 * 4950);
    });
}

#[test]
fn a_worker_of_another_runtime_spawns() {
    on_each_size(|workers| {
        let build =
            |name| Runtime::builder().worker_threads(workers).thread_name(name).build().unwrap();
        let (here, there) = (build("here"), build("there"));
        let far = there.handle().clone();
        let task = here.spawn(async move {
            let far =
                far.spawn(async { (runtime_here(), thread::current().name().unwrap().to_owned()) });
            (runtime_here(), far.await)
        });
        let (near, (runtime, thread)) = here.block_on(task);
        assert_eq!((&*near, &*runtime, &*thread), ("here", "there", "there"));
    });
}

#[test]
fn a_destructor_spawns() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let guard =
            on_drop(move || spawn(async move { tx.send(runtime_here()).unwrap() }).detach());
        runtime.spawn(async move { drop(guard) }).detach();
        assert_eq!(rx.recv().unwrap(), "paceline-worker");
    });
}

#[test]
fn a_detached_task_runs_to_its_end() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let (release, gate) = oneshot::channel::<()>();
        runtime.spawn(async move { tx.send(gate.await).unwrap() }).detach();
        release.send(()).unwrap();
        assert_eq!(rx.recv().unwrap(), Ok(()));
    });
}

#[test]
fn a_dropped_handle_cancels_its_task() {
    on_each(|runtime| {
        for waits in [false, true] {
            let (dropped, heard) = mpsc::channel();
            let (tx, rx) = mpsc::channel();
            let guard = on_drop(move || dropped.send(()).unwrap());
            let task = runtime.spawn(async move {
                let _guard = guard;
                lend_waker(tx).await;
            });
            if waits {
                rx.recv().unwrap();
            }
            drop(task);
            heard.recv().expect("the future is dropped, not forgotten");
        }
    });
}

#[test]
fn a_cancelled_task_is_dropped_although_its_handle_goes_at_once() {
    on_each(|runtime| {
        for polled in [false, true] {
            let (dropped, heard) = mpsc::channel();
            let guard = on_drop(move || dropped.send(()).unwrap());
            let task = runtime.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
            let mut cancel = Box::pin(task.cancel());
            if polled {
                let _ = poll_once(&mut cancel, Waker::noop());
            }
            drop(cancel);
            heard.recv().expect("the future is dropped, not forgotten");
        }
    });
}

#[test]
fn cancel_waits_until_the_future_is_dropped() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..100 {
            let one = census.one();
            let (tx, rx) = mpsc::channel();
            let task = runtime.spawn(async move {
                let _one = one;
                lend_waker(tx).await;
            });
            rx.recv().unwrap();
            assert_eq!(runtime.block_on(task.cancel()), None);
            assert_eq!(census.dead(), census.born());
        }
    });
}

#[test]
fn cancel_gives_the_output_of_a_finished_task() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let task = runtime.spawn(async move { on_drop(move || tx.send(()).unwrap()) });
        common::until(|| task.is_finished());
        let output = runtime.block_on(task.cancel());
        assert!(output.is_some() && rx.try_recv().is_err());
    });
}

#[test]
fn cancelling_races_completion_without_a_panic() {
    on_each(|runtime| {
        let census = Census::new();
        for round in 0..1_000 {
            let one = census.one();
            let (tx, rx) = oneshot::channel();
            let task = runtime.spawn(async move {
                let _one = one;
                rx.await
            });
            let start = Arc::new(Barrier::new(2));
            let foreign = thread::spawn({
                let start = start.clone();
                move || {
                    start.wait();
                    // Nobody may want it any more.
                    let _ = tx.send(round);
                }
            });
            start.wait();
            let output = runtime.block_on(task.cancel());
            assert!(output.is_none() || output == Some(Ok(round)), "{output:?}");
            assert_eq!(census.dead(), census.born());
            foreign.join().unwrap();
        }
    });
}

#[test]
fn a_handle_says_whether_its_task_is_finished() {
    on_each(|runtime| {
        let (tx, rx) = oneshot::channel::<()>();
        let task = runtime.spawn(rx);
        assert!(!task.is_finished());
        tx.send(()).unwrap();
        common::until(|| task.is_finished());
        let panicked = runtime.spawn(async { silent_panic() });
        common::until(|| panicked.is_finished());
        assert_eq!(runtime.block_on(task), Ok(()));
    });
}

#[test]
fn the_latest_waker_is_the_one_that_hears() {
    on_each(|runtime| {
        let (tx, rx) = oneshot::channel::<u32>();
        let mut task = runtime.spawn(rx);
        for _ in 0..3 {
            assert!(poll_once(&mut task, Waker::noop()).is_pending());
        }
        let waiter = runtime.spawn(task);
        tx.send(5).unwrap();
        assert_eq!(runtime.block_on(waiter), Ok(5));
    });
}

#[test]
fn a_handle_polled_by_reference_loses_nothing() {
    on_each(|runtime| {
        let (tx, rx) = oneshot::channel::<u32>();
        let output = runtime.block_on(async move {
            let mut task = spawn(rx);
            futures::future::select(&mut task, ready(())).await;
            tx.send(3).unwrap();
            task.await
        });
        assert_eq!(output, Ok(3));
    });
}

#[test]
fn a_panic_in_a_futures_destructor_is_contained() {
    on_each(|runtime| {
        // Dropped when cancelled, when it ended, when it panicked.
        let waits = runtime.spawn(hand_made(|_| Poll::<()>::Pending, || silent_panic()));
        assert_eq!(runtime.block_on(waits.cancel()), None);
        let ends = runtime.spawn(hand_made(|_| Poll::Ready(4), || silent_panic()));
        assert_eq!(runtime.block_on(ends), 4);
        let panics =
            runtime.spawn(hand_made(|_| -> Poll<()> { silent_panic() }, || silent_panic()));
        assert!(runtime.block_on(panics.join()).unwrap_err().is_panic());
        assert_works(&runtime);
    });
}

#[test]
fn a_panic_in_an_outputs_destructor_is_contained() {
    on_each(|runtime| {
        let bomb = || async { on_drop(|| silent_panic()) };
        runtime.spawn(bomb()).detach();
        let finished = runtime.spawn(bomb());
        common::until(|| finished.is_finished());
        drop(finished);
        let racing = runtime.spawn(bomb());
        drop(racing);
        assert_works(&runtime);
    });
}

#[test]
fn a_panicked_future_is_dropped_before_anybody_hears_of_it() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..200 {
            let one = census.one();
            let task = runtime.spawn(hand_made(|_| -> Poll<()> { silent_panic() }, || drop(one)));
            assert!(runtime.block_on(task.join()).unwrap_err().is_panic());
            assert_eq!(census.dead(), census.born());
        }
    });
}

#[test]
fn locals_of_a_future_are_dropped_while_its_panic_unwinds() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let task = runtime.spawn(async move {
            let _guard = on_drop(move || tx.send(thread::panicking()).unwrap());
            silent_panic()
        });
        let result: Result<(), _> = runtime.block_on(task.join());
        assert!(result.is_err() && rx.recv().unwrap());
    });
}

#[test]
fn a_panic_reaches_whoever_awaits_the_task() {
    on_each(|runtime| {
        let panics = || runtime.spawn(async { std::panic::resume_unwind(Box::new("cheese")) });
        let message = |result: thread::Result<()>| *result.unwrap_err().downcast::<&str>().unwrap();
        let caught = |f: &dyn Fn()| message(catch_unwind(AssertUnwindSafe(f)));
        assert_eq!(caught(&|| runtime.block_on(panics())), "cheese");
        assert_eq!(caught(&|| assert!(runtime.block_on(panics().fallible()).is_none())), "cheese");
        let error = runtime.block_on(panics().join()).unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled());
        assert_eq!(error.to_string(), "task panicked: cheese");
        assert_eq!(message(Err(error.into_panic())), "cheese");
        let finished = panics();
        common::until(|| finished.is_finished());
        let finished = Mutex::new(Some(finished));
        let cancel = || finished.lock().unwrap().take().unwrap().cancel();
        assert_eq!(caught(&|| assert!(runtime.block_on(cancel()).is_none())), "cheese");
        assert_works(&runtime);
    });
}

#[test]
fn a_panic_in_block_on_propagates_and_strands_nothing() {
    on_each(|runtime| {
        let census = Census::new();
        let (tx, rx) = mpsc::channel();
        let result: thread::Result<()> = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                for _ in 0..100 {
                    let (one, tx) = (census.one(), tx.clone());
                    spawn(async move {
                        drop(one);
                        tx.send(()).unwrap();
                    })
                    .detach();
                }
                silent_panic()
            })
        }));
        assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "silent");
        (0..100).for_each(|_| rx.recv().unwrap());
        assert_eq!(census.dead(), 100);
        assert_works(&runtime);
    });
}

#[test]
fn a_block_on_that_ends_strands_nothing() {
    on_each(|runtime| {
        for _ in 0..100 {
            let (tx, rx) = mpsc::channel();
            let (first, second) = oneshot::channel::<()>();
            runtime.block_on(async {
                for i in 0..50 {
                    let tx = tx.clone();
                    spawn(async move { tx.send(i).unwrap() }).detach();
                }
                // One in the wake slot, too.
                let waits = spawn(async move {
                    second.await.unwrap();
                    tx.send(50).unwrap();
                });
                paceline::yield_now().await;
                first.send(()).unwrap();
                waits.detach();
            });
            let mut seen: Vec<_> = rx.iter().collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..51));
        }
    });
}

#[test]
fn one_of_two_block_ons_ends_and_the_other_goes_on() {
    on_each(|runtime| {
        let (tx, rx) = async_channel::unbounded::<Task<u32>>();
        let other = thread::spawn({
            let handle = runtime.handle().clone();
            move || {
                handle.block_on(async move {
                    let mut sum = 0;
                    while let Ok(task) = rx.recv().await {
                        sum += task.await;
                    }
                    sum
                })
            }
        });
        for _ in 0..200 {
            runtime.block_on(async { tx.send(spawn(async { 1 })).await.unwrap() });
        }
        drop(tx);
        assert_eq!(other.join().unwrap(), 200);
    });
}

#[test]
fn ten_thousand_panics_cost_no_thread() {
    on_each_size(|workers| {
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let runtime = Runtime::builder()
            .worker_threads(workers)
            .on_thread_start(move || {
                count.fetch_add(1, SeqCst);
            })
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..10_000).map(|_| runtime.spawn(async { silent_panic() })).collect();
        for task in tasks {
            let result: Result<(), _> = futures::executor::block_on(task.join());
            assert!(result.unwrap_err().is_panic());
        }
        // A spare stands in for a worker that blocks, as one may on a lock of the unwinder's.
        assert!(started.load(SeqCst) <= 2 * workers, "{started:?} threads for {workers} workers");
        assert_works(&runtime);
    });
}

#[test]
fn a_task_that_nobody_wakes_is_polled_once() {
    on_each(|runtime| {
        let polls = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let polls = polls.clone();
                runtime.spawn(poll_fn(move |_| {
                    polls.fetch_add(1, SeqCst);
                    Poll::<()>::Pending
                }))
            })
            .collect();
        common::until(|| polls.load(SeqCst) >= 10);
        for _ in 0..100 {
            assert_works(&runtime);
        }
        drop(runtime);
        assert_eq!(polls.load(SeqCst), 10);
        assert!(tasks.iter().all(Task::is_finished));
    });
}

#[test]
fn a_ready_future_in_block_on_is_polled_once() {
    on_each(|runtime| {
        let mut polls = 0;
        runtime.block_on(poll_fn(|cx| {
            polls += 1;
            // A wake that comes with the end is no reason to poll again.
            cx.waker().wake_by_ref();
            Poll::Ready(())
        }));
        assert_eq!(polls, 1);
    });
}

#[test]
fn a_future_in_block_on_is_polled_as_often_as_woken() {
    on_each(|runtime| {
        let mut polls = 0;
        runtime.block_on(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            cx.waker().wake_by_ref();
            if polls == 10 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!(polls, 10);
    });
}

#[test]
fn a_destructor_may_spawn_wake_and_lock() {
    on_each(|runtime| {
        let lock = Arc::new(Mutex::new(0));
        let (wakers, lent) = mpsc::channel();
        let (tx, rx) = mpsc::channel();
        runtime.spawn(lend_waker(wakers)).detach();
        let other: Waker = lent.recv().unwrap();
        for _ in 0..100 {
            let (lock, other, tx) = (lock.clone(), other.clone(), tx.clone());
            let handle = runtime.handle().clone();
            let guard = on_drop(move || {
                let mut held = lock.lock().unwrap();
                *held += 1;
                other.wake();
                let lock = lock.clone();
                // Needs the lock that is held here: a task that ran inline would never end.
                let spawned = handle.spawn(async move { tx.send(*lock.lock().unwrap()).unwrap() });
                spawned.detach();
            });
            drop(runtime.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            }));
        }
        let seen: Vec<i32> = (0..100).map(|_| rx.recv().unwrap()).collect();
        assert!(seen.iter().all(|&n| n >= 1) && *lock.lock().unwrap() == 100);
    });
}

#[test]
fn tasks_in_a_cycle_with_their_handle_are_dropped_at_shutdown() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..20 {
            let (one, handle) = (census.one(), runtime.handle().clone());
            let own = Arc::new(Mutex::new(None::<Task<()>>));
            let cycle = own.clone();
            let task = runtime.spawn(async move {
                let _cycle = (one, cycle, handle);
                pending::<()>().await;
            });
            *own.lock().unwrap() = Some(task);
        }
        drop(runtime);
        assert_eq!((census.dead(), census.born()), (20, 20));
    });
}

#[test]
fn a_destructor_that_wakes_after_a_panic_is_harmless() {
    on_each(|runtime| {
        let (tx, rx) = oneshot::channel::<()>();
        let listener = runtime.spawn(rx);
        let own = Arc::new(Mutex::new(None::<Waker>));
        let kept = own.clone();
        let poll = move |cx: &mut std::task::Context<'_>| -> Poll<()> {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            silent_panic()
        };
        let wake_both = move || {
            own.lock().unwrap().take().unwrap().wake();
            tx.send(()).unwrap();
        };
        let task = runtime.spawn(hand_made(poll, wake_both));
        assert!(runtime.block_on(task.join()).unwrap_err().is_panic());
        assert_eq!(runtime.block_on(listener), Ok(()));
        assert_works(&runtime);
    });
}

#[test]
fn an_output_can_be_awaited_after_its_runtime_is_gone() {
    on_each(|runtime| {
        let tasks = [0; 3].map(|_| runtime.spawn(async { String::from("kept") }));
        common::until(|| tasks.iter().all(Task::is_finished));
        drop(runtime);
        let [awaited, joined, fallible] = tasks;
        assert_eq!(futures::executor::block_on(awaited), "kept");
        assert_eq!(futures::executor::block_on(joined.join()).unwrap(), "kept");
        assert_eq!(futures::executor::block_on(fallible.fallible()).unwrap(), "kept");
    });
}

#[test]
fn a_task_cancelled_by_its_runtimes_end_says_so() {
    on_each(|runtime| {
        let tasks = [0; 4].map(|_| runtime.spawn(pending::<()>()));
        drop(runtime);
        let [awaited, joined, fallible, cancelled] = tasks;
        let awaited = catch_unwind(AssertUnwindSafe(|| futures::executor::block_on(awaited)));
        assert!(awaited.unwrap_err().downcast::<&str>().unwrap().contains("cancelled"));
        let error = futures::executor::block_on(joined.join()).unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic());
        assert_eq!(futures::executor::block_on(fallible.fallible()), None);
        assert_eq!(futures::executor::block_on(cancelled.cancel()), None);
    });
}

#[test]
fn two_runtimes_on_one_thread_keep_their_tasks_apart() {
    on_each_size(|workers| {
        let build =
            |name| Runtime::builder().worker_threads(workers).thread_name(name).build().unwrap();
        let (outer, inner) = (build("outer"), build("inner"));
        // Waits to be woken, and says whose thread it runs on.
        let waits = |rx: oneshot::Receiver<()>| async move {
            let before = runtime_here();
            rx.await.unwrap();
            (before, runtime_here())
        };
        let spawn_some = |runtime: &Runtime| -> (Vec<_>, Vec<_>) {
            (0..50)
                .map(|_| oneshot::channel())
                .map(|(tx, rx)| (tx, runtime.spawn(waits(rx))))
                .unzip()
        };
        let (wake_outer, outer_tasks) = spawn_some(&outer);
        let (wake_inner, inner_tasks) = spawn_some(&inner);
        let seen = outer.block_on(async {
            inner.block_on(async {
                for (a, b) in wake_outer.into_iter().zip(wake_inner) {
                    a.send(()).unwrap();
                    b.send(()).unwrap();
                }
                let inner = futures::future::join_all(inner_tasks).await;
                (inner, futures::future::join_all(outer_tasks).await)
            })
        });
        let all = |name: &str, seen: Vec<(String, String)>| {
            seen.iter().all(|s| s.0 == name && s.1 == name)
        };
        assert!(all("inner", seen.0) && all("outer", seen.1));
    });
}

#[test]
fn block_on_and_spawn_nest_three_deep() {
    on_each(|runtime| {
        let answer = runtime.block_on(runtime.spawn(async {
            let handle = Handle::current();
            handle.block_on(spawn(async {
                let handle = Handle::current();
                handle.block_on(spawn(async { 42 }))
            }))
        }));
        assert_eq!(answer, 42);
    });
}

#[test]
fn the_default_runtime_nests_three_deep() {
    common::watched("on the default runtime", || {
        assert_eq!(
            block_on(spawn(async { block_on(spawn(async { block_on(spawn(async { 9 })) })) })),
            9
        );
    });
}

#[test]
fn block_ons_thread_works_while_it_waits() {
    on_each_size(|workers| {
        let runtime = common::runtime(workers);
        let here = thread::current().id();
        let ran_here = runtime.block_on(async {
            let mut ran_here = 0;
            for _ in 0..100 {
                ran_here += usize::from(spawn(async { thread::current().id() }).await == here);
            }
            ran_here
        });
        // With one worker the thread in `block_on` is that worker; with more, others may help.
        assert!(ran_here > 0 && (workers > 1 || ran_here == 100), "{ran_here} of 100");
    });
}

#[test]
fn no_more_tasks_run_at_once_than_there_are_workers() {
    on_each_size(|workers| {
        let runtime = common::runtime(workers);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let long_poll = || {
            let (running, most) = (running.clone(), most.clone());
            async move {
                for _ in 0..5 {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    // Long enough for all workers to be in a poll at once.
                    thread::sleep(Duration::from_millis(1));
                    running.fetch_sub(1, SeqCst);
                    paceline::yield_now().await;
                }
            }
        };
        let tasks: Vec<_> = (0..20).map(|_| runtime.spawn(long_poll())).collect();
        // Two threads in `block_on` beside the workers.
        let other = thread::spawn({
            let (handle, tasks) = (runtime.handle().clone(), [long_poll(), long_poll()]);
            move || handle.block_on(futures::future::join_all(tasks.map(|task| handle.spawn(task))))
        });
        runtime.block_on(futures::future::join_all(tasks));
        other.join().unwrap();
        assert!((1..=workers).contains(&most.load(SeqCst)), "{most:?} at once, {workers} workers");
    });
}

#[test]
fn a_blocked_task_keeps_nobody_from_working() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        let woke = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..8)
            .map(|i| {
                let (handle, woke) = (handle.clone(), woke.clone());
                runtime.spawn(async move {
                    let inner = handle.block_on(handle.spawn(async move { i }));
                    woke.store(true, SeqCst);
                    inner
                })
            })
            .collect();
        let outputs = runtime.block_on(futures::future::join_all(tasks));
        assert!(outputs.into_iter().eq(0..8) && woke.load(SeqCst));
    });
}
