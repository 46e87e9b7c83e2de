//! What the end of a runtime may be relied on for: futures dropped, threads joined, nothing hung.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

mod common;

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use paceline::{Handle, Runtime, Task, spawn, yield_now};

use common::{
    Census, lend_waker, on_drop, on_each, on_each_size, silent_panic, waker_of_one, watched,
};

/// So long that a test that waits for it hangs.
const NEVER: Duration = Duration::from_secs(10_000);

/// A runtime that its own tasks can reach, and drop.
type Shelf = Arc<Mutex<Option<Runtime>>>;

fn shelve(runtime: Runtime) -> (Shelf, Handle) {
    let handle = runtime.handle().clone();
    (Arc::new(Mutex::new(Some(runtime))), handle)
}

/// Drops the runtime, outside of the shelf's lock.
fn take_down(shelf: &Shelf) {
    let runtime = shelf.lock().unwrap().take();
    drop(runtime.expect("taken down once"));
}

/// Waits for ever, and holds `it` meanwhile.
async fn hold<T>(it: T) {
    let _it = it;
    pending::<()>().await;
}

/// A task that has been polled, and holds `it`.
fn waits_with<T: Send + 'static>(handle: &Handle, it: T) -> Task<()> {
    let (tx, rx) = mpsc::channel();
    let task = handle.spawn(async move {
        let _it = it;
        lend_waker(tx).await;
    });
    rx.recv().unwrap();
    task
}

/// Wakes itself for ever.
async fn spin<T>(it: T) {
    let _it = it;
    loop {
        yield_now().await;
    }
}

/// Spawns one that waits, and one that spawns in turn.
fn breed(census: Census) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let one = census.one();
    Box::pin(async move {
        let _one = one;
        spawn(hold(census.one())).detach();
        yield_now().await;
        if census.born() < 1_000 {
            spawn(breed(census.clone())).detach();
        }
    })
}

fn assert_stopped(handle: &Handle) {
    let error = futures::executor::block_on(handle.spawn(async {}).join()).unwrap_err();
    assert!(error.is_cancelled());
}

#[test]
fn every_future_is_dropped_when_drop_returns() {
    on_each_size(|workers| {
        for _ in 0..1_000 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            for _ in 0..5 {
                runtime.spawn(hold(census.one())).detach();
                runtime.spawn(spin(census.one())).detach();
                runtime.spawn(breed(census.clone())).detach();
            }
            drop(runtime);
            assert!(census.born() >= 15);
            assert_eq!(census.dead(), census.born());
        }
    });
}

#[test]
fn every_future_is_dropped_after_block_on_too() {
    on_each_size(|workers| {
        for _ in 0..300 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            runtime.block_on(async {
                for _ in 0..5 {
                    spawn(hold(census.one())).detach();
                    spawn(spin(census.one())).detach();
                }
                spawn(async {}).await;
            });
            drop(runtime);
            assert_eq!((census.dead(), census.born()), (10, 10));
        }
    });
}

#[test]
fn the_end_polls_no_task_that_waits() {
    on_each_size(|workers| {
        for _ in 0..300 {
            let runtime = common::runtime(workers);
            let polls = Arc::new(AtomicUsize::new(0));
            let (polled, heard) = mpsc::channel();
            for _ in 0..10 {
                let (polls, polled) = (polls.clone(), polled.clone());
                let poll = poll_fn(move |_| {
                    polls.fetch_add(1, SeqCst);
                    // Only the first ones are received.
                    let _ = polled.send(());
                    Poll::<()>::Pending
                });
                runtime.spawn(poll).detach();
            }
            (0..10).for_each(|_| heard.recv().unwrap());
            drop(runtime);
            assert_eq!(polls.load(SeqCst), 10, "nobody woke them");
        }
    });
}

#[test]
fn destructors_that_wake_each_other_finish() {
    on_each_size(|workers| {
        for _ in 0..100 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
            let ring = (0..20).map(|_| {
                let wakers = wakers.clone();
                let one = census.one();
                waits_with(
                    runtime.handle(),
                    on_drop(move || {
                        let all = wakers.lock().unwrap().clone();
                        all.iter().for_each(Waker::wake_by_ref);
                        drop(one);
                    }),
                )
            });
            ring.for_each(Task::detach);
            for _ in 0..20 {
                let (tx, rx) = mpsc::channel();
                runtime.spawn(lend_waker(tx)).detach();
                wakers.lock().unwrap().push(rx.recv().unwrap());
            }
            drop(runtime);
            assert_eq!(census.dead(), 20);
        }
    });
}

