//! Work goes on in place of what blocks: spare workers while others are wedged, another thread during
//! `block_in_place`; and afterwards no more tasks run at once than before.

#![allow(clippy::disallowed_methods)] // what is tested here is code that blocks

mod common;

use std::future::{pending, poll_fn};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::{
    Census, Counted, Gate, Hog, hand_made, hogs, most_at_once, on_each, on_each_size, round_trips,
    runtime, self_waker, serve_echo, silent_panic, until, watched,
};
use futures::executor::block_on as block_foreign;
use paceline::time::sleep;
use paceline::{Builder, Handle, Runtime, Task, Ticker, block_in_place, spawn, unblock, yield_now};

const MS: Duration = Duration::from_millis(1);

/// An echo over TCP, and a client that was connected before anything was wedged.
struct Echo {
    address: SocketAddr,
    early: TcpStream,
}

impl Echo {
    fn serve(runtime: &Runtime) -> Self {
        let address = serve_echo(runtime);
        let early = TcpStream::connect(address).unwrap();
        round_trips(&early, 3);
        Echo { address, early }
    }

    fn answers(&self) {
        round_trips(&self.early, 20);
        round_trips(&TcpStream::connect(self.address).unwrap(), 20);
    }
}

/// Tasks that yield, spawn, talk and wait for timers come to their ends, and clients get answers; this
/// thread does not help.
fn assert_all_goes_on(runtime: &Runtime, echo: &Echo) {
    let tasks: Vec<_> = (0..200)
        .map(|i: u64| {
            runtime.spawn(async move {
                for _ in 0..10 {
                    yield_now().await;
                }
                sleep(MS * (i % 5) as u32).await;
                let (sender, receiver) = futures::channel::oneshot::channel();
                spawn(async move { sender.send(i) }).detach();
                receiver.await.unwrap()
            })
        })
        .collect();
    echo.answers();
    let sum: u64 = tasks.into_iter().map(block_foreign).sum();
    assert_eq!(sum, 199 * 200 / 2);
}

// Wedged workers.

/// On runtimes of 1, 2 and 4 workers, of which so many are wedged, twice.
fn all_goes_on_while_wedged(how: Hog, spared: usize) {
    for workers in [1, 2, 4] {
        watched(&format!("{how:?} on {workers} workers, {spared} spared"), move || {
            let runtime = runtime(workers);
            let echo = Echo::serve(&runtime);
            for _ in 0..2 {
                let hogs = hogs(&runtime, workers - spared, how);
                assert_all_goes_on(&runtime, &echo);
                hogs.release();
                assert_all_goes_on(&runtime, &echo);
            }
        });
    }
}

#[test]
fn all_goes_on_while_every_worker_waits_in_a_system_call() {
    all_goes_on_while_wedged(Hog::Waits, 0);
}

#[test]
fn all_goes_on_while_every_worker_sleeps() {
    all_goes_on_while_wedged(Hog::Sleeps, 0);
}

#[test]
fn all_goes_on_while_every_worker_computes() {
    all_goes_on_while_wedged(Hog::Computes, 0);
}

#[test]
fn all_goes_on_while_every_worker_but_one_is_wedged() {
    Hog::ALL.into_iter().for_each(|how| all_goes_on_while_wedged(how, 1));
}

/// Nothing was scheduled when the workers were wedged, so that nobody had to be looked after; then
/// a socket is ready, a timer is due.
#[test]
fn what_waited_for_sockets_and_timers_before_is_woken_while_every_worker_is_wedged() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let runtime = runtime(workers);
            let echo = Echo::serve(&runtime);
            let sleeps = runtime.spawn(sleep(150 * MS));
            // For the ticker to fall asleep.
            thread::sleep(100 * MS);
            let hogs = hogs(&runtime, workers, how);
            block_foreign(sleeps);
            round_trips(&echo.early, 20);
            hogs.release();
        }
    });
}

/// The timers of a thread that is none of the runtime's are fired by its workers.
#[test]
fn a_foreign_thread_waits_for_timers_while_every_worker_is_wedged() {
    on_each(|runtime| {
        let _guard = runtime.handle().enter();
        let hogs = hogs(&runtime, runtime.handle().config().worker_threads(), Hog::Waits);
        for _ in 0..10 {
            block_foreign(sleep(2 * MS));
        }
        hogs.release();
    });
}

