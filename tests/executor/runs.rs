//! Threads in `run` and in loops of `tick`: who is asleep is woken, who leaves strands nothing, and ticks
//! reach everything.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, or};

use crate::common::{until, watched};
use crate::either::runs::leaves_the_rest_to_an_idle_run;
use crate::either::{Puppet, idle_run, poll_idly, yields};
use crate::{Drive, Ex, driven};

/// By one thread and by sixteen, in `run` and in a loop of ticks; and by the thread that awaits.
fn each_way(body: impl AsyncFn(&Ex<'static>) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for how in Drive::ALL {
        for threads in [1, 16] {
            let body = body.clone();
            watched(&format!("by {threads}, {how:?}"), move || {
                let ex = Ex::new();
                driven(&ex, how, threads, || block_on(body(&ex)));
                // Nothing is left over from the first time.
                driven(&ex, how, threads, || block_on(body(&ex)));
            });
        }
        let body = body.clone();
        watched(&format!("by the awaiter, {how:?}"), move || {
            let ex = Ex::new();
            let ticks = async {
                loop {
                    ex.tick().await;
                }
            };
            match how {
                Drive::Run => block_on(ex.run(body(&ex))),
                Drive::TickLoop => block_on(or(body(&ex), ticks)),
            }
        });
    }
}

#[test]
fn a_task_is_run_and_awaited() {
    each_way(async |ex| {
        ex.spawn(async {}).await;
        assert_eq!(ex.spawn(async { 5 }).await, 5);
    });
}

#[test]
fn a_task_that_gives_way_is_run_again() {
    each_way(async |ex| {
        ex.spawn(yields(1)).await;
        ex.spawn(yields(100)).await;
    });
}

#[test]
fn a_task_is_woken_by_a_timer() {
    each_way(async |ex| {
        ex.spawn(paceline::Timer::after(Duration::from_millis(5))).await;
        ex.spawn(async_io::Timer::after(Duration::from_millis(5))).await;
    });
}

#[test]
fn tasks_spawn_and_await_tasks() {
    for how in Drive::ALL {
        for threads in [1, 4] {
            watched(&format!("by {threads}, {how:?}"), move || {
                fn fibonacci(ex: &Arc<Ex<'static>>, n: u32) -> crate::ex::Task<u32> {
                    let inner = ex.clone();
                    ex.spawn(async move {
                        if n < 2 {
                            return n;
                        }
                        let (a, b) = (fibonacci(&inner, n - 1), fibonacci(&inner, n - 2));
                        a.await + b.await
                    })
                }
                let ex = Arc::new(Ex::new());
                let answer = driven(&ex, how, threads, || block_on(fibonacci(&ex, 14)));
                assert_eq!(answer, 377);
            });
        }
    }
}

#[test]
fn a_future_of_run_moves_between_threads_from_poll_to_poll() {
    watched("", || {
        let ex = Ex::new();
        let tasks: Vec<_> = (0..20).map(|times| ex.spawn(yields(10 * times))).collect();
        let late = ex.spawn(pending::<()>());
        let mut run = Box::pin(ex.run(async {
            for task in tasks {
                task.await;
                yields(3).await;
            }
            drop(late);
            "done"
        }));
        let mut on_another_thread =
            || thread::scope(|scope| scope.spawn(|| poll_idly(run.as_mut())).join().unwrap());
        let output = loop {
            if let Poll::Ready(output) = on_another_thread() {
                break output;
            }
        };
        assert_eq!(output, "done");
    });
}

/// A run is woken where it was polled last.
#[test]
fn an_idle_run_that_moved_to_another_thread_is_woken_there() {
    watched("", || {
        let ex = Ex::new();
        let mut run = Puppet::new(idle_run(&ex));
        assert!(run.settle().is_pending());
        for _ in 0..100 {
            let task = ex.spawn(yields(1));
            assert!(run.is_woken());
            thread::scope(|scope| {
                scope.spawn(|| assert!(run.settle().is_pending()));
            });
            assert!(task.is_finished());
        }
    });
}