#[test]
fn a_destructor_that_wakes_its_own_task_finishes() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..20 {
            let (tx, rx) = mpsc::channel();
            let own = Arc::new(Mutex::new(None::<Waker>));
            let (kept, one) = (own.clone(), census.one());
            let guard = on_drop(move || {
                kept.lock().unwrap().take().unwrap().wake();
                drop(one);
            });
            runtime
                .spawn(async move {
                    let _guard = guard;
                    lend_waker(tx).await;
                })
                .detach();
            *own.lock().unwrap() = Some(rx.recv().unwrap());
        }
        drop(runtime);
        assert_eq!(census.dead(), 20);
    });
}

/// Spawns a cancelled task, whose destructor spawns in turn, `depth` deep.
fn spawn_when_dropped(handle: Handle, census: Census, depth: usize) -> impl Send {
    let one = census.one();
    let guard: Box<dyn FnOnce() + Send> = Box::new(move || {
        drop(one);
        if depth > 0 {
            let next = spawn_when_dropped(handle.clone(), census, depth - 1);
            handle.spawn(hold(next)).detach();
        }
    });
    on_drop(guard)
}

#[test]
fn destructors_that_spawn_finish() {
    on_each_size(|workers| {
        for _ in 0..100 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            for _ in 0..10 {
                let guard = spawn_when_dropped(runtime.handle().clone(), census.clone(), 5);
                waits_with(runtime.handle(), guard).detach();
            }
            drop(runtime);
            assert_eq!((census.dead(), census.born()), (60, 60));
        }
    });
}

#[test]
fn a_task_spawned_by_a_destructor_at_the_end_is_cancelled() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let handle = runtime.handle().clone();
        waits_with(runtime.handle(), on_drop(move || tx.send(handle.spawn(async { 1 })).unwrap()))
            .detach();
        drop(runtime);
        let task = rx.recv().unwrap();
        assert!(futures::executor::block_on(task.join()).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_destructor_that_panics_stops_no_end() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..20 {
            let one = census.one();
            let bomb = on_drop(move || {
                drop(one);
                silent_panic()
            });
            waits_with(runtime.handle(), bomb).detach();
        }
        drop(runtime);
        assert_eq!(census.dead(), 20);
    });
}

#[test]
fn a_spawn_after_the_end_gives_a_cancelled_task() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        drop(runtime);
        let census = Census::new();
        let task = handle.spawn(hold(census.one()));
        assert!(task.is_finished());
        assert_eq!(census.dead(), 1);
        assert_stopped(&handle);
        assert_eq!(futures::executor::block_on(handle.spawn(async { 1 }).fallible()), None);
        assert_eq!(futures::executor::block_on(handle.spawn(async { 1 }).cancel()), None);
    });
}

#[test]
fn block_on_after_the_end_runs_its_future() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        drop(runtime);
        let (tx, rx) = futures::channel::oneshot::channel();
        let foreign = thread::spawn(move || tx.send(5).unwrap());
        assert_eq!(handle.block_on(rx), Ok(5));
        foreign.join().unwrap();
        assert!(
            handle.block_on(async { spawn(async {}).join().await }).unwrap_err().is_cancelled()
        );
    });
}

#[test]
fn block_on_outlives_its_runtime() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        let (waits, is_waiting) = mpsc::channel();
        let (release, gate) = futures::channel::oneshot::channel();
        let other = thread::spawn(move || {
            handle.block_on(async move {
                let task = spawn(pending::<()>());
                waits.send(()).unwrap();
                // First it hears of the end, then it goes on beside it.
                let error = task.join().await.unwrap_err();
                (error.is_cancelled(), gate.await)
            })
        });
        is_waiting.recv().unwrap();
        drop(runtime);
        release.send(3).unwrap();
        assert_eq!(other.join().unwrap(), (true, Ok(3)));
    });
}