/// Three in the queue, one in the slot, and one that the reactor sends to the worker that it was on.
#[test]
fn what_waits_behind_a_wedged_worker_runs() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let runtime = runtime(workers);
            let gate = Gate::default();
            let entrance = gate.entrance();
            let (tell, told) = mpsc::channel();
            let hog = runtime.spawn(async move {
                let place = Arc::new(Mutex::new(None::<Waker>));
                let (waits, tell_too) = (place.clone(), tell.clone());
                let mut waiting = false;
                let slotted = poll_fn(move |cx| {
                    if std::mem::replace(&mut waiting, true) {
                        tell_too.send("slot").unwrap();
                        return Poll::Ready(());
                    }
                    *waits.lock().unwrap() = Some(cx.waker().clone());
                    Poll::Pending
                });
                spawn(slotted).detach();
                while place.lock().unwrap().is_none() {
                    yield_now().await;
                }
                let tell_too = tell.clone();
                let timed = async move {
                    sleep(5 * MS).await;
                    tell_too.send("timer").unwrap();
                };
                spawn(timed).detach();
                yield_now().await;
                for _ in 0..3 {
                    let tell = tell.clone();
                    spawn(async move { tell.send("queue").unwrap() }).detach();
                }
                place.lock().unwrap().take().unwrap().wake();
                drop(tell);
                entrance.pass(how);
            });
            let mut ran: Vec<_> = told.iter().collect();
            ran.sort();
            assert_eq!(ran, ["queue", "queue", "queue", "slot", "timer"]);
            gate.open();
            block_foreign(hog);
        }
    });
}

/// A task that waits for a lock that another task holds, which cannot give it back unless it runs.
#[test]
fn workers_that_wait_for_a_task_are_freed_by_it() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        for _ in 0..3 {
            let (tell, told) = mpsc::channel();
            let waits: Vec<_> = (0..workers)
                .map(|_| {
                    let tell = tell.clone();
                    runtime.spawn(async move {
                        let (open, gate) = mpsc::channel();
                        spawn(async move { open.send(()).unwrap() }).detach();
                        gate.recv().unwrap();
                        tell.send(()).unwrap();
                    })
                })
                .collect();
            (0..workers).for_each(|_| told.recv().unwrap());
            waits.into_iter().for_each(block_foreign);
        }
    });
}

/// A main future of its own thread, which works for the runtime as well.
#[test]
fn tasks_go_on_while_the_future_of_block_on_blocks() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let runtime = runtime(workers);
            let gate = Gate::default();
            let entrance = gate.entrance();
            let opens = async move {
                sleep(2 * MS).await;
                yield_now().await;
                gate.open();
            };
            runtime.block_on(async {
                spawn(opens).detach();
                yield_now().await;
                entrance.pass(how);
            });
        }
    });
}

#[test]
fn a_nested_block_on_goes_on_while_every_worker_is_wedged() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let handle = runtime.handle().clone();
        let (begin, begins) = futures::channel::oneshot::channel();
        let nested = runtime.spawn(async move {
            handle.block_on(async {
                begins.await.unwrap();
                sleep(MS).await;
                spawn(async { spawn(async { 1 }).await }).await
            })
        });
        let hogs = hogs(&runtime, workers, Hog::Waits);
        begin.send(()).unwrap();
        assert_eq!(block_foreign(nested), 1);
        hogs.release();
    });
}

/// Whatever tempo the ticker was given.
#[test]
fn a_ticker_that_was_set_makes_up_for_wedges_as_well() {
    watched("", || {
        let ticker = Ticker::Every(10 * MS);
        let runtime = Builder::new().worker_threads(2).ticker(ticker).build().unwrap();
        let echo = Echo::serve(&runtime);
        let hogs = hogs(&runtime, 2, Hog::Waits);
        assert_all_goes_on(&runtime, &echo);
        hogs.release();
    });
}

/// With the runtime's places free again, no more tasks run at once than there are places. A worker that
/// waits for a lock whose holder has lost its CPU is made up for as well, so that now and then there is
/// one more on a busy machine; but not most of the time.
#[track_caller]
fn assert_stood_down(runtime: &Runtime) {
    let workers = runtime.handle().config().worker_threads();
    until(|| runtime.metrics().spare_workers == 0);
    let polls_of_spare = || {
        let metrics = runtime.metrics();
        metrics.workers[workers..].iter().map(|spare| spare.polls).sum::<u64>()
    };
    let mut most: Vec<_> = (0..9)
        .map(|_| {
            let before = polls_of_spare();
            let most = most_at_once(runtime);
            let came_back = polls_of_spare() > before;
            assert!(most <= workers || came_back, "{most} at once on {workers} workers");
            most
        })
        .collect();
    most.sort();
    assert!(most[4] <= workers, "{most:?} at once on {workers} workers");
}

