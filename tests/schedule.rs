//! Slot, queue, stealing, fairness: who runs next, and that nobody is forgotten.

#![allow(clippy::disallowed_methods)] // foreign threads are plain ones here

mod common;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use common::{on_each, on_each_size, ping_pong, runtime, self_waker, watched};
use futures::channel::oneshot;
use futures::{SinkExt, StreamExt};
use paceline::{Builder, Runtime, WorkerMetrics, spawn, yield_now};

/// A future that leaves its waker in `place` and waits to be woken once.
fn wait_in(place: Arc<Mutex<Option<Waker>>>) -> impl Future<Output = ()> + Send {
    let mut waiting = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut waiting, true) {
            return Poll::Ready(());
        }
        *place.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    })
}

/// One worker, one task that wakes `sleepers` others in one poll; what was counted meanwhile, and
/// who ran in which order.
fn wake_from_a_task(runtime: &Runtime, sleepers: usize) -> (WorkerMetrics, Vec<String>) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let order = order.clone();
        move |what: String| order.lock().unwrap().push(what)
    };
    let counted = runtime.block_on(async {
        let places: Vec<Arc<Mutex<Option<Waker>>>> =
            (0..sleepers).map(|_| Arc::default()).collect();
        let tasks: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(i, place)| {
                let (place, note) = (place.clone(), note.clone());
                spawn(async move {
                    wait_in(place).await;
                    note(format!("woken {i}"));
                })
            })
            .collect();
        while places.iter().any(|place| place.lock().unwrap().is_none()) {
            yield_now().await;
        }
        let waking = {
            let (places, note) = (places.clone(), note.clone());
            spawn(async move {
                let queued = note.clone();
                spawn(async move { queued("queued".into()) }).detach();
                for place in &places {
                    place.lock().unwrap().take().unwrap().wake();
                }
                note("waker".into());
            })
        };
        waking.detach();
        for task in tasks {
            task.await;
        }
        while order.lock().unwrap().len() < sleepers + 2 {
            yield_now().await;
        }
        paceline::Handle::current().metrics().total()
    });
    (counted, order.lock().unwrap().clone())
}

#[test]
fn a_task_woken_by_the_running_one_runs_next_and_the_occupant_moves_to_the_queues_tail() {
    let (counted, order) = wake_from_a_task(&runtime(1), 3);
    // Each wake displaced the one before; the last sat in the slot and ran first.
    assert_eq!(order, ["waker", "woken 2", "queued", "woken 0", "woken 1"]);
    assert_eq!(counted.slot_displacements, 2, "{counted:?}");
    assert!(counted.slot_hits >= 1, "{counted:?}");
}

#[test]
fn without_the_slot_a_woken_task_queues_up() {
    let runtime = Builder::new().worker_threads(1).wake_slot(false).build().unwrap();
    let (counted, order) = wake_from_a_task(&runtime, 2);
    assert_eq!(order, ["waker", "queued", "woken 0", "woken 1"]);
    assert_eq!((counted.slot_hits, counted.slot_displacements), (0, 0), "{counted:?}");
}

#[test]
fn two_runtimes_keep_their_own_settings() {
    let with = runtime(1);
    let without = Builder::new().worker_threads(1).wake_slot(false).build().unwrap();
    let (with, without) = (wake_from_a_task(&with, 2).0, wake_from_a_task(&without, 2).0);
    assert!(with.slot_hits > 0 && without.slot_hits == 0, "{with:?} {without:?}");
}

#[test]
fn spawns_and_yields_never_take_the_slot() {
    let runtime = runtime(1);
    runtime.block_on(async {
        for _ in 0..100 {
            spawn(async {
                spawn(async {}).detach();
                yield_now().await;
                yield_now().await;
            })
            .detach();
        }
        while paceline::Handle::current().metrics().live_tasks > 0 {
            yield_now().await;
        }
    });
    let counted = runtime.metrics().total();
    assert_eq!((counted.slot_hits, counted.slot_displacements), (0, 0), "{counted:?}");
    assert!(counted.polls >= 400, "{counted:?}");
}

#[test]
fn wakes_from_other_threads_never_take_the_slot() {
    on_each(|runtime| {
        let (mut wake, mut woken) = futures::channel::mpsc::channel(0);
        let task = runtime.spawn(async move { while woken.next().await.is_some() {} });
        thread::spawn(move || {
            futures::executor::block_on(async {
                for i in 0..1_000 {
                    wake.send(i).await.unwrap();
                }
            });
        })
        .join()
        .unwrap();
        futures::executor::block_on(task);
        let counted = runtime.metrics().total();
        assert_eq!(counted.slot_hits, 0, "{counted:?}");
        assert!(counted.injected > 0, "{counted:?}");
    });
}