#[test]
fn ten_thousand_spawns_race_the_drop() {
    on_each_size(|workers| {
        for _ in 0..10 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            let (started, is_started) = mpsc::channel();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (handle, census) = (runtime.handle().clone(), census.clone());
                    let started = started.clone();
                    thread::spawn(move || {
                        for i in 0..2_500 {
                            let one = census.one();
                            match i % 3 {
                                0 => handle.spawn(hold(one)).detach(),
                                1 => handle.spawn(async move { drop(one) }).detach(),
                                _ => drop(handle.spawn(spin(one))),
                            }
                            if i == 100 {
                                started.send(()).unwrap();
                            }
                        }
                    })
                })
                .collect();
            is_started.recv().unwrap();
            drop(runtime);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((census.dead(), census.born()), (10_000, 10_000));
        }
    });
}

#[test]
fn ten_thousand_wakes_race_the_drop() {
    on_each_size(|workers| {
        for _ in 0..20 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            let wakers: Vec<Waker> = (0..100).map(|_| waker_of_one(&runtime, &census)).collect();
            let (started, is_started) = mpsc::channel();
            let foreign = thread::spawn(move || {
                for round in 0..100 {
                    wakers.iter().for_each(Waker::wake_by_ref);
                    if round == 10 {
                        started.send(()).unwrap();
                    }
                }
            });
            is_started.recv().unwrap();
            drop(runtime);
            assert_eq!((census.dead(), census.born()), (100, 100));
            foreign.join().unwrap();
        }
    });
}

#[test]
fn cancellations_race_the_drop() {
    on_each_size(|workers| {
        for _ in 0..50 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            let tasks: Vec<_> =
                (0..50).map(|_| waits_with(runtime.handle(), census.one())).collect();
            let foreign = thread::spawn(move || tasks.into_iter().for_each(drop));
            drop(runtime);
            assert_eq!((census.dead(), census.born()), (50, 50));
            foreign.join().unwrap();
        }
    });
}

/// Where the task lies whose drop unblocks the worker.
#[derive(Clone, Copy)]
enum Lies {
    Waiting,
    Queued,
    InTheSlot,
}

#[test]
fn dropping_tasks_unblocks_a_blocked_worker() {
    on_each_size(|workers| {
        for lies in [Lies::Waiting, Lies::Queued, Lies::InTheSlot] {
            // Without a ticker nobody moves on what lies behind the blocked poll.
            let builder = Runtime::builder().worker_threads(workers);
            let runtime = builder.ticker(paceline::Ticker::Off).build().unwrap();
            let (blocks, is_blocked) = mpsc::channel();
            let (unblocked, heard) = mpsc::channel();
            runtime
                .spawn(async move {
                    let (tx, rx) = mpsc::channel::<()>();
                    let waits = waits_behind(lies, tx).await;
                    blocks.send(()).unwrap();
                    unblocked.send(rx.recv().is_err()).unwrap();
                    drop(waits);
                })
                .detach();
            is_blocked.recv().unwrap();
            drop(runtime);
            assert_eq!(heard.recv(), Ok(true), "it holds the other end until it is dropped");
        }
    });
}

/// A task of this worker that holds `it` and never ends by itself.
async fn waits_behind(lies: Lies, it: mpsc::Sender<()>) -> Task<()> {
    if matches!(lies, Lies::Queued) {
        return spawn(spin(it));
    }
    let slot = Arc::new(Mutex::new(None::<Waker>));
    let leave = slot.clone();
    let task = spawn(async move {
        let _it = it;
        poll_fn(move |cx| {
            *leave.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    });
    while slot.lock().unwrap().is_none() {
        yield_now().await;
    }
    let waker = slot.lock().unwrap().take().unwrap();
    if matches!(lies, Lies::InTheSlot) {
        waker.wake();
    }
    task
}

#[test]
fn shutdown_timeout_returns_although_a_poll_is_stuck() {
    on_each(|runtime| {
        let (census, stuck) = (Census::new(), Census::new());
        let (release, gate) = mpsc::channel::<()>();
        let (in_poll, polling) = mpsc::channel();
        let (ended, heard) = mpsc::channel();
        waits_with(runtime.handle(), census.one()).detach();
        let one = stuck.one();
        let (behind, far) = (census.one(), census.one());
        let task = runtime.spawn(async move {
            let _one = on_drop(move || {
                drop(one);
                ended.send(()).unwrap();
            });
            spawn(hold(behind)).detach();
            in_poll.send(()).unwrap();
            gate.recv().unwrap();
            // Comes too late: it is cancelled at once.
            spawn(hold(far)).detach();
            pending::<()>().await;
        });
        polling.recv().unwrap();
        let handle = runtime.handle().clone();
        assert!(!runtime.shutdown_timeout(Duration::from_millis(10)));
        assert_eq!(census.dead(), 2, "what is in no poll is dropped");
        assert_eq!(stuck.dead(), 0);
        assert_stopped(&handle);
        release.send(()).unwrap();
        heard.recv().expect("the stuck thread sees to the rest");
        assert!(futures::executor::block_on(task.join()).unwrap_err().is_cancelled());
        common::until(|| census.dead() == 3 && stuck.dead() == 1);
        common::until(|| handle.metrics().live_tasks == 0);
    });
}

#[test]
fn shutdown_timeout_returns_as_soon_as_all_is_done() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..10 {
            waits_with(runtime.handle(), census.one()).detach();
            runtime.spawn(spin(census.one())).detach();
        }
        assert!(runtime.shutdown_timeout(NEVER));
        assert_eq!((census.dead(), census.born()), (20, 20));
    });
}