/// While the wedge lasts, no more run beside the hogs than there are workers.
#[test]
fn spare_workers_stand_down_afterwards() {
    for workers in [1, 2, 4] {
        for how in Hog::ALL {
            watched(&format!("{how:?} on {workers} workers"), move || {
                let runtime = runtime(workers);
                for loaded in [false, true, false] {
                    let hogs = hogs(&runtime, workers, how);
                    let beside = most_at_once(&runtime);
                    assert!(beside <= workers, "{beside} at once beside {workers} hogs");
                    assert!(runtime.metrics().spare_workers <= workers);
                    hogs.release();
                    if loaded {
                        most_at_once(&runtime);
                    }
                    assert_stood_down(&runtime);
                }
                let places = runtime.metrics().workers.len();
                assert!((workers..=2 * workers).contains(&places), "{places}");
            });
        }
    }
}

/// As above, beside tasks that never end: there is no idle moment in which to stand down.
#[test]
fn spare_workers_stand_down_under_load() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let stop = Arc::new(AtomicBool::new(false));
        let load: Vec<_> =
            (0..2 * workers).map(|_| runtime.spawn(self_waker(stop.clone()))).collect();
        for _ in 0..3 {
            let hogs = hogs(&runtime, workers, Hog::Waits);
            most_at_once(&runtime);
            hogs.release();
            assert_stood_down(&runtime);
        }
        stop.store(true, SeqCst);
        load.into_iter().for_each(block_foreign);
    });
}

/// And what is counted of tasks and polls comes out even.
#[test]
fn no_task_is_lost_or_run_twice_while_workers_come_and_go() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let runs = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for round in 0..20 {
            let hogs = hogs(&runtime, 1 + round % workers, Hog::ALL[round % 2]);
            for _ in 0..100 {
                let runs = runs.clone();
                tasks.push(runtime.spawn(async move {
                    for _ in 0..10 {
                        yield_now().await;
                    }
                    runs.fetch_add(1, SeqCst);
                }));
            }
            if round % 3 == 0 {
                tasks.drain(..).for_each(block_foreign);
            }
            hogs.release();
        }
        tasks.into_iter().for_each(block_foreign);
        assert_eq!(runs.load(SeqCst), 2_000);
        until(|| runtime.metrics().live_tasks == 0);
    });
}

// The end, while workers are wedged.

/// Tasks that wait, and one that never rests.
fn populate(runtime: &Runtime, census: &Census) {
    async fn hold(one: Counted, stays: impl Future<Output = ()>) {
        let _one = one;
        stays.await;
    }
    for _ in 0..5 {
        runtime.spawn(hold(census.one(), pending())).detach();
        runtime.spawn(hold(census.one(), sleep(10_000 * 1_000 * MS))).detach();
    }
    runtime.spawn(hold(census.one(), self_waker(Arc::default()))).detach();
}

#[test]
fn a_runtime_is_dropped_while_every_worker_is_wedged_and_made_up_for() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let (runtime, census) = (runtime(workers), Census::new());
            populate(&runtime, &census);
            let echo = Echo::serve(&runtime);
            let hogs = hogs(&runtime, workers, how);
            assert_all_goes_on(&runtime, &echo);
            let handle = runtime.handle().clone();
            let dropped = thread::spawn(move || drop(runtime));
            // The end has begun when it takes no more tasks.
            until(|| handle.spawn(async {}).is_finished());
            assert!(!dropped.is_finished(), "it waits for polls to return");
            hogs.release();
            dropped.join().unwrap();
            assert_eq!((census.dead(), census.born()), (11, 11));
            assert_eq!(handle.metrics().live_tasks, 0);
        }
    });
}

#[test]
fn a_shutdown_does_not_wait_for_wedged_workers_longer_than_it_is_told() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let (runtime, census) = (runtime(workers), Census::new());
            populate(&runtime, &census);
            let hogs = hogs(&runtime, workers, how);
            // One runs at least, so that a spare worker does.
            block_foreign(runtime.spawn(yield_now()));
            let handle = runtime.handle().clone();
            assert!(!runtime.shutdown_timeout(50 * MS));
            // A poll that was going on beside the hogs may have to return first.
            until(|| census.dead() == census.born());
            hogs.release();
            until(|| handle.metrics().live_tasks == 0);
        }
    });
}

// Blocking in place.

