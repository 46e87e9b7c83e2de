//! The ticker: rescue, the one-slice bound, its stop, its sleep.

#![allow(clippy::disallowed_methods)] // what is tested here is time

mod common;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::watched;
#[cfg(target_os = "linux")]
use common::{alone, assert_all_sleep};
use futures::{SinkExt, StreamExt};
use paceline::{Builder, Handle, Runtime, Ticker, spawn, yield_if_due, yield_now};

fn with(workers: usize, ticker: Ticker) -> Runtime {
    Builder::new().worker_threads(workers).ticker(ticker).build().unwrap()
}

/// A task that waits to be woken through `place`, then sends.
fn sleeper(
    place: Arc<Mutex<Option<Waker>>>,
    ran: mpsc::Sender<thread::ThreadId>,
) -> impl Future<Output = ()> + Send {
    let mut waiting = false;
    poll_fn(move |cx| {
        if !std::mem::replace(&mut waiting, true) {
            *place.lock().unwrap() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        ran.send(thread::current().id()).unwrap();
        Poll::Ready(())
    })
}

/// Wakes a task into the slot, then blocks the worker until that task has run.
fn block_after_a_wake(runtime: &Runtime) {
    let (ran, has_run) = mpsc::channel();
    let place = Arc::new(Mutex::new(None));
    runtime.block_on(async {
        let sleeper = spawn(sleeper(place.clone(), ran));
        while place.lock().unwrap().is_none() {
            yield_now().await;
        }
        spawn(async move {
            place.lock().unwrap().take().unwrap().wake();
            // No deadlock only if somebody takes the task out of this worker's slot.
            let there = has_run.recv().unwrap();
            assert_ne!(there, thread::current().id());
        })
        .await;
        sleeper.await;
    });
}

#[test]
fn a_task_in_the_slot_of_a_stuck_worker_is_rescued() {
    for ticker in [Ticker::Adaptive, Ticker::Every(Duration::from_millis(2))] {
        watched("rescue", move || {
            let runtime = with(2, ticker);
            (0..5).for_each(|_| block_after_a_wake(&runtime));
            let counted = runtime.metrics().total();
            assert!(counted.rescues >= 5, "{counted:?}");
        });
    }
}

/// What others' benches do: the future in `block_on` spawns, then blocks its thread.
fn block_after_a_spawn(runtime: &Runtime) {
    let (ran, has_run) = mpsc::channel();
    runtime.block_on(async {
        spawn(async move { ran.send(thread::current().id()).unwrap() }).detach();
        assert_ne!(has_run.recv().unwrap(), thread::current().id());
    });
}

#[test]
fn a_task_in_the_queue_of_a_stuck_worker_runs_elsewhere() {
    for ticker in [Ticker::Adaptive, Ticker::Every(Duration::from_millis(2)), Ticker::Off] {
        watched("queue", move || {
            let runtime = with(2, ticker);
            (0..20).for_each(|_| block_after_a_spawn(&runtime));
        });
    }
}

/// A worker that takes a single task out of the injector has nothing to be rescued; but the task's poll
/// may last, so the ticker must be awake by then.
#[test]
fn a_poll_is_watched_from_its_beginning() {
    watched("poll", || {
        let runtime = with(1, Ticker::Adaptive);
        let handle = runtime.handle().clone();
        let threads = runtime.spawn(async move { handle.metrics().threads });
        assert_eq!(futures::executor::block_on(threads), 2, "the worker and the ticker");
    });
}

/// Beside two tasks that wake each other, a third on the same worker waits about one slice. The
/// median is judged, since a busy machine stretches single waits; without an end to slices the
/// third would never run, which the watchdog tells.
#[test]
fn a_third_task_waits_no_longer_than_a_slice() {
    const TURNS: usize = 500;
    for (ticker, slice) in [(Ticker::Off, 1), (Ticker::Adaptive, 1), (Ticker::Adaptive, 5)] {
        let slice = Duration::from_millis(slice);
        watched("slice", move || {
            let turns = TURNS / slice.as_millis() as usize;
            let runtime =
                Builder::new().worker_threads(1).ticker(ticker).timeslice(slice).build().unwrap();
            let mut waits = runtime.block_on(async {
                let stop = Arc::new(AtomicBool::new(false));
                let (mut ping, mut pings) = futures::channel::mpsc::channel(0);
                let (mut pong, mut pongs) = futures::channel::mpsc::channel(0);
                let stopped = stop.clone();
                let pair = [
                    spawn(async move {
                        while !stopped.load(SeqCst) {
                            ping.send(()).await.unwrap();
                            pongs.next().await.unwrap();
                        }
                    }),
                    spawn(async move {
                        while pings.next().await.is_some() {
                            pong.send(()).await.unwrap();
                        }
                    }),
                ];
                let third = spawn(async move {
                    let mut waits = Vec::with_capacity(turns);
                    for _ in 0..turns {
                        let before = Instant::now();
                        yield_now().await;
                        waits.push(before.elapsed());
                    }
                    waits
                });
                let waits = third.await;
                stop.store(true, SeqCst);
                for task in pair {
                    task.await;
                }
                waits
            });
            waits.sort_unstable();
            let [median, most] = [waits.len() / 2, waits.len() * 999 / 1_000].map(|i| waits[i]);
            println!("slice {slice:?}, {ticker:?}: median {median:?}, p99.9 {most:?}");
            assert!(median < slice * 2, "slice {slice:?}: median {median:?}, p99.9 {most:?}");
            assert!(runtime.metrics().total().slices_spent as usize >= turns / 2);
        });
    }
}

/// One poll that outlives many slices is not interrupted, but what it asks afterwards gives way.
#[test]
fn an_always_ready_loop_gives_way_when_its_slice_is_spent() {
    for ticker in [Ticker::Adaptive, Ticker::Off] {
        watched("yield_if_due", move || {
            let runtime = with(1, ticker);
            let done = Arc::new(AtomicBool::new(false));
            let hog = {
                let done = done.clone();
                runtime.spawn(async move {
                    while !done.load(SeqCst) {
                        std::hint::black_box((0..100).sum::<u32>());
                        yield_if_due().await;
                    }
                })
            };
            // Runs only if the hog gives way: there is one worker.
            runtime.block_on(async { spawn(async move { done.store(true, SeqCst) }).await });
            runtime.block_on(hog);
            assert!(runtime.metrics().total().forced_yields > 0);
        });
    }
}

#[test]
fn an_unconstrained_future_does_not_give_way() {
    let runtime = Builder::new().worker_threads(1).timeslice(Duration::ZERO).build().unwrap();
    let yields = |constrained: bool| {
        runtime.block_on(async {
            let before = Handle::current().metrics().total().forced_yields;
            let ask = async {
                for _ in 0..1_000 {
                    yield_if_due().await;
                }
            };
            if constrained {
                ask.await
            } else {
                paceline::unconstrained(ask).await
            }
            Handle::current().metrics().total().forced_yields - before
        })
    };
    assert_eq!(yields(false), 0);
    assert!(yields(true) > 0);
}

/// Drops at moments spread over one long tick. A ticker that slept would let at least the earlier
/// drops wait for the rest of it.
#[test]
fn a_drop_does_not_wait_out_the_tick() {
    const TICK: Duration = Duration::from_millis(800);
    watched("sweep", || {
        let longest = (0..8).map(|eighth| {
            let runtime = with(1, Ticker::Every(TICK));
            // From the spawn on there is a ticker, in its first tick.
            runtime.block_on(async { spawn(async {}).await });
            thread::sleep(TICK / 8 * eighth / 2);
            let before = Instant::now();
            drop(runtime);
            before.elapsed()
        });
        let longest = longest.max().unwrap();
        assert!(longest < TICK / 4, "a drop took {longest:?} of a tick of {TICK:?}");
    });
}

/// An idle runtime with 1,000 waiting tasks wakes up no thread at all once it has settled.
#[cfg(target_os = "linux")]
#[test]
fn an_idle_runtime_sleeps() {
    alone("an_idle_runtime_sleeps", || {
        let runtime = Builder::new().worker_threads(4).build().unwrap();
        let tasks: Vec<_> =
            (0..1_000).map(|_| runtime.spawn(std::future::pending::<()>())).collect();
        runtime.block_on(async { spawn(async {}).await });
        assert_all_sleep(Duration::from_secs(10));
        assert_eq!(runtime.metrics().live_tasks, 1_000);
        drop(tasks);
    });
}