#[test]
fn shutdown_timeout_waits_for_a_poll_that_comes_to_its_end() {
    on_each_size(|workers| {
        for timeout in [NEVER, Duration::MAX] {
            let runtime = common::runtime(workers);
            let (release, gate) = mpsc::channel::<()>();
            let (in_poll, polling) = mpsc::channel();
            let ended = Arc::new(AtomicBool::new(false));
            let end = ended.clone();
            let task = runtime.spawn(async move {
                in_poll.send(()).unwrap();
                gate.recv().unwrap();
                end.store(true, SeqCst);
                8
            });
            polling.recv().unwrap();
            // Released by a task's destructor: not before the end has begun.
            waits_with_elsewhere(&runtime, on_drop(move || release.send(()).unwrap()), workers);
            assert!(runtime.shutdown_timeout(timeout));
            assert!(ended.load(SeqCst));
            assert_eq!(futures::executor::block_on(task), 8);
        }
    });
}

/// A task beside one that blocks a worker; with one worker it has not been polled.
fn waits_with_elsewhere<T: Send + 'static>(runtime: &Runtime, it: T, workers: usize) {
    if workers == 1 {
        runtime.spawn(hold(it)).detach();
    } else {
        waits_with(runtime.handle(), it).detach();
    }
}

#[test]
fn a_runtime_with_nothing_to_do_stops() {
    on_each_size(|workers| {
        drop(common::runtime(workers));
        assert!(common::runtime(workers).shutdown_timeout(NEVER));
        assert!(common::runtime(workers).shutdown_timeout(Duration::ZERO));
    });
}

/// Waits until all that `census` counted is dropped, and the runtime knows it.
fn assert_ends(handle: &Handle, census: &Census) {
    common::until(|| census.dead() == census.born() && handle.metrics().live_tasks == 0);
    assert_stopped(handle);
}

#[test]
fn a_runtime_is_dropped_inside_a_task_of_its_own() {
    on_each_size(|workers| {
        for goes_on in [false, true] {
            let (shelf, handle) = shelve(common::runtime(workers));
            let census = Census::new();
            (0..5).for_each(|_| waits_with(&handle, census.one()).detach());
            let (dropped, heard) = mpsc::channel();
            let one = census.one();
            let task = handle.spawn(async move {
                let _one = one;
                take_down(&shelf);
                dropped.send(()).unwrap();
                if goes_on {
                    pending::<()>().await;
                }
            });
            heard.recv().unwrap();
            let result = futures::executor::block_on(task.join());
            assert_eq!(result.is_err_and(|error| error.is_cancelled()), goes_on);
            assert_ends(&handle, &census);
        }
    });
}

#[test]
fn a_runtime_is_dropped_inside_its_own_block_on() {
    on_each_size(|workers| {
        let (shelf, handle) = shelve(common::runtime(workers));
        let census = Census::new();
        let waits: Vec<_> = (0..5).map(|_| waits_with(&handle, census.one())).collect();
        let cancelled = handle.block_on(async {
            take_down(&shelf);
            let mut cancelled = 0;
            for task in waits {
                cancelled += usize::from(task.join().await.unwrap_err().is_cancelled());
            }
            cancelled
        });
        assert_eq!(cancelled, 5);
        assert_eq!((census.dead(), census.born()), (5, 5));
        assert_stopped(&handle);
    });
}

