//! Wakes from foreign threads, their thread-locals among them, and wakers by the million.

use std::cell::RefCell;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread;

use futures::channel::oneshot;
use futures_lite::future::{block_on, or};

use super::{Ex, counts_polls, tick_all, yields};
use crate::common::{on_drop, watched};

#[test]
fn hundreds_of_tasks_are_completed_by_a_foreign_thread() {
    watched("", || {
        for count in [200, 500] {
            let ex = Ex::new();
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..count).map(|_| oneshot::channel()).unzip();
            let tasks: Vec<_> = receivers.into_iter().map(|rx| ex.spawn(rx)).collect();
            let foreign = thread::spawn(move || {
                senders.into_iter().enumerate().for_each(|(i, tx)| tx.send(i).unwrap());
            });
            let outputs = block_on(ex.run(futures::future::join_all(tasks)));
            foreign.join().unwrap();
            assert!(outputs.into_iter().map(Result::unwrap).eq(0..count));
            assert!(ex.is_empty());
        }
    });
}

#[test]
fn foreign_round_trips_do_not_get_stuck() {
    watched("", || {
        let ex = Ex::new();
        let (ping, pings) = async_channel::bounded(1);
        let (pong, pongs) = async_channel::bounded(1);
        let foreign = thread::spawn(move || {
            while let Ok(i) = pings.recv_blocking() {
                pong.send_blocking(i).unwrap();
            }
        });
        let task = ex.spawn(async move {
            for i in 0..5_000 {
                ping.send(i).await.unwrap();
                assert_eq!(pongs.recv().await, Ok(i));
            }
        });
        block_on(ex.run(task));
        foreign.join().unwrap();
    });
}

#[test]
fn a_tick_loop_is_woken_by_a_foreign_thread() {
    watched("", || {
        let ex = Ex::new();
        for _ in 0..200 {
            let (tx, rx) = oneshot::channel();
            let task = ex.spawn(rx);
            let foreign = thread::spawn(move || tx.send(3).unwrap());
            let ticks = async {
                loop {
                    ex.tick().await;
                }
            };
            assert_eq!(block_on(or(task, ticks)), Ok(3));
            foreign.join().unwrap();
        }
    });
}

#[test]
fn a_thread_locals_destructor_wakes() {
    thread_local! {
        static AT_EXIT: RefCell<Vec<Box<dyn Send>>> = const { RefCell::new(Vec::new()) };
    }
    watched("", || {
        let ex = Ex::new();
        for _ in 0..100 {
            let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let (lend, lent) = mpsc::channel::<Waker>();
            let told = done.clone();
            let foreign = thread::spawn(move || {
                for waker in lent.into_iter().take(2) {
                    let told = told.clone();
                    let wakes = on_drop(move || {
                        told.store(true, SeqCst);
                        waker.wake();
                    });
                    AT_EXIT.with_borrow_mut(|all| all.push(Box::new(wakes)));
                }
            });
            let tasks = [0; 2].map(|_| {
                let lend = lend.clone();
                // Only the first waker is wanted.
                let lend = move |waker: &Waker| _ = lend.send(waker.clone());
                ex.spawn(counts_polls(&polls, lend, &done))
            });
            block_on(ex.run(futures::future::join_all(tasks)));
            foreign.join().unwrap();
        }
    });
}

#[test]
fn a_task_in_a_thread_local_is_cancelled_at_the_threads_end() {
    thread_local! {
        static HELD: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) };
    }
    watched("", || {
        let ex = Ex::new();
        let (gone, is_gone) = oneshot::channel::<()>();
        let task = ex.spawn(async move {
            let _gone = gone;
            pending::<()>().await;
        });
        tick_all(&ex);
        let hold = move || HELD.with_borrow_mut(|held| *held = Some(Box::new(task)));
        thread::spawn(hold).join().unwrap();
        assert!(block_on(ex.run(is_gone)).is_err());
        assert!(ex.is_empty());
    });
}

#[test]
fn a_million_wakers_are_cloned_and_dropped_across_threads_and_none_is_left() {
    watched("", || {
        let held = Arc::new(());
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (lend, lent) = mpsc::channel();
        let ex = Ex::new();
        let inner = held.clone();
        let lend = move |waker: &Waker| _ = lend.send(waker.clone());
        let waits = counts_polls(&polls, lend, &done);
        let task = ex.spawn(async move {
            let _inner = inner;
            waits.await;
        });
        tick_all(&ex);
        let waker = lent.recv().unwrap();
        drop(lent);
        thread::scope(|scope| {
            let (pass, passed) = mpsc::sync_channel::<Waker>(1_000);
            scope.spawn(move || passed.into_iter().for_each(drop));
            for thread in 0..4 {
                let (waker, pass) = (waker.clone(), pass.clone());
                scope.spawn(move || {
                    for i in 0..250_000 {
                        let clone = waker.clone();
                        match i % 50 {
                            0 => pass.send(clone).unwrap(),
                            1 if thread == 0 => clone.wake(),
                            2 => clone.wake_by_ref(),
                            _ => drop(clone),
                        }
                    }
                });
            }
            drop(pass);
            block_on(ex.run(yields(100)));
        });
        done.store(true, SeqCst);
        waker.wake();
        block_on(ex.run(task));
        drop(ex);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(polls.load(SeqCst) >= 2);
    });
}
