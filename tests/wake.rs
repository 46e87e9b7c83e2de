//! What a waker may rely on: from anywhere, at any time, and without polling or waiting.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use futures::channel::oneshot;
use futures::task::AtomicWaker;
use paceline::{Runtime, spawn};

use common::{
    Census, alone, hand_made, lend_waker, on_drop, on_each, on_each_size, poll_once, silent_panic,
    waker_of_one,
};

/// Counts the allocations that live, for what a leak leaves behind.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A flag that one side raises and a task waits for.
#[derive(Default)]
struct Flag {
    up: AtomicBool,
    waker: AtomicWaker,
}

impl Flag {
    fn raise(&self) {
        self.up.store(true, SeqCst);
        self.waker.wake();
    }

    /// Waits for the flag and takes it down.
    async fn taken(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            if self.up.swap(false, SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn assert_works(runtime: &Runtime) {
    let (tx, rx) = mpsc::channel();
    runtime.spawn(async move { tx.send(7).unwrap() }).detach();
    assert_eq!(rx.recv(), Ok(7));
    assert_eq!(runtime.block_on(runtime.spawn(async { 7 })), 7);
}

/// The waker of a task that waits for ever, unless the runtime ends.
fn waker_of_a_task(runtime: &Runtime) -> Waker {
    let (tx, rx) = mpsc::channel();
    runtime.spawn(lend_waker(tx)).detach();
    rx.recv().unwrap()
}

#[test]
fn wakes_from_foreign_threads_all_arrive() {
    on_each(|runtime| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (there, back) = (Arc::new(Flag::default()), mpsc::channel());
                let flag = there.clone();
                let task = runtime.spawn(async move {
                    for round in 0..500 {
                        flag.taken().await;
                        back.0.send(round).unwrap();
                    }
                });
                thread::spawn(move || {
                    for round in 0..500 {
                        there.raise();
                        assert_eq!(back.1.recv(), Ok(round));
                    }
                    task
                })
            })
            .collect();
        let tasks = threads.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(runtime.block_on(futures::future::join_all(tasks)).len(), 4);
    });
}

#[test]
fn wakes_of_block_on_from_foreign_threads_all_arrive() {
    on_each(|runtime| {
        let (there, back) = (Arc::new(Flag::default()), mpsc::channel());
        let flag = there.clone();
        let foreign = thread::spawn(move || {
            for round in 0..2_000 {
                flag.raise();
                assert_eq!(back.1.recv(), Ok(round));
            }
        });
        runtime.block_on(async {
            for round in 0..2_000 {
                there.taken().await;
                back.0.send(round).unwrap();
            }
        });
        foreign.join().unwrap();
    });
}

#[test]
fn wakes_between_runtimes_all_arrive() {
    on_each(|here| {
        let there = common::runtime(2);
        let flags = [0; 2].map(|_| Arc::new(Flag::default()));
        let play = |mine: Arc<Flag>, yours: Arc<Flag>| async move {
            for round in 0..2_000 {
                mine.taken().await;
                yours.raise();
                if round == 1_999 {
                    return round;
                }
            }
            unreachable!()
        };
        let ping = here.spawn(play(flags[0].clone(), flags[1].clone()));
        let pong = there.spawn(play(flags[1].clone(), flags[0].clone()));
        flags[0].raise();
        assert_eq!((here.block_on(ping), there.block_on(pong)), (1_999, 1_999));
    });
}

#[test]
fn a_destructor_wakes() {
    on_each(|runtime| {
        // On a worker, then on a thread that is none.
        for on_worker in [true, false] {
            let flag = Arc::new(Flag::default());
            let raised = flag.clone();
            let task = runtime.spawn(async move {
                flag.taken().await;
                1
            });
            let guard = on_drop(move || raised.raise());
            if on_worker {
                runtime.spawn(async move { drop(guard) }).detach();
            } else {
                drop(guard);
            }
            assert_eq!(runtime.block_on(task), 1);
        }
    });
}

#[test]
fn a_wake_after_the_runtime_is_gone_does_nothing() {
    on_each(|runtime| {
        let census = Census::new();
        let wakers: Vec<_> = (0..100).map(|_| waker_of_one(&runtime, &census)).collect();
        drop(runtime);
        assert_eq!((census.dead(), census.born()), (100, 100));
        let foreign = thread::spawn(move || {
            for waker in wakers {
                let copy = waker.clone();
                assert!(copy.will_wake(&waker));
                waker.wake_by_ref();
                copy.wake();
                drop(waker);
            }
        });
        assert!(foreign.join().is_ok());
    });
}