#[test]
fn a_runtime_is_dropped_by_a_task_while_block_on_waits_for_it() {
    on_each_size(|workers| {
        for _ in 0..50 {
            let (shelf, handle) = shelve(common::runtime(workers));
            let census = Census::new();
            let waits = waits_with(&handle, census.one());
            let error = handle.block_on(async {
                spawn(async move { take_down(&shelf) }).detach();
                waits.join().await.unwrap_err()
            });
            assert!(error.is_cancelled());
            assert_ends(&handle, &census);
        }
    });
}

/// The processor was given away when the nested `block_on` began to wait: at the end no thread of
/// the runtime may be in a loop of its own.
#[test]
fn a_runtime_is_dropped_inside_a_nested_block_on_that_then_waits_for_its_tasks() {
    on_each_size(|workers| {
        let (shelf, handle) = shelve(common::runtime(workers));
        let census = Census::new();
        let waits = waits_with(&handle, census.one());
        let (release, gate) = futures::channel::oneshot::channel::<()>();
        let (in_poll, polling) = mpsc::channel();
        let (ended, heard) = mpsc::channel();
        let nested = handle.clone();
        handle
            .spawn(async move {
                let error = nested.block_on(async move {
                    // The processor is given away after the first poll.
                    yield_now().await;
                    in_poll.send(()).unwrap();
                    gate.await.unwrap();
                    take_down(&shelf);
                    waits.join().await.unwrap_err()
                });
                ended.send(error.is_cancelled()).unwrap();
            })
            .detach();
        polling.recv().unwrap();
        release.send(()).unwrap();
        assert_eq!(heard.recv(), Ok(true));
        assert_ends(&handle, &census);
    });
}

#[test]
fn a_runtime_is_dropped_inside_another_one() {
    on_each(|outer| {
        for _ in 0..50 {
            let inner = common::runtime(2);
            let handle = inner.handle().clone();
            let census = Census::new();
            (0..5).for_each(|_| waits_with(&handle, census.one()).detach());
            inner.spawn(spin(census.one())).detach();
            let counted = census.clone();
            let in_task = outer.spawn(async move {
                drop(inner);
                (counted.dead(), counted.born())
            });
            assert_eq!(outer.block_on(in_task), (6, 6), "it waits: it is not its own thread's");
            assert_stopped(&handle);
            let inner = common::runtime(2);
            inner.spawn(spin(census.one())).detach();
            outer.block_on(async move { drop(inner) });
            assert_eq!((census.dead(), census.born()), (7, 7));
        }
    });
}

#[test]
fn a_runtime_is_dropped_by_a_task_of_its_own_that_is_cancelled() {
    on_each(|outer| {
        // A runtime in a future of another one, dropped by that one's end.
        let inner = common::runtime(2);
        let handle = inner.handle().clone();
        let census = Census::new();
        waits_with(&handle, census.one()).detach();
        waits_with(outer.handle(), inner).detach();
        drop(outer);
        assert_eq!(census.dead(), 1);
        assert_stopped(&handle);
        // A runtime in a future of its own, dropped when that is cancelled.
        let (shelf, handle) = shelve(common::runtime(2));
        let runtime = shelf.lock().unwrap().take();
        drop(waits_with(&handle, (runtime, census.one())));
        assert_ends(&handle, &census);
    });
}

thread_local! {
    static AT_EXIT: AtExit = const { AtExit(Cell::new(None)) };
}

type Last = Box<dyn FnOnce()>;

