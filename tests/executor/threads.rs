//! Many threads that run, spawn, wake and cancel at once.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::Waker;
use std::thread;

use futures::channel::oneshot;
use futures_lite::future::block_on;

use crate::common::{Census, lend_waker, watched};
use crate::either::{linger, yields};
use crate::{Drive, Ex, driven};

fn on_one_and_four(body: impl Fn(&Ex<'static>, Drive, usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for how in Drive::ALL {
        for threads in [1, 4] {
            let body = body.clone();
            watched(&format!("by {threads}, {how:?}"), move || body(&Ex::new(), how, threads));
        }
    }
}

#[test]
fn hundreds_of_tasks_are_completed_by_a_foreign_thread() {
    on_one_and_four(|ex, how, threads| {
        driven(ex, how, threads, || {
            for count in [200, 500] {
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    (0..count).map(|_| oneshot::channel()).unzip();
                let tasks: Vec<_> = receivers.into_iter().map(|rx| ex.spawn(rx)).collect();
                let foreign = thread::spawn(move || {
                    senders.into_iter().enumerate().for_each(|(i, tx)| tx.send(i).unwrap());
                });
                assert!(tasks.into_iter().map(|task| block_on(task).unwrap()).eq(0..count));
                foreign.join().unwrap();
            }
            assert!(ex.is_empty());
        });
    });
}

#[test]
fn foreign_threads_spawn_while_others_run() {
    on_one_and_four(|ex, how, threads| {
        let sum: usize = driven(ex, how, threads, || {
            thread::scope(|scope| {
                let spawners = [0, 1, 2, 3].map(|i| {
                    scope.spawn(move || {
                        let mut tasks = Vec::new();
                        for j in 0..1_000 {
                            tasks.push(ex.spawn(async move { i * j }));
                        }
                        ex.spawn_many((0..1_000).map(|j| async move { i * j }), &mut tasks);
                        tasks.into_iter().map(block_on).sum::<usize>()
                    })
                });
                spawners.into_iter().map(|spawner| spawner.join().unwrap()).sum()
            })
        });
        assert_eq!(sum, 6 * 2 * 499_500);
    });
}

#[test]
fn an_idle_executor_wakes_for_each_of_a_thousand_spawns() {
    on_one_and_four(|ex, how, threads| {
        driven(ex, how, threads, || {
            for i in 0..1_000 {
                assert_eq!(block_on(ex.spawn(async move { i })), i);
            }
        });
    });
}

#[test]
fn tasks_that_wait_for_each_other_in_the_kernel_run_at_once() {
    for how in Drive::ALL {
        watched(&format!("by {how:?}"), move || {
            let ex = Ex::new();
            driven(&ex, how, 4, || {
                for _ in 0..100 {
                    let barrier = Arc::new(Barrier::new(4));
                    let meet = || {
                        let barrier = barrier.clone();
                        ex.spawn(async move { barrier.wait().is_leader() })
                    };
                    let tasks = [0; 4].map(|_| meet());
                    assert_eq!(tasks.map(block_on).iter().filter(|leads| **leads).count(), 1);
                }
            });
        });
    }
}

#[test]
fn every_future_is_dropped_by_the_time_the_executor_is() {
    watched("two hundred times", || {
        for round in 0..200 {
            let (census, ex) = (Census::new(), Ex::new());
            let (lend, lent) = mpsc::channel::<Waker>();
            let mut kept = Vec::new();
            driven(&ex, Drive::ALL[round % 2], 2, || {
                for i in 0..50 {
                    let [one, other] = [census.one(), census.one()];
                    let lend = lend.clone();
                    kept.push(ex.spawn(async move {
                        let _one = one;
                        yields(i).await;
                    }));
                    let waits = ex.spawn(async move {
                        let _other = other;
                        lend_waker(lend).await;
                    });
                    match i % 3 {
                        0 => drop(waits),
                        1 => waits.detach(),
                        _ => kept.push(waits),
                    }
                }
                lent.try_iter().for_each(Waker::wake);
            });
            drop(ex);
            assert_eq!((census.dead(), census.born()), (100, 100));
        }
    });
}

#[test]
fn cancelling_races_completion() {
    watched("", || {
        let ex = Ex::new();
        driven(&ex, Drive::Run, 2, || {
            let (census, mut completed) = (Census::new(), 0);
            for round in 0..10_000 {
                let (one, ended) = (census.one(), Arc::new(AtomicBool::new(false)));
                let flag = ended.clone();
                let task = ex.spawn(async move {
                    let _one = one;
                    yields(round % 3).await;
                    flag.store(true, SeqCst);
                });
                linger(round % 2_048);
                let output = block_on(task.cancel());
                // What ends while it is being cancelled may count as cancelled.
                assert!(output.is_none() || ended.load(SeqCst));
                assert_eq!(census.dead(), round + 1);
                completed += usize::from(output.is_some());
            }
            assert!(ex.is_empty(), "{completed} completed");
        });
    });
}

#[test]
fn handles_are_dropped_on_one_thread_while_others_run_their_tasks() {
    watched("", || {
        let (ex, census) = (Ex::new(), Census::new());
        driven(&ex, Drive::Run, 2, || {
            for i in 0..10_000 {
                let one = census.one();
                let task = ex.spawn(async move {
                    let _one = one;
                    yields(i % 3).await;
                    if i % 2 == 0 {
                        pending::<()>().await;
                    }
                });
                linger(i % 512);
                drop(task);
            }
        });
        block_on(ex.run(yields(10)));
        while ex.try_tick() {}
        assert_eq!(census.dead(), 10_000);
        assert!(ex.is_empty());
    });
}

#[test]
fn nothing_runs_twice_and_nothing_is_lost_among_many() {
    on_one_and_four(|ex, how, threads| {
        let runs: Arc<Vec<_>> = Arc::new((0..20_000).map(|_| AtomicUsize::new(0)).collect());
        driven(ex, how, threads, || {
            let mut tasks = Vec::new();
            let futures = (0..runs.len()).map(|i| {
                let runs = runs.clone();
                async move {
                    yields(i % 2).await;
                    runs[i].fetch_add(1, SeqCst);
                }
            });
            ex.spawn_many(futures, &mut tasks);
            tasks.into_iter().for_each(block_on);
        });
        assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1));
        assert!(ex.is_empty());
    });
}

/// Tasks come and go on two threads, and one stays.
#[test]
fn an_executor_with_a_task_never_seems_empty() {
    watched("", || {
        let ex = Arc::new(Ex::new());
        let stays = ex.spawn(std::future::pending::<()>());
        let inner = ex.clone();
        driven(&ex, Drive::Run, 2, || {
            let others: Vec<_> = (0..4)
                .map(|_| {
                    let inner = inner.clone();
                    ex.spawn(async move {
                        for _ in 0..20_000 {
                            inner.spawn(async {}).await;
                        }
                    })
                })
                .collect();
            while !others.iter().all(|task| task.is_finished()) {
                assert!(!ex.is_empty());
            }
        });
        block_on(ex.run(stays.cancel()));
        assert!(ex.is_empty());
    });
}
