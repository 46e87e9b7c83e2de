//! async-lock and event-listener, contended by many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use async_lock::{Barrier, Mutex, OnceCell, RwLock, Semaphore};
use event_listener::Event;
use paceline::{block_on, spawn, yield_now};

use crate::{Crowd, each, in_tasks};

const TASKS: usize = 64;
const ROUNDS: usize = 100;

#[test]
fn a_mutex_lets_in_one_task_at_a_time() {
    each(async || {
        let (counter, crowd) = (Arc::new(Mutex::new(0)), Crowd::default());
        in_tasks(TASKS, |_| {
            let (counter, crowd) = (counter.clone(), crowd.clone());
            async move {
                for _ in 0..ROUNDS {
                    let mut counter = counter.lock().await;
                    crowd.enter();
                    let before = *counter;
                    yield_now().await;
                    *counter = before + 1;
                    crowd.leave();
                }
            }
        })
        .await;
        assert_eq!((*counter.lock().await, crowd.most()), (TASKS * ROUNDS, 1));
    });
}

/// Who waits for it and is cancelled passes it on.
#[test]
fn a_mutex_is_not_lost_with_tasks_that_are_cancelled_while_they_wait() {
    each(async || {
        let mutex = Arc::new(Mutex::new(()));
        for _ in 0..ROUNDS {
            let held = mutex.lock().await;
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let mutex = mutex.clone();
                    spawn(async move { drop(mutex.lock().await) })
                })
                .collect();
            yield_now().await;
            drop(held);
            let mut waiters = waiters.into_iter();
            drop(waiters.next());
            for waiter in waiters {
                waiter.await;
            }
        }
    });
}

#[test]
fn readers_share_a_lock_and_see_no_half_written_pair() {
    each(async || {
        let (pair, readers) = (Arc::new(RwLock::new((0, 0))), Crowd::default());
        in_tasks(TASKS, |i| {
            let (pair, readers) = (pair.clone(), readers.clone());
            async move {
                for _ in 0..ROUNDS {
                    if i % 8 == 0 {
                        let mut pair = pair.write().await;
                        pair.0 += 1;
                        yield_now().await;
                        pair.1 += 1;
                    } else {
                        let pair = pair.read().await;
                        readers.enter();
                        yield_now().await;
                        assert_eq!(pair.0, pair.1);
                        readers.leave();
                    }
                }
            }
        })
        .await;
        assert_eq!(*pair.read().await, (TASKS / 8 * ROUNDS, TASKS / 8 * ROUNDS));
        assert!(readers.most() > 1, "one reader after the other");
    });
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_has_permits() {
    const PERMITS: usize = 5;
    each(async || {
        let (semaphore, crowd) = (Arc::new(Semaphore::new(PERMITS)), Crowd::default());
        in_tasks(TASKS, |_| {
            let (semaphore, crowd) = (semaphore.clone(), crowd.clone());
            async move {
                for _ in 0..ROUNDS {
                    let _permit = semaphore.acquire().await;
                    crowd.enter();
                    yield_now().await;
                    crowd.leave();
                }
            }
        })
        .await;
        assert_eq!(crowd.most(), PERMITS);
    });
}

#[test]
fn a_barrier_lets_a_whole_generation_through_and_names_one_leader() {
    each(async || {
        let (barrier, arrived) = (Arc::new(Barrier::new(TASKS)), Arc::new(AtomicUsize::new(0)));
        let leaders = in_tasks(TASKS, |_| {
            let (barrier, arrived) = (barrier.clone(), arrived.clone());
            async move {
                let mut led = 0;
                for round in 1..=ROUNDS {
                    arrived.fetch_add(1, SeqCst);
                    led += usize::from(barrier.wait().await.is_leader());
                    assert!(arrived.load(SeqCst) >= round * TASKS, "before all had come");
                }
                led
            }
        })
        .await;
        assert_eq!(leaders.into_iter().sum::<usize>(), ROUNDS);
    });
}

#[test]
fn a_cell_is_initialised_once_whoever_comes_first() {
    each(async || {
        for _ in 0..ROUNDS {
            let (cell, made) = (Arc::new(OnceCell::new()), Arc::new(AtomicUsize::new(0)));
            let seen = in_tasks(8, |i| {
                let (cell, made) = (cell.clone(), made.clone());
                async move {
                    let make = || async move {
                        yield_now().await;
                        made.fetch_add(1, SeqCst);
                        i
                    };
                    *cell.get_or_init(make).await
                }
            })
            .await;
            assert_eq!(made.load(SeqCst), 1);
            assert!(seen.iter().all(|value| Some(value) == cell.get()), "{seen:?}");
        }
    });
}

/// A flag with an event beside it: listen, look, wait.
#[test]
fn an_event_wakes_tasks_and_a_thread_that_block_for_a_flag() {
    each(async || {
        for _ in 0..ROUNDS {
            let gate = Arc::new((AtomicBool::new(false), Event::new()));
            let pass = |gate: Arc<(AtomicBool, Event)>| async move {
                while !gate.0.load(SeqCst) {
                    let listener = gate.1.listen();
                    if gate.0.load(SeqCst) {
                        break;
                    }
                    listener.await;
                }
            };
            let tasks = in_tasks(8, |_| pass(gate.clone()));
            let foreign = gate.clone();
            let thread = paceline::unblock(move || block_on(pass(foreign)));
            let open = spawn(async move {
                yield_now().await;
                gate.0.store(true, SeqCst);
                gate.1.notify(usize::MAX);
            });
            futures::join!(tasks, thread, open);
        }
    });
}