#[test]
fn the_waker_of_a_finished_task_does_nothing() {
    on_each(|runtime| {
        let kept = Arc::new(Mutex::new(None::<Waker>));
        let polls = Arc::new(AtomicUsize::new(0));
        let task = runtime.spawn({
            let (kept, polls) = (kept.clone(), polls.clone());
            poll_fn(move |cx| {
                polls.fetch_add(1, SeqCst);
                *kept.lock().unwrap() = Some(cx.waker().clone());
                Poll::Ready(())
            })
        });
        runtime.block_on(task);
        let waker = kept.lock().unwrap().take().unwrap();
        waker.wake_by_ref();
        assert_works(&runtime);
        drop(runtime);
        waker.wake();
        assert_eq!(polls.load(SeqCst), 1);
    });
}

#[test]
fn the_waker_of_block_on_outlives_it() {
    on_each(|runtime| {
        let waker = runtime.block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
        let copy = waker.clone();
        assert!(thread::spawn(move || copy.wake()).join().is_ok());
        assert_works(&runtime);
        drop(runtime);
        waker.wake_by_ref();
        assert!(waker.will_wake(&waker.clone()));
    });
}

/// One round of [`wakers_cloned_and_dropped_across_threads_leak_nothing`].
fn clone_and_drop_wakers(workers: usize, tasks: usize, clones: usize) {
    let runtime = common::runtime(workers);
    let census = Census::new();
    let wakers: Vec<Waker> = (0..tasks).map(|_| waker_of_one(&runtime, &census)).collect();
    let wakers = Arc::new(wakers);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let wakers = wakers.clone();
            thread::spawn(move || {
                for i in 0..clones {
                    let waker = wakers[(i * 7 + thread) % wakers.len()].clone();
                    match i % 16 {
                        0 => waker.wake(),
                        1 => waker.wake_by_ref(),
                        _ => drop(waker),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Some wakers go before the runtime does, some after it.
    let kept: Vec<_> = wakers.iter().step_by(2).cloned().collect();
    drop(wakers);
    drop(runtime);
    assert_eq!((census.dead(), census.born()), (tasks, tasks));
    drop(kept);
}

#[test]
fn wakers_cloned_and_dropped_across_threads_leak_nothing() {
    alone("wakers_cloned_and_dropped_across_threads_leak_nothing", || {
        for workers in [1, 4] {
            // What is made once and kept is made by the first round.
            clone_and_drop_wakers(workers, 500, 250_000);
            let before = LIVE.load(SeqCst);
            clone_and_drop_wakers(workers, 500, 250_000);
            let left = LIVE.load(SeqCst) - before;
            assert!(left < 100, "{left} allocations are left of 500 tasks");
        }
    });
}

thread_local! {
    static IN_A_POLL: Cell<bool> = const { Cell::new(false) };
}

/// A task that polls nothing inside another poll of its thread, `rounds` times.
async fn never_inside_another_poll(flag: Arc<Flag>, rounds: usize) -> usize {
    for _ in 0..rounds {
        flag.taken().await;
        assert!(!IN_A_POLL.get(), "polled inside the poll that woke it");
    }
    rounds
}

#[test]
fn a_wake_never_polls_inline() {
    on_each(|runtime| {
        let flag = Arc::new(Flag::default());
        let seen = Arc::new(Flag::default());
        let woken = runtime.spawn({
            let (flag, seen) = (flag.clone(), seen.clone());
            async move {
                for _ in 0..300 {
                    never_inside_another_poll(flag.clone(), 1).await;
                    seen.raise();
                }
                300
            }
        });
        let wake_inside = move |flag: &Flag| {
            IN_A_POLL.set(true);
            flag.raise();
            IN_A_POLL.set(false);
        };
        // From a task's poll, from a destructor there, from a thread that is no worker.
        let waking = runtime.spawn({
            let (flag, seen) = (flag.clone(), seen.clone());
            async move {
                for round in 0..200 {
                    if round % 2 == 0 {
                        wake_inside(&flag);
                    } else {
                        let flag = flag.clone();
                        drop(on_drop(move || wake_inside(&flag)));
                    }
                    seen.taken().await;
                }
            }
        });
        runtime.block_on(waking);
        for _ in 0..100 {
            wake_inside(&flag);
            futures::executor::block_on(seen.taken());
        }
        assert_eq!(runtime.block_on(woken), 300);
    });
}

#[test]
fn a_wake_does_not_wait_for_the_poll_of_its_task() {
    on_each(|runtime| {
        let mut polls = 0;
        let task = runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(polls);
            }
            // The poll goes on until the wake has returned.
            let waker = cx.waker().clone();
            let foreign = thread::spawn(move || waker.wake());
            foreign.join().unwrap();
            Poll::Pending
        }));
        assert_eq!(runtime.block_on(task), 2);
    });
}