/// Tasks that sit in `block_in_place` until the gate is open, once all do.
fn sit(runtime: &Runtime, count: usize, how: Hog) -> (Gate, Vec<Task<usize>>) {
    let gate = Gate::default();
    let (tell, told) = mpsc::channel();
    let sits = |i| {
        let (entrance, tell) = (gate.entrance(), tell.clone());
        runtime.spawn(async move {
            block_in_place(|| {
                tell.send(()).unwrap();
                entrance.pass(how);
                i
            })
        })
    };
    let tasks = (0..count).map(sits).collect();
    (0..count).for_each(|_| told.recv().unwrap());
    (gate, tasks)
}

/// Returns when all have ended; a runtime that was dropped has cancelled them.
fn end(tasks: Vec<Task<usize>>) {
    for task in tasks {
        block_foreign(task.fallible());
    }
}

#[test]
fn a_thousand_tasks_finish_while_more_than_there_are_workers_block_in_place() {
    for workers in [1, 2, 4] {
        for how in Hog::ALL {
            watched(&format!("{how:?} on {workers} workers"), move || {
                let runtime = runtime(workers);
                let echo = Echo::serve(&runtime);
                let (gate, tasks) = sit(&runtime, 4, how);
                let others: Vec<_> =
                    (0..1_000).map(|_| runtime.spawn(async { yield_now().await })).collect();
                others.into_iter().for_each(block_foreign);
                assert_all_goes_on(&runtime, &echo);
                gate.open();
                let outputs: Vec<_> = tasks.into_iter().map(block_foreign).collect();
                assert_eq!(outputs, [0, 1, 2, 3]);
                assert_all_goes_on(&runtime, &echo);
            });
        }
    }
}

/// Without anybody who looks after them.
#[test]
fn tasks_go_on_beside_what_blocks_in_place_without_a_ticker() {
    on_each_size(|workers| {
        let runtime = Builder::new().worker_threads(workers).ticker(Ticker::Off).build().unwrap();
        let echo = Echo::serve(&runtime);
        let (gate, tasks) = sit(&runtime, workers, Hog::Waits);
        assert_all_goes_on(&runtime, &echo);
        gate.open();
        end(tasks);
    });
}

#[test]
fn what_was_queued_behind_it_runs_meanwhile() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let task = runtime.spawn(async {
            let (tell, told) = mpsc::channel();
            for i in 0..1_000 {
                let tell = tell.clone();
                spawn(async move { tell.send(i).unwrap() }).detach();
            }
            drop(tell);
            block_in_place(|| told.iter().count())
        });
        assert_eq!(block_foreign(task), 1_000);
    });
}

#[test]
fn a_task_that_blocks_in_place_is_woken_and_goes_on_afterwards() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let tasks: Vec<_> = (0..8)
            .map(|i| {
                runtime.spawn(async move {
                    let mut sum = 0;
                    for round in 0..100 {
                        sum += block_in_place(|| round);
                        yield_now().await;
                        // Spawned in a poll that may go on without a worker's place.
                        block_in_place(|| ());
                        sum += spawn(async move { i }).await;
                        if round % 10 == 0 {
                            block_in_place(|| thread::sleep(MS / 10));
                            sleep(MS / 10).await;
                        }
                    }
                    sum
                })
            })
            .collect();
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(block_foreign(task), 99 * 100 / 2 + 100 * i);
        }
        // None of those threads works on although it has no place.
        assert_stood_down(&runtime);
    });
}

#[test]
fn it_may_be_nested() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let nested = || async {
            block_in_place(|| {
                let (tell, told) = mpsc::channel();
                spawn(async move { tell.send(1).unwrap() }).detach();
                block_in_place(|| block_in_place(|| told.recv().unwrap())) + 1
            })
        };
        assert_eq!(block_foreign(runtime.spawn(nested())), 2);
        assert_eq!(runtime.block_on(nested()), 2);
    });
}

#[test]
fn a_block_on_inside_it_works() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let inside = || async {
            let handle = Handle::current();
            let sum = block_in_place(|| {
                handle.block_on(async {
                    sleep(MS).await;
                    spawn(async { spawn(async { 1 }).await }).await
                }) + handle.block_on(async { spawn(async { 2 }).await })
            });
            yield_now().await;
            sum
        };
        let tasks: Vec<_> = (0..8).map(|_| runtime.spawn(inside())).collect();
        tasks.into_iter().for_each(|task| assert_eq!(block_foreign(task), 3));
        assert_eq!(runtime.block_on(inside()), 3);
    });
}