/// Runs what it was given while its thread's locals are destroyed.
struct AtExit(Cell<Option<Last>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

/// Runs `last` when this thread ends, among the destructors of its locals.
fn at_exit(last: impl FnOnce() + 'static) {
    AT_EXIT.with(|at_exit| at_exit.0.set(Some(Box::new(last))));
}

#[test]
fn a_runtime_in_a_thread_local_is_dropped_cleanly() {
    on_each_size(|workers| {
        thread_local! {
            static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
        }
        let census = Census::new();
        let counted = census.clone();
        let owner = thread::spawn(move || {
            let runtime = common::runtime(workers);
            (0..5).for_each(|_| waits_with(runtime.handle(), counted.one()).detach());
            runtime.block_on(async { spawn(spin(counted.one())).detach() });
            RUNTIME.set(Some(runtime));
        });
        owner.join().expect("no panic among the destructors");
        assert_eq!((census.dead(), census.born()), (6, 6));
    });
}

#[test]
fn a_destructor_of_a_thread_local_wakes() {
    on_each(|runtime| {
        let (woken, heard) = mpsc::channel();
        runtime
            .spawn(poll_fn(move |cx| {
                woken.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            }))
            .detach();
        let waker = heard.recv().unwrap();
        thread::spawn(move || at_exit(move || waker.wake())).join().unwrap();
        let waker = heard.recv().expect("it is polled again");
        drop(runtime);
        // Whether the end polls it is another test's.
        let waker = heard.try_iter().last().unwrap_or(waker);
        assert!(thread::spawn(move || at_exit(move || waker.wake())).join().is_ok());
        assert_eq!(heard.try_iter().count(), 0, "it is dropped, not polled");
    });
}

#[test]
fn a_destructor_of_a_thread_local_spawns() {
    on_each(|runtime| {
        let (tx, rx) = mpsc::channel();
        let handle = runtime.handle().clone();
        let dying = thread::spawn(move || {
            at_exit(move || handle.spawn(async move { tx.send(4).unwrap() }).detach());
        });
        dying.join().unwrap();
        assert_eq!(rx.recv(), Ok(4));
    });
}

#[test]
fn a_destructor_of_a_workers_thread_local_wakes_and_spawns_at_the_end() {
    on_each_size(|workers| {
        for _ in 0..50 {
            let runtime = common::runtime(workers);
            let census = Census::new();
            let (tx, rx) = mpsc::channel();
            let (done, heard) = mpsc::channel();
            runtime.spawn(lend_waker(tx)).detach();
            let waker = rx.recv().unwrap();
            let (handle, one) = (runtime.handle().clone(), census.one());
            let (ran, has_run) = mpsc::channel();
            runtime
                .spawn(async move {
                    at_exit(move || {
                        waker.wake();
                        let task = handle.spawn(hold(one));
                        done.send(task.is_finished()).unwrap();
                    });
                    ran.send(()).unwrap();
                })
                .detach();
            has_run.recv().unwrap();
            drop(runtime);
            assert_eq!(heard.try_recv(), Ok(true), "the worker was joined, locals and all");
            assert_eq!(census.dead(), 1);
        }
    });
}

#[test]
fn every_thread_is_joined_when_drop_returns() {
    on_each_size(|workers| {
        for _ in 0..200 {
            let (threads, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
            let (counted, stopped) = (threads.clone(), stops.clone());
            let runtime = Runtime::builder()
                .worker_threads(workers)
                .on_thread_start(move || {
                    let one = counted.one();
                    at_exit(move || drop(one));
                })
                .on_thread_stop(move || {
                    stopped.fetch_add(1, SeqCst);
                })
                .build()
                .unwrap();
            for _ in 0..8 {
                runtime.spawn(spin(())).detach();
            }
            // One more thread, for the time that the task blocks.
            let handle = runtime.handle().clone();
            runtime.block_on(runtime.spawn(async move { handle.block_on(handle.spawn(async {})) }));
            drop(runtime);
            assert!(threads.born() > 0);
            assert_eq!(threads.dead(), threads.born(), "a local of a worker's outlived it");
            assert_eq!(stops.load(SeqCst), threads.born());
        }
    });
}

#[cfg(target_os = "linux")]
mod processes {
    //! What is counted, or fails, by the process.

    use super::*;
    use common::alone;

    fn entries(directory: &str) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    fn use_and_drop(workers: usize) {
        let runtime = common::runtime(workers);
        let tasks: Vec<_> = (0..2 * workers).map(|i| runtime.spawn(async move { i })).collect();
        runtime.spawn(spin(())).detach();
        runtime.spawn(hold(())).detach();
        assert_eq!(runtime.block_on(futures::future::join_all(tasks)).len(), 2 * workers);
    }

    #[test]
    fn cycles_leak_no_thread_and_no_descriptor() {
        alone("processes::cycles_leak_no_thread_and_no_descriptor", || {
            // What the process opens once and keeps is opened here.
            (1..=8).for_each(use_and_drop);
            let descriptors = entries("/proc/self/fd");
            let threads = entries("/proc/self/task");
            (0..400).for_each(|cycle| use_and_drop(cycle % 8 + 1));
            assert_eq!(entries("/proc/self/fd"), descriptors);
            // A joined thread may be listed until the kernel has reaped it; a leaked one stays.
            common::until(|| entries("/proc/self/task") <= threads);
            assert!(entries("/proc/self/task") <= threads);
        });
    }

    /// Whether that thread of this process sleeps.
    fn sleeps(thread: libc::pid_t) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // The state is the first field after the name in parentheses.
        stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
    }

    /// A thread in `block_on` that never works, since every processor is taken, and sleeps.
    fn sleeper(handle: &Handle) -> impl FnOnce() {
        let (tell, told) = mpsc::channel();
        let (release, gate) = futures::channel::oneshot::channel::<()>();
        let handle = handle.clone();
        let thread = thread::spawn(move || {
            handle.block_on(async move {
                // SAFETY: it has no preconditions.
                tell.send(unsafe { libc::gettid() }).unwrap();
                gate.await.unwrap();
            });
        });
        let id = told.recv().unwrap();
        common::until(|| sleeps(id));
        move || {
            release.send(()).unwrap();
            thread.join().unwrap();
        }
    }

    /// A worker thread that is one too many leaves while the runtime goes on; a local of its wakes
    /// a task when there is no other thread for it, so that one must be started right then.
    #[test]
    fn a_destructor_of_a_leaving_workers_thread_local_wakes() {
        alone("processes::a_destructor_of_a_leaving_workers_thread_local_wakes", || {
            let runtime = common::runtime(1);
            let handle = runtime.handle().clone();
            let (tx, rx) = mpsc::channel();
            let (woken, heard) = mpsc::channel();
            let mut polls = 0;
            let waits = runtime.spawn(poll_fn(move |cx| {
                polls += 1;
                tx.send(cx.waker().clone()).unwrap();
                woken.send(polls).unwrap();
                if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
            }));
            let waker = rx.recv().unwrap();
            assert_eq!(heard.recv(), Ok(1));

            // The first thread gives its processor away, since its task blocks.
            let (come_back, gate) = futures::channel::oneshot::channel::<()>();
            let (exits, is_exiting) = mpsc::channel();
            let (go, may_go) = mpsc::channel::<()>();
            let nested = handle.clone();
            let (in_poll, polling) = mpsc::channel();
            let blocks = runtime.spawn(async move {
                at_exit(move || {
                    exits.send(()).unwrap();
                    may_go.recv().unwrap();
                    waker.wake();
                });
                in_poll.send(()).unwrap();
                nested.block_on(gate).unwrap();
            });
            polling.recv().unwrap();

            // The second thread holds it, then gives it away as well.
            let (give_up, keeps) = mpsc::channel::<()>();
            let (gave_up, has_given_up) = mpsc::channel();
            let (end, ending) = futures::channel::oneshot::channel::<()>();
            let nested = handle.clone();
            let (in_poll, polling) = mpsc::channel();
            let holds = runtime.spawn(async move {
                in_poll.send(()).unwrap();
                keeps.recv().unwrap();
                nested.block_on(async move {
                    // The processor is given away after the first poll.
                    yield_now().await;
                    gave_up.send(()).unwrap();
                    ending.await.unwrap();
                });
            });
            polling.recv().unwrap();

            // The third thread sleeps meanwhile, so that the first is one too many, and leaves.
            let wake_sleeper = sleeper(&handle);
            come_back.send(()).unwrap();
            is_exiting.recv().unwrap();
            wake_sleeper();
            give_up.send(()).unwrap();
            has_given_up.recv().unwrap();
            go.send(()).unwrap();
            assert_eq!(heard.recv(), Ok(2));
            end.send(()).unwrap();
            runtime.block_on(futures::future::join3(waits, blocks, holds));
        });
    }
}

#[test]
fn a_handle_that_outlives_its_runtime_is_harmless() {
    watched("alone", || {
        let handles: Vec<_> = (0..50)
            .map(|i| {
                let runtime = common::runtime(i % 4 + 1);
                runtime.spawn(spin(())).detach();
                runtime.handle().clone()
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.metrics().live_tasks, 0);
            assert_stopped(&handle);
        }
    });
}