#[test]
fn runs_that_come_and_go_strand_nothing() {
    watched("", || {
        let ended = AtomicUsize::new(0);
        let ex = Ex::new();
        const TASKS: usize = 2_000;
        thread::scope(|scope| {
            // Three threads whose runs are short, and one that is idle at times.
            for times in 0..3 {
                let (ex, ended) = (&ex, &ended);
                scope.spawn(move || {
                    while ended.load(SeqCst) < TASKS {
                        block_on(ex.run(yields(times)));
                    }
                });
            }
            let spawn = || {
                ex.spawn(async {
                    yields(5).await;
                    ended.fetch_add(1, SeqCst);
                })
            };
            let tasks: Vec<_> = (0..TASKS).map(|_| spawn()).collect();
            block_on(ex.run(async {
                for task in tasks {
                    task.await;
                }
            }));
        });
        assert!(ex.is_empty());
    });
}

/// The last that stays finds what those that left had in hand.
#[test]
fn of_two_threads_that_run_one_leaves_and_the_other_goes_on() {
    watched("", || {
        for round in 0..200 {
            let ex = Ex::new();
            let tasks: Vec<_> = (0..50).map(|_| ex.spawn(yields(10))).collect();
            driven(&ex, Drive::Run, 1, || {
                block_on(ex.run(yields(round % 10)));
                tasks.into_iter().for_each(block_on);
            });
        }
    });
}

#[test]
fn an_idle_run_is_woken_for_what_others_leave_on_another_thread() {
    watched("", || {
        leaves_the_rest_to_an_idle_run(|idle| {
            thread::scope(|scope| scope.spawn(|| idle.settle().is_pending()).join().unwrap())
        });
    });
}

/// Does `body` while two threads drive the executor, in each way.
fn by_two(body: impl Fn(&Arc<Ex<'static>>) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for [a, b] in [[Drive::Run; 2], [Drive::TickLoop; 2], [Drive::Run, Drive::TickLoop]] {
        let body = body.clone();
        watched(&format!("by {a:?} and {b:?}"), move || {
            let ex = Arc::new(Ex::new());
            driven(&ex, a, 1, || driven(&ex, b, 1, || body(&ex)));
        });
    }
}

#[test]
fn a_task_runs_although_who_woke_it_blocks() {
    by_two(|ex| {
        for _ in 0..100 {
            let (wake, woken) = futures::channel::oneshot::channel::<()>();
            let (ready, is_ready) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            let waits = ex.spawn(async move {
                ready.send(()).unwrap();
                woken.await.unwrap();
                tell.send(()).unwrap();
            });
            is_ready.recv().unwrap();
            let blocks = ex.spawn(async move {
                wake.send(()).unwrap();
                told.recv().unwrap();
            });
            block_on(blocks);
            block_on(waits);
        }
    });
}

#[test]
fn a_task_runs_although_who_spawned_it_blocks() {
    by_two(|ex| {
        for _ in 0..100 {
            let inner = ex.clone();
            let blocks = ex.spawn(async move {
                let (tell, told) = mpsc::channel();
                inner.spawn(async move { tell.send(()).unwrap() }).detach();
                told.recv().unwrap();
            });
            block_on(blocks);
        }
    });
}

/// What waits behind a poll that blocks is done by another thread in `run`.
#[test]
fn tasks_behind_a_blocked_one_run_elsewhere() {
    watched("", || {
        let ex = Ex::new();
        driven(&ex, Drive::Run, 2, || {
            for _ in 0..50 {
                let (told, tell) = mpsc::channel();
                let ended = Arc::new(AtomicUsize::new(0));
                let mut tasks = Vec::new();
                let mut tell = Some(tell);
                let futures = (0..300).map(|i| {
                    let blocks = if i == 150 { tell.take() } else { None };
                    let (ended, told) = (ended.clone(), told.clone());
                    async move {
                        yields(2).await;
                        match blocks {
                            Some(tell) => tell.recv().unwrap(),
                            // Of the others, the last one.
                            None if ended.fetch_add(1, SeqCst) == 298 => told.send(()).unwrap(),
                            None => {}
                        }
                    }
                });
                ex.spawn_many(futures, &mut tasks);
                tasks.into_iter().for_each(block_on);
            }
        });
    });
}

