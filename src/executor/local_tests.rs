//! Tests of the local executor and its tasks.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_lite::future::{block_on, pending, poll_once, yield_now};

use crate::executor::LocalExecutor;
use crate::task::Task;

/// Counts its drops.
struct Counted(std::sync::Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counter() -> (std::sync::Arc<AtomicUsize>, impl Fn() -> Counted) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    (count.clone(), move || Counted(count.clone()))
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn elsewhere<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// A future that gives its waker away, and is ready when it is polled again.
fn given_away(to: mpsc::Sender<Waker>) -> impl Future<Output = ()> {
    let mut to = Some(to);
    poll_fn(move |cx| match to.take() {
        None => Poll::Ready(()),
        Some(to) => {
            to.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }
    })
}

/// The limit from which on references are carried over is a small one in tests.
#[test]
fn wakers_that_are_made_here_and_dropped_elsewhere_are_as_many_as_they_like() {
    let (dropped, counted) = counter();
    let executor = LocalExecutor::new();
    let (to, wakers) = mpsc::channel::<Waker>();
    for end_first in [false, true] {
        let (guard, to) = (counted(), to.clone());
        let task = executor.spawn(async move {
            let _guard = guard;
            for _ in 0..100 {
                poll_fn(|cx| {
                    to.send(cx.waker().clone()).unwrap();
                    Poll::Ready(())
                })
                .await;
            }
            yield_now().await;
        });
        assert!(executor.try_tick());
        let all: Vec<_> = wakers.try_iter().collect();
        assert_eq!(all.len(), 100);
        if end_first {
            assert!(executor.try_tick());
        }
        elsewhere(|| {
            all.iter().for_each(Waker::wake_by_ref);
            drop(all);
        });
        while executor.try_tick() {}
        assert!(task.is_finished());
    }
    assert_eq!(dropped.load(SeqCst), 2);
}

/// Each wake gives one reference to the inbox, which the executor drops.
#[test]
fn wakes_from_elsewhere_are_as_many_as_they_like() {
    let executor = LocalExecutor::new();
    let (to, wakers) = mpsc::channel();
    let task = executor.spawn(async move {
        let mut polls = 0;
        poll_fn(|cx| {
            if polls == 0 {
                to.send(cx.waker().clone()).unwrap();
            }
            polls += 1;
            if polls == 100 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    assert!(executor.try_tick());
    let waker = wakers.recv().unwrap();
    while !task.is_finished() {
        elsewhere(|| waker.wake_by_ref());
        assert!(executor.try_tick());
    }
    elsewhere(|| drop(waker));
}

#[test]
fn what_a_run_leaves_when_it_gives_way_is_another_ones_that_sleeps() {
    let executor = LocalExecutor::new();
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut sleeps = Box::pin(executor.run(pending::<()>()));
    assert!(sleeps.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut gives_way = Box::pin(executor.run(async {
        executor
            .spawn(async {
                loop {
                    yield_now().await;
                }
            })
            .detach();
        pending::<()>().await;
    }));
    let idle = &mut Context::from_waker(Waker::noop());
    assert!(gives_way.as_mut().poll(idle).is_pending());
    assert!(woken.0.load(SeqCst) >= 1);
}

#[test]
fn tasks_borrow_and_run_in_the_order_of_their_spawns() {
    let log = RefCell::new(Vec::new());
    let executor = LocalExecutor::new();
    let log = &log;
    let tasks: Vec<_> = (0..3)
        .map(|i| {
            executor.spawn(async move {
                log.borrow_mut().push(i);
                yield_now().await;
                log.borrow_mut().push(10 + i);
                i
            })
        })
        .collect();
    let sum = block_on(executor.run(async {
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    }));
    assert_eq!((sum, &*log.borrow()), (3, &vec![0, 1, 2, 10, 11, 12]));
    assert!(executor.is_empty());
}

#[test]
fn who_is_woken_by_the_running_task_runs_next_and_the_rest_in_turn() {
    let log = RefCell::new(Vec::new());
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let (log, executor) = (&log, &executor);
    let waits = executor.spawn(async move {
        given_away(sender).await;
        log.borrow_mut().push("woken");
    });
    assert!(executor.try_tick());
    executor.spawn(async move { receiver.recv().unwrap().wake() }).detach();
    executor.spawn(async move { log.borrow_mut().push("behind") }).detach();
    while executor.try_tick() {}
    assert!(waits.is_finished());
    assert_eq!(*log.borrow(), ["woken", "behind"]);
}

#[test]
fn a_panic_reaches_who_awaits_and_nobody_else() {
    let executor = LocalExecutor::new();
    let task = executor.spawn(async { panic!("out of cheese") });
    executor.spawn(async { panic!("in no one's face") }).detach();
    let error = block_on(executor.run(task.join())).map(|(): ()| ()).unwrap_err();
    assert_eq!(error.to_string(), "task panicked: out of cheese");
    while executor.try_tick() {}
    assert!(executor.is_empty());
}

#[test]
fn a_drop_of_the_executor_drops_every_future_and_tells_who_awaits() {
    let (dropped, counted) = counter();
    let executor = LocalExecutor::new();
    let (waited, queued, done) = (counted(), counted(), counted());
    let waited = executor.spawn(async move {
        pending::<()>().await;
        drop(waited)
    });
    let done = executor.spawn(async move { done });
    assert!(executor.try_tick() && executor.try_tick());
    let queued = executor.spawn(async move { drop(queued) });
    assert_eq!(dropped.load(SeqCst), 0);
    drop(executor);
    assert_eq!(dropped.load(SeqCst), 2);
    assert_eq!(block_on(waited.fallible()), None);
    assert!(block_on(queued.join()).unwrap_err().is_cancelled());
    assert!(block_on(done.fallible()).is_some());
    assert_eq!(dropped.load(SeqCst), 3);
}

#[test]
fn destructors_wake_each_other_while_the_executor_goes() {
    struct Wakes(Option<Waker>);
    impl Drop for Wakes {
        fn drop(&mut self) {
            self.0.take().unwrap().wake();
            panic!("and panic");
        }
    }
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let sender = sender.clone();
            executor.spawn(async move { given_away(sender).await })
        })
        .collect();
    while executor.try_tick() {}
    for waker in receiver.try_iter() {
        let wakes = Wakes(Some(waker));
        executor
            .spawn(async move {
                pending::<()>().await;
                drop(wakes)
            })
            .detach();
    }
    while executor.try_tick() {}
    drop(executor);
    assert!(tasks.iter().all(Task::is_finished));
}

#[test]
fn a_dropped_handle_cancels_and_its_future_is_dropped_by_the_executor() {
    let (dropped, counted) = counter();
    let executor = LocalExecutor::new();
    for polls in [0, 1] {
        let counted = counted();
        let task = executor.spawn(async move {
            pending::<()>().await;
            drop(counted)
        });
        (0..polls).for_each(|_| assert!(executor.try_tick()));
        drop(task);
        assert_eq!(dropped.load(SeqCst), polls);
        assert!(executor.try_tick());
        assert_eq!((dropped.load(SeqCst), executor.is_empty()), (polls + 1, true));
    }
}

#[test]
fn a_cancellation_waits_for_the_drop_and_gives_an_output_that_was_there() {
    let executor = LocalExecutor::new();
    let (finished, waits) = (executor.spawn(async { 1 }), executor.spawn(pending::<()>()));
    while executor.try_tick() {}
    let cancelled = executor.run(async { (finished.cancel().await, waits.cancel().await) });
    assert_eq!(block_on(cancelled), (Some(1), None));
    assert!(executor.is_empty());
}

#[test]
fn a_task_drops_its_own_handle_and_is_cancelled_after_the_poll() {
    let executor = LocalExecutor::new();
    let handle = Rc::new(Cell::new(None::<Task<()>>));
    let (dropped, counted) = counter();
    let counted = counted();
    let task = executor.spawn({
        let handle = handle.clone();
        async move {
            drop(handle.take());
            pending::<()>().await;
            drop(counted);
        }
    });
    handle.set(Some(task));
    assert!(executor.try_tick());
    assert_eq!((dropped.load(SeqCst), executor.is_empty()), (1, true));
}

#[test]
fn an_output_that_nobody_wants_is_dropped_once_wherever() {
    let (dropped, counted) = counter();
    let executor = LocalExecutor::new();
    let spawn = || {
        let counted = counted();
        executor.spawn(async move { counted })
    };
    spawn().detach();
    assert!(executor.try_tick());
    assert_eq!(dropped.load(SeqCst), 1);
    let task = spawn();
    elsewhere(move || task.detach());
    assert!(executor.try_tick());
    assert_eq!(dropped.load(SeqCst), 2);
    let (finished, other) = (spawn(), spawn());
    while executor.try_tick() {}
    elsewhere(move || (drop(finished), other.detach()));
    assert_eq!(dropped.load(SeqCst), 4);
    let task = spawn();
    elsewhere(move || drop(task));
    assert!(executor.try_tick() && !executor.try_tick());
    assert!(executor.is_empty());
}

#[test]
fn futures_and_outputs_of_any_size_and_alignment_are_kept_where_they_belong() {
    #[repr(align(256))]
    struct Aligned(u8);
    fn is_aligned(value: &Aligned) -> bool {
        std::ptr::from_ref(value).addr() % 256 == 0
    }
    let executor = LocalExecutor::new();
    let small = executor.spawn(std::future::ready(()));
    let output = executor.spawn(async { Aligned(1) });
    let inner = Aligned(2);
    let future = executor.spawn(async move {
        yield_now().await;
        (is_aligned(&inner), inner.0)
    });
    let large = executor.spawn(async { [7u8; 4096] });
    block_on(executor.run(async {
        small.await;
        let output = output.await;
        assert!(is_aligned(&output) && output.0 == 1);
        assert_eq!(future.await, (true, 2));
        assert_eq!(large.await[4095], 7);
    }));
}

#[test]
fn a_leaked_run_is_in_nobodys_way() {
    /// Leaked, but not lost to who looks for leaks.
    static KEPT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let mut run = Box::pin(executor.run(given_away(sender)));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // SAFETY: it is not moved, and its memory is never given back.
    let run = unsafe { Pin::into_inner_unchecked(run) };
    KEPT.store(Box::into_raw(run).cast(), SeqCst);
    let waker = receiver.recv().unwrap();
    let there = waker.clone();
    elsewhere(move || there.wake());
    assert!(executor.is_empty());
    drop(executor);
    elsewhere(|| waker.wake());
}

#[test]
fn a_main_future_is_woken_from_elsewhere_through_another_run() {
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(executor.run(given_away(sender)));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    let mut second = Box::pin(executor.run(pending::<()>()));
    assert!(second.as_mut().poll(&mut cx).is_pending());
    let main = receiver.recv().unwrap();
    elsewhere(|| main.wake());
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(woken.0.load(SeqCst), 2);
    assert!(first.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn wakers_and_handles_outlive_the_executor() {
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let task = executor.spawn(given_away(sender));
    assert!(executor.try_tick());
    let waker = receiver.recv().unwrap();
    let other = elsewhere(|| waker.clone());
    drop(executor);
    other.wake_by_ref();
    waker.wake();
    elsewhere(move || {
        drop(other.clone());
        other.wake();
        assert!(task.is_finished());
        assert_eq!(block_on(task.fallible()), None);
    });
}

#[test]
fn a_wake_from_elsewhere_calls_a_run_that_waits() {
    let executor = LocalExecutor::new();
    let (sender, receiver) = mpsc::channel();
    let task = executor.spawn(async move {
        for _ in 0..3 {
            given_away(sender.clone()).await;
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let wakers = receiver.iter().take(3);
            wakers.for_each(|waker: Waker| {
                waker.wake_by_ref();
                waker.wake()
            });
        });
        block_on(executor.run(task));
    });
}

#[test]
fn a_handle_is_awaited_elsewhere_and_comes_back() {
    let executor = LocalExecutor::new();
    let go = Rc::new(Cell::new(false));
    let task = executor.spawn({
        let go = go.clone();
        async move {
            while !go.get() {
                yield_now().await;
            }
            7
        }
    });
    let mut task = Some(task);
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    for there in [false, true, true, false] {
        let mut one = task.take().unwrap();
        let poll = || {
            let poll = Pin::new(&mut one).poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
            one
        };
        task = Some(if there { elsewhere(poll) } else { poll() });
    }
    go.set(true);
    while executor.try_tick() {}
    // One waker was left here, one there.
    assert_eq!(woken.0.load(SeqCst), 2);
    drop(executor);
    let task = task.unwrap();
    assert_eq!(elsewhere(|| block_on(task)), 7);
}

#[test]
fn a_task_is_cancelled_from_elsewhere_while_the_executor_waits() {
    let executor = LocalExecutor::new();
    let (dropped, counted) = counter();
    let counted = counted();
    let here = std::thread::current().id();
    let task = executor.spawn(async move {
        pending::<()>().await;
        drop(counted);
    });
    let done = executor.spawn(async { 1 });
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let waits = executor.spawn(given_away(sender));
        scope.spawn(move || {
            assert_ne!(std::thread::current().id(), here);
            let waker = receiver.recv().unwrap();
            assert_eq!(block_on(task.cancel()), None);
            assert_eq!(block_on(done), 1);
            waker.wake();
        });
        block_on(executor.run(waits));
    });
    assert_eq!((dropped.load(SeqCst), executor.is_empty()), (1, true));
}

#[test]
fn a_called_run_that_is_dropped_has_another_called() {
    let executor = LocalExecutor::new();
    let (first, second) =
        (std::sync::Arc::new(Woken::default()), std::sync::Arc::new(Woken::default()));
    let mut one = Box::pin(executor.run(pending::<()>()));
    let mut two = Box::pin(executor.run(pending::<()>()));
    for (run, woken) in [(&mut one, &first), (&mut two, &second)] {
        let waker = Waker::from(woken.clone());
        assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    executor.spawn(async {}).detach();
    let calls = || (first.0.load(SeqCst), second.0.load(SeqCst));
    assert_eq!(calls(), (0, 1));
    drop(two);
    assert_eq!(calls(), (1, 1));
    assert!(block_on(poll_once(one)).is_none());
    assert!(executor.is_empty());
}

#[test]
fn a_run_gives_way_and_neither_starves_the_other() {
    let executor = LocalExecutor::new();
    let polls = Rc::new(Cell::new(0));
    let task = executor.spawn({
        let polls = polls.clone();
        async move {
            loop {
                polls.set(polls.get() + 1);
                yield_now().await;
            }
        }
    });
    let mut mains = 0;
    let main = poll_fn(|cx| {
        mains += 1;
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    {
        let mut run = pin!(executor.run(main));
        assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(polls.get() > 1 && polls.get() + 1 >= mains && mains + 1 >= polls.get());
    drop(task);
}

#[test]
fn a_nested_run_of_the_same_executor_runs_the_others() {
    let executor = Rc::new(LocalExecutor::new());
    let (sender, receiver) = mpsc::channel();
    let task = executor.spawn({
        let executor = Rc::downgrade(&executor);
        async move {
            let executor = executor.upgrade().unwrap();
            let inner = executor.spawn(given_away(sender));
            std::thread::scope(|scope| {
                scope.spawn(move || receiver.recv().map(Waker::wake));
                block_on(executor.run(inner));
            });
            1
        }
    });
    assert_eq!(block_on(executor.run(task)), 1);
}

#[test]
fn the_host_is_called_once_for_each_time_there_is_something_again() {
    let executor = LocalExecutor::new();
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let long = Duration::from_secs(60);
    executor.on_ready({
        let calls = calls.clone();
        move || {
            calls.fetch_add(1, SeqCst);
        }
    });
    assert_eq!(calls.load(SeqCst), 0);
    let (sender, receiver) = mpsc::channel();
    executor.spawn(given_away(sender)).detach();
    executor.spawn(async {}).detach();
    assert_eq!(calls.load(SeqCst), 1);
    assert!(!executor.run_until_stalled(Duration::ZERO));
    assert!(executor.run_until_stalled(long));
    assert_eq!(calls.load(SeqCst), 1);
    let waker = receiver.recv().unwrap();
    elsewhere(|| waker.wake());
    assert_eq!(calls.load(SeqCst), 2);
    assert!(executor.run_until_stalled(long));
    assert!(executor.is_empty());
    executor.spawn(async {}).detach();
    let at_once = std::sync::Arc::new(AtomicBool::new(false));
    executor.on_ready({
        let at_once = at_once.clone();
        move || at_once.store(true, SeqCst)
    });
    assert!(at_once.load(SeqCst));
    assert_eq!(calls.load(SeqCst), 3);
}

#[test]
fn an_executor_in_a_thread_local_goes_with_its_thread() {
    thread_local! {
        static EXECUTOR: LocalExecutor<'static> = const { LocalExecutor::new() };
    }
    let (dropped, counted) = counter();
    let counted = counted();
    let task = elsewhere(move || {
        EXECUTOR.with(|executor| {
            let task = executor.spawn(async move {
                pending::<()>().await;
                drop(counted)
            });
            assert!(executor.try_tick());
            task
        })
    });
    assert_eq!(block_on(task.fallible()), None);
    assert_eq!(dropped.load(SeqCst), 1);
}

/// Wakes, cancellations, joins and drops from two threads beside an executor that comes and goes.
#[test]
fn a_storm_from_elsewhere_loses_and_leaks_nothing() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let (dropped, counted) = counter();
    for round in 0..rounds {
        let executor = LocalExecutor::new();
        let (sender, receiver) = mpsc::channel();
        let mut tasks = Vec::new();
        executor.spawn_many(
            (0..8).map(|_| {
                let (sender, counted) = (sender.clone(), counted());
                async move {
                    given_away(sender.clone()).await;
                    given_away(sender).await;
                    counted
                }
            }),
            &mut tasks,
        );
        drop(sender);
        std::thread::scope(|scope| {
            scope.spawn(move || receiver.iter().for_each(Waker::wake));
            let rest = tasks.split_off(4);
            let handles = scope.spawn(move || {
                for (i, task) in rest.into_iter().enumerate() {
                    match (i + round) % 4 {
                        0 => drop(task),
                        1 => task.detach(),
                        2 => drop(block_on(task.cancel())),
                        _ => drop(block_on(task.fallible())),
                    }
                }
            });
            if round % 3 == 0 {
                while executor.try_tick() {}
                drop(executor);
            } else {
                block_on(executor.run(async {
                    for task in tasks {
                        task.await;
                    }
                }));
                drop(executor);
            }
            handles.join().unwrap();
        });
        assert_eq!(dropped.load(SeqCst), 8 * (round + 1));
    }
}