#[test]
fn block_on_works_for_its_runtime_while_it_waits() {
    let runtime = runtime(1);
    let here = thread::current().id();
    let there = runtime.block_on(async { spawn(async { thread::current().id() }).await });
    assert_eq!(here, there, "the only worker is the thread in block_on");
}

#[test]
fn an_empty_block_on_starts_no_thread() {
    on_each(|runtime| {
        assert_eq!(runtime.block_on(async { 1 }), 1);
        assert_eq!(runtime.metrics().threads, 0);
    });
}

#[test]
fn a_ready_future_is_polled_once_and_a_pending_one_not_without_a_wake() {
    on_each(|runtime| {
        let mut polls = 0;
        runtime.block_on(poll_fn(|_| {
            polls += 1;
            Poll::Ready(())
        }));
        assert_eq!(polls, 1);
        let polled = Arc::new(AtomicUsize::new(0));
        let task = {
            let polled = polled.clone();
            runtime.spawn(poll_fn(move |_| {
                polled.fetch_add(1, SeqCst);
                Poll::<()>::Pending
            }))
        };
        runtime.block_on(async {
            while polled.load(SeqCst) == 0 {
                yield_now().await;
            }
            for _ in 0..100 {
                spawn(async {}).await;
            }
        });
        assert_eq!(polled.load(SeqCst), 1);
        drop(task);
    });
}

/// No more tasks run at once than the runtime has workers, whoever blocks on it.
#[test]
fn no_more_tasks_run_at_once_than_there_are_workers() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    runtime.block_on(async {
                        for _ in 0..50 {
                            let (running, most) = (running.clone(), most.clone());
                            spawn(async move {
                                for _ in 0..20 {
                                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                                    std::hint::black_box((0..2_000).sum::<u32>());
                                    running.fetch_sub(1, SeqCst);
                                    yield_now().await;
                                }
                            })
                            .await;
                        }
                    });
                });
            }
        });
        let most = most.load(SeqCst);
        assert!((1..=workers).contains(&most), "{most} at once on {workers} workers");
    });
}

#[test]
fn block_on_a_task_and_a_foreign_spawn_progress_beside_self_wakers() {
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let wakers: Vec<_> = (0..8).map(|_| runtime.spawn(self_waker(stop.clone()))).collect();
        runtime.block_on(async {
            yield_now().await;
            spawn(async {}).await;
            let handle = paceline::Handle::current();
            let (done, finished) = oneshot::channel();
            thread::spawn(move || handle.spawn(async { done.send(()).unwrap() }).detach());
            finished.await.unwrap();
        });
        stop.store(true, SeqCst);
        wakers.into_iter().for_each(|task| runtime.block_on(task));
    });
}

#[test]
fn a_flood_from_outside_has_its_turns_beside_a_task_that_never_waits() {
    const FLOOD: usize = 1_000;
    watched("a flood from outside", || {
        let runtime = runtime(1);
        let flooded = Arc::new(AtomicBool::new(false));
        let left = Arc::new(AtomicUsize::new(FLOOD));
        let turns = {
            let (flooded, left) = (flooded.clone(), left.clone());
            runtime.spawn(async move {
                let mut turns = 0;
                while left.load(SeqCst) > 0 {
                    yield_now().await;
                    turns += usize::from(flooded.load(SeqCst));
                }
                turns
            })
        };
        for _ in 0..FLOOD {
            let left = left.clone();
            runtime.spawn(async move { _ = left.fetch_sub(1, SeqCst) }).detach();
        }
        flooded.store(true, SeqCst);
        let turns = runtime.block_on(turns);
        // As many as the flood, and those until the worker looked up.
        assert!(turns <= 2 * FLOOD, "{turns} turns of one task beside {FLOOD} others");
    });
}

#[test]
fn a_task_that_respawns_itself_does_not_starve_others() {
    fn respawn(stop: Arc<AtomicBool>) {
        if !stop.load(SeqCst) {
            spawn(async move { respawn(stop) }).detach();
        }
    }
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        runtime.block_on(async {
            respawn(stop.clone());
            for _ in 0..100 {
                yield_now().await;
                spawn(async {}).await;
            }
        });
        stop.store(true, SeqCst);
    });
}