#[test]
fn block_on_of_a_spawned_task_nests_three_deep_on_four_threads() {
    watched("", || {
        let ex = Arc::new(Ex::new());
        driven(&ex, Drive::Run, 4, || {
            for _ in 0..100 {
                let (a, b) = (ex.clone(), ex.clone());
                let answer = block_on(ex.spawn(async move {
                    block_on(a.spawn(async move { block_on(b.spawn(async { 42 })) }))
                }));
                assert_eq!(answer, 42);
            }
        });
    });
}

/// Inside a poll on the very thread, a nested `run` does what waits for the one that is stuck.
#[test]
fn nested_runs_on_one_thread_reach_what_the_outer_one_holds() {
    watched("", || {
        let ex = Arc::new(Ex::new());
        let (a, b) = (ex.clone(), ex.clone());
        let others: Vec<_> = (0..600).map(|_| ex.spawn(yields(3))).collect();
        let answer = block_on(ex.run(ex.spawn(async move {
            yields(1).await;
            block_on(a.run(a.spawn(async move {
                yields(1).await;
                for other in others {
                    other.await;
                }
                block_on(b.run(b.spawn(async { 42 })))
            })))
        })));
        assert_eq!(answer, 42);
    });
}

/// A thread is in `run` and polls a task that blocks; `reach` drives the executor meanwhile until all
/// others have ended.
fn beside_a_stuck_poll(reach: impl Fn(&Ex<'static>, &dyn Fn() -> bool)) {
    for _ in 0..100 {
        let ex = Arc::new(Ex::new());
        let (stuck, is_stuck) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let ended = Arc::new(AtomicUsize::new(0));
        let (wake, woken) = futures::channel::oneshot::channel::<()>();
        let count = |times| {
            let ended = ended.clone();
            async move {
                yields(times).await;
                ended.fetch_add(1, SeqCst);
            }
        };
        let mut tasks: Vec<_> = (0..300).map(|i| ex.spawn(count(3 + i % 3))).collect();
        let (inner, counted) = (ex.clone(), count(0));
        tasks.push(ex.spawn(async move {
            woken.await.unwrap();
            counted.await;
        }));
        let spawned = count(1);
        let blocks = ex.spawn(async move {
            yields(2).await;
            inner.spawn(spawned).detach();
            wake.send(()).unwrap();
            stuck.send(()).unwrap();
            released.recv().unwrap();
        });
        driven(&ex, Drive::Run, 1, || {
            is_stuck.recv().unwrap();
            reach(&ex, &|| ended.load(SeqCst) == 302);
            release.send(()).unwrap();
            block_on(blocks);
        });
        assert!(tasks.iter().all(|task| task.is_finished()));
    }
}

#[test]
fn try_tick_reaches_what_waits_behind_a_stuck_poll() {
    watched("", || {
        beside_a_stuck_poll(|ex, all_ended| {
            until(|| {
                ex.try_tick();
                all_ended()
            })
        })
    });
}

#[test]
fn tick_reaches_what_waits_behind_a_stuck_poll() {
    watched("", || {
        beside_a_stuck_poll(|ex, all_ended| {
            while !all_ended() {
                block_on(ex.tick());
            }
        });
    });
}

#[test]
fn a_run_reaches_what_waits_behind_a_stuck_poll() {
    watched("", || {
        beside_a_stuck_poll(|ex, all_ended| {
            while !all_ended() {
                block_on(ex.run(yields(1)));
            }
        });
    });
}