#[test]
fn it_works_inside_a_block_on_inside_a_task() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let handle = runtime.handle().clone();
                runtime.spawn(async move {
                    handle.block_on(async {
                        yield_now().await;
                        let (tell, told) = mpsc::channel();
                        spawn(async move { tell.send(1).unwrap() }).detach();
                        let one = block_in_place(|| told.recv().unwrap());
                        one + spawn(async { 1 }).await
                    })
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| assert_eq!(block_foreign(task), 2));
    });
}

#[test]
fn it_works_in_the_future_of_block_on() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let sum = runtime.block_on(async {
            let mut sum = 0;
            for _ in 0..100 {
                let (tell, told) = mpsc::channel();
                spawn(async move { tell.send(1).unwrap() }).detach();
                sum += block_in_place(|| told.recv().unwrap());
                sum += spawn(async { 1 }).await;
            }
            sum
        });
        assert_eq!(sum, 200);
    });
}

#[test]
fn outside_of_a_runtime_it_only_calls_the_closure() {
    watched("", || {
        assert_eq!(block_in_place(|| block_in_place(|| 1)), 1);
        let runtime = runtime(1);
        assert_eq!(block_in_place(|| runtime.block_on(async { spawn(async { 1 }).await })), 1);
        let job = unblock(|| block_in_place(|| thread::current().id()));
        assert_ne!(block_foreign(job), thread::current().id());
        // What was entered is not worked for.
        let _guard = runtime.handle().enter();
        assert_eq!(block_in_place(|| block_foreign(spawn(async { 2 }))), 2);
    });
}

#[test]
fn a_panic_in_it_is_the_tasks() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let task = runtime.spawn(async { block_in_place(|| silent_panic()) });
            let payload = block_foreign(task.join()).map(|()| "none").unwrap_err().into_panic();
            assert_eq!(payload.downcast_ref(), Some(&"silent"));
            let caught = runtime.spawn(async {
                let panics = || block_in_place(|| block_in_place(|| silent_panic()));
                let caught = std::panic::catch_unwind(panics).is_err();
                yield_now().await;
                // It is as it was before.
                caught && spawn(async { true }).await
            });
            assert!(block_foreign(caught));
        }
        assert_stood_down(&runtime);
    });
}

#[test]
fn a_destructor_may_block_in_place() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let (gate, (tell, told)) = (Gate::default(), mpsc::channel());
        let entrance = gate.entrance();
        let waits = hand_made(
            |_| Poll::<()>::Pending,
            move || {
                block_in_place(|| {
                    tell.send(()).unwrap();
                    entrance.pass(Hog::Waits);
                });
            },
        );
        drop(runtime.spawn(waits));
        told.recv().unwrap();
        for _ in 0..10 {
            block_foreign(runtime.spawn(yield_now()));
        }
        gate.open();
        until(|| runtime.metrics().live_tasks == 0);
    });
}

#[test]
fn a_shutdown_does_not_wait_for_what_blocks_in_place_longer_than_it_is_told() {
    on_each_size(|workers| {
        let (runtime, census) = (runtime(workers), Census::new());
        populate(&runtime, &census);
        let (gate, tasks) = sit(&runtime, 3, Hog::Waits);
        let handle = runtime.handle().clone();
        assert!(!runtime.shutdown_timeout(50 * MS));
        until(|| census.dead() == census.born());
        gate.open();
        end(tasks);
        until(|| handle.metrics().live_tasks == 0);
    });
}

#[test]
fn a_runtime_that_is_dropped_waits_for_what_blocks_in_place() {
    on_each_size(|workers| {
        let (runtime, census) = (runtime(workers), Census::new());
        populate(&runtime, &census);
        let (gate, tasks) = sit(&runtime, 3, Hog::Waits);
        let handle = runtime.handle().clone();
        let dropped = thread::spawn(move || drop(runtime));
        until(|| handle.spawn(async {}).is_finished());
        assert!(!dropped.is_finished());
        gate.open();
        dropped.join().unwrap();
        assert_eq!((census.dead(), census.born()), (11, 11));
        end(tasks);
    });
}

/// And the spare workers that stand in for hogs, and what blocks in place, do not count twice.
#[test]
fn all_goes_on_while_some_are_wedged_and_others_block_in_place() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let echo = Echo::serve(&runtime);
        let (gate, tasks) = sit(&runtime, workers, Hog::Waits);
        let hogs = hogs(&runtime, workers, Hog::Waits);
        assert_all_goes_on(&runtime, &echo);
        gate.open();
        end(tasks);
        assert_all_goes_on(&runtime, &echo);
        hogs.release();
        assert_stood_down(&runtime);
    });
}