#[test]
fn a_wake_does_not_wait_for_a_lock_that_a_poll_holds() {
    on_each(|runtime| {
        let waker = waker_of_a_task(&runtime);
        let lock = Arc::new(Mutex::new(0));
        let (tx, rx) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        let holder = runtime.spawn({
            let lock = lock.clone();
            async move {
                let mut locked = lock.lock().unwrap();
                held.send(()).unwrap();
                rx.recv().unwrap();
                *locked += 1;
            }
        });
        is_held.recv().unwrap();
        // The only worker, or one of four, is stuck in that poll.
        waker.wake_by_ref();
        drop(waker);
        tx.send(()).unwrap();
        runtime.block_on(holder);
        assert_eq!(*lock.lock().unwrap(), 1);
    });
}

#[test]
fn many_wakes_before_a_poll_are_one() {
    on_each(|runtime| {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let task = runtime.spawn(poll_fn(move |cx| {
            (0..100).for_each(|_| cx.waker().wake_by_ref());
            if counted.fetch_add(1, SeqCst) == 9 { Poll::Ready(()) } else { Poll::Pending }
        }));
        runtime.block_on(task);
        assert_works(&runtime);
        assert_eq!(polls.load(SeqCst), 10);
    });
}

/// A waker that panics wherever it can.
struct Bomb {
    went_off: Arc<AtomicUsize>,
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.went_off.fetch_add(1, SeqCst);
        silent_panic();
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        // A second panic while the first unwinds would abort by the language's own rule.
        if !thread::panicking() {
            silent_panic();
        }
    }
}

/// Leaves a [`Bomb`] with a pending future, as its only holder.
fn leave_bomb<F: Future + Unpin>(future: &mut F, went_off: &Arc<AtomicUsize>) {
    let bomb = Waker::from(Arc::new(Bomb { went_off: went_off.clone() }));
    assert!(poll_once(future, &bomb).is_pending());
}

#[test]
fn a_panicking_waker_is_contained_when_its_task_ends() {
    on_each(|runtime| {
        let went_off = Arc::new(AtomicUsize::new(0));
        for panics in [false, true] {
            let (tx, rx) = oneshot::channel::<()>();
            let mut task = runtime.spawn(async move {
                rx.await.unwrap();
                if panics {
                    silent_panic();
                }
            });
            leave_bomb(&mut task, &went_off);
            tx.send(()).unwrap();
            common::until(|| task.is_finished());
            assert_eq!(runtime.block_on(task.join()).is_err(), panics);
            assert_works(&runtime);
        }
        assert_eq!(went_off.load(SeqCst), 2);
    });
}

#[test]
fn a_panicking_waker_is_contained_when_its_task_is_cancelled() {
    on_each(|runtime| {
        let went_off = Arc::new(AtomicUsize::new(0));
        let (dropped, heard) = mpsc::channel();
        let waits = || {
            let dropped = dropped.clone();
            hand_made(|_| Poll::<()>::Pending, move || dropped.send(()).unwrap())
        };
        // The handle goes after it waited; `cancel` waits; a detached one is dropped at the end.
        let mut awaited = runtime.spawn(waits());
        leave_bomb(&mut awaited, &went_off);
        drop(awaited);
        heard.recv().unwrap();
        let mut cancelled = runtime.spawn(waits());
        leave_bomb(&mut cancelled, &went_off);
        assert!(runtime.block_on(cancelled.cancel()).is_none());
        heard.recv().unwrap();
        let mut detached = runtime.spawn(waits());
        leave_bomb(&mut detached, &went_off);
        detached.detach();
        assert_works(&runtime);
        drop(runtime);
        heard.recv().unwrap();
        assert_eq!(went_off.load(SeqCst), 3);
    });
}

#[test]
fn a_panicking_waker_of_a_cancel_is_contained() {
    on_each(|runtime| {
        let went_off = Arc::new(AtomicUsize::new(0));
        let (in_poll, polling) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            in_poll.send(()).unwrap();
            gate.recv().unwrap();
            pending::<()>().await;
        });
        polling.recv().unwrap();
        // The poll lasts, so that the cancellation has something to wait for.
        let mut cancel = Box::pin(task.cancel());
        leave_bomb(&mut cancel, &went_off);
        release.send(()).unwrap();
        common::until(|| went_off.load(SeqCst) == 1);
        assert!(runtime.block_on(cancel).is_none());
        assert_works(&runtime);
    });
}