#[test]
fn pairs_that_wake_each_other_do_not_starve_a_yielder() {
    on_each(|runtime| {
        runtime.block_on(async {
            let stop = Arc::new(AtomicBool::new(false));
            let pairs: Vec<_> = (0..100).flat_map(|_| ping_pong(&stop)).collect();
            for _ in 0..200 {
                spawn(async { yield_now().await }).await;
            }
            stop.store(true, SeqCst);
            for task in pairs {
                task.await;
            }
        });
    });
}

#[test]
fn rings_of_tasks_complete() {
    on_each(|runtime| {
        runtime.block_on(async {
            let rings: Vec<_> = (0..50)
                .map(|_| {
                    spawn(async {
                        let (mut first, mut last) = futures::channel::mpsc::channel::<u32>(0);
                        for _ in 0..10 {
                            let (mut next, receiver) = futures::channel::mpsc::channel(0);
                            let mut previous = std::mem::replace(&mut last, receiver);
                            spawn(async move {
                                while let Some(hop) = previous.next().await {
                                    next.send(hop + 1).await.unwrap();
                                }
                            })
                            .detach();
                        }
                        for _ in 0..20 {
                            first.send(0).await.unwrap();
                            assert_eq!(last.next().await, Some(10));
                        }
                    })
                })
                .collect();
            for ring in rings {
                ring.await;
            }
        });
    });
}

#[test]
fn tasks_of_two_runtimes_wake_each_other() {
    on_each_size(|workers| {
        let (one, other) = (runtime(workers), runtime(workers));
        let (mut ping, mut pings) = futures::channel::mpsc::channel(0);
        let (mut pong, mut pongs) = futures::channel::mpsc::channel(0);
        let echo = other.spawn(async move {
            while let Some(message) = pings.next().await {
                pong.send(message).await.unwrap();
            }
        });
        one.block_on(one.spawn(async move {
            for message in 0..1_000 {
                ping.send(message).await.unwrap();
                assert_eq!(pongs.next().await, Some(message));
            }
        }));
        other.block_on(echo);
    });
}

#[test]
fn a_burst_from_one_thread_does_not_wait_behind_one_worker() {
    watched("burst", || {
        let runtime = runtime(4);
        // Each of these blocks its worker until another one runs at the same time.
        let both = Arc::new(Barrier::new(2));
        let tasks: Vec<_> = (0..10_000)
            .map(|i| {
                let both = both.clone();
                runtime.spawn(async move {
                    if i == 0 || i == 9_999 {
                        both.wait();
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(futures::executor::block_on);
    });
}

#[test]
fn a_backlog_wakes_every_worker() {
    watched("backlog", || {
        let runtime = runtime(4);
        // Nobody passes before four tasks are polled at the same time.
        let all = Arc::new(Barrier::new(4));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    let all = all.clone();
                    spawn(async move { all.wait().is_leader() })
                })
                .collect();
            let mut leaders = 0;
            for task in tasks {
                leaders += usize::from(task.await);
            }
            assert_eq!(leaders, 1);
        });
    });
}

#[test]
fn a_full_house_of_spawns_and_steals_loses_nothing_and_runs_nothing_twice() {
    on_each(|runtime| {
        const TASKS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
        let runs: Arc<Vec<AtomicUsize>> =
            Arc::new((0..TASKS).map(|_| AtomicUsize::new(0)).collect());
        let (done, finished) = mpsc::channel();
        let spawners: Vec<_> = (0..4)
            .map(|part| {
                let (runs, done) = (runs.clone(), done.clone());
                runtime.spawn(async move {
                    for i in (part..TASKS).step_by(4) {
                        let (runs, done) = (runs.clone(), done.clone());
                        spawn(async move {
                            if i % 7 == 0 {
                                yield_now().await;
                            }
                            runs[i].fetch_add(1, SeqCst);
                            done.send(()).unwrap();
                        })
                        .detach();
                    }
                })
            })
            .collect();
        drop(done);
        spawners.into_iter().for_each(|task| runtime.block_on(task));
        assert_eq!(finished.iter().count(), TASKS);
        assert!(runs.iter().all(|run| run.load(SeqCst) == 1));
    });
}

#[test]
fn a_thousand_workers_and_more_are_supported() {
    watched("1,024 workers", || {
        let runtime = runtime(1_024);
        let sum: usize = runtime.block_on(async {
            let tasks: Vec<_> = (0..5_000).map(|i| spawn(async move { i })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        });
        assert_eq!(sum, 5_000 * 4_999 / 2);
        assert_eq!(runtime.metrics().workers.len(), 1_024);
        drop(runtime);
        assert_eq!(common::runtime(4_096).block_on(async { spawn(async { 1 }).await }), 1);
    });
}