#[test]
fn a_panicking_waker_is_contained_when_its_runtime_ends() {
    on_each(|runtime| {
        let went_off = Arc::new(AtomicUsize::new(0));
        let mut tasks = [0; 10].map(|_| runtime.spawn(pending::<()>()));
        tasks.iter_mut().for_each(|task| leave_bomb(task, &went_off));
        drop(runtime);
        assert_eq!(went_off.load(SeqCst), 10);
        for task in tasks {
            assert!(futures::executor::block_on(task.join()).unwrap_err().is_cancelled());
        }
    });
}

/// Panics with a value of its own kind when dropped, three deep.
struct Payload(u32);

impl Drop for Payload {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Payload(self.0 - 1));
        }
    }
}

#[test]
fn a_panicking_destructor_of_a_panic_payload_is_contained() {
    on_each(|runtime| {
        let bomb = || async { std::panic::resume_unwind(Box::new(Payload(3))) };
        let detached: paceline::Task<()> = runtime.spawn(bomb());
        detached.detach();
        let finished: paceline::Task<()> = runtime.spawn(bomb());
        common::until(|| finished.is_finished());
        drop(finished);
        let destructor = hand_made(|_| Poll::Ready(1), || panic_any(Payload(3)));
        assert_eq!(runtime.block_on(runtime.spawn(destructor)), 1);
        assert_works(&runtime);
    });
}

#[test]
fn a_panicking_destructor_of_a_woken_future_or_output_is_contained() {
    on_each(|runtime| {
        for _ in 0..50 {
            let flag = Arc::new(Flag::default());
            let raised = flag.clone();
            let both = async move {
                let _future = on_drop(|| silent_panic());
                flag.taken().await;
                on_drop(|| silent_panic())
            };
            let (tx, rx) = mpsc::channel();
            let task = runtime.spawn(async move {
                let ended = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(both));
                tx.send(ended.await.is_err()).unwrap();
            });
            raised.raise();
            assert!(rx.recv().unwrap(), "the local's destructor panicked inside the poll");
            runtime.block_on(task);
        }
        // Not caught by the task itself: woken, then dropped by the runtime.
        let flag = Arc::new(Flag::default());
        let waits = flag.clone();
        let task = runtime.spawn(async move {
            waits.taken().await;
            on_drop(|| silent_panic())
        });
        task.detach();
        flag.raise();
        assert_works(&runtime);
    });
}

#[test]
fn a_waker_woken_while_its_runtime_ends_is_sound() {
    on_each_size(|workers| {
        for _ in 0..100 {
            let runtime = common::runtime(workers);
            let polls = Arc::new(AtomicUsize::new(0));
            let census = Census::new();
            let wakers: Vec<Waker> = (0..10)
                .map(|_| {
                    let (polls, one) = (polls.clone(), census.one());
                    let (tx, rx) = mpsc::channel();
                    let poll = move |cx: &mut Context<'_>| {
                        polls.fetch_add(1, SeqCst);
                        // Only the first is received.
                        let _ = tx.send(cx.waker().clone());
                        Poll::<()>::Pending
                    };
                    runtime.spawn(hand_made(poll, move || drop(one))).detach();
                    rx.recv().unwrap()
                })
                .collect();
            let foreign = thread::spawn(move || {
                for _ in 0..20 {
                    wakers.iter().for_each(Waker::wake_by_ref);
                }
            });
            drop(runtime);
            assert_eq!(census.dead(), 10);
            let after = polls.load(SeqCst);
            foreign.join().unwrap();
            assert_eq!(polls.load(SeqCst), after, "nothing is polled after the end");
        }
    });
}

#[test]
fn a_woken_task_may_be_woken_by_a_task_it_wakes() {
    on_each(|runtime| {
        let flags = [0; 2].map(|_| Arc::new(Flag::default()));
        let sum = runtime.block_on(async {
            let [mine, yours] = flags;
            let (a, b) = (mine.clone(), yours.clone());
            let other = spawn(async move {
                for _ in 0..1_000 {
                    b.taken().await;
                    a.raise();
                }
                1
            });
            for _ in 0..1_000 {
                yours.raise();
                mine.taken().await;
            }
            other.await + 1
        });
        assert_eq!(sum, 2);
    });
}
