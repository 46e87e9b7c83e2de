//! What is injected by other threads has its turn.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use futures_lite::future::block_on;

use crate::common::{self_waker, watched};
use crate::either::{Puppet, yields};
use crate::{Drive, Ex, driven};

#[test]
fn what_other_threads_spawn_is_run_beside_tasks_that_wake_themselves() {
    for threads in [1, 4] {
        watched(&format!("by {threads}"), move || {
            let (ex, stop) = (Ex::new(), Arc::new(AtomicBool::new(false)));
            driven(&ex, Drive::Run, threads, || {
                let hogs: Vec<_> = (0..10).map(|_| ex.spawn(self_waker(stop.clone()))).collect();
                for i in 0..500 {
                    assert_eq!(block_on(ex.spawn(async move { i })), i);
                }
                stop.store(true, SeqCst);
                hogs.into_iter().for_each(block_on);
            });
        });
    }
}

#[test]
fn what_other_threads_wake_is_run_beside_tasks_that_wake_themselves() {
    watched("", || {
        let (ex, stop) = (Ex::new(), Arc::new(AtomicBool::new(false)));
        driven(&ex, Drive::Run, 1, || {
            let hogs: Vec<_> = (0..10).map(|_| ex.spawn(self_waker(stop.clone()))).collect();
            let (ping, pings) = async_channel::bounded(1);
            let (pong, pongs) = async_channel::bounded(1);
            let task = ex.spawn(async move {
                while let Ok(i) = pings.recv().await {
                    pong.send(i).await.unwrap();
                }
            });
            for i in 0..500 {
                ping.send_blocking(i).unwrap();
                assert_eq!(pongs.recv_blocking(), Ok(i));
            }
            drop(ping);
            block_on(task);
            stop.store(true, SeqCst);
            hogs.into_iter().for_each(block_on);
        });
    });
}

/// The first of them blocks its thread until the last has run.
#[test]
fn a_burst_does_not_wait_behind_one_thread() {
    watched("", || {
        let ex = Ex::new();
        driven(&ex, Drive::Run, 2, || {
            let (tell, told) = mpsc::channel();
            let first = ex.spawn(async move { told.recv().unwrap() });
            let tasks: Vec<_> = (0..10_000).map(|i| ex.spawn(async move { i })).collect();
            ex.spawn(async move { tell.send(()).unwrap() }).detach();
            assert!(tasks.into_iter().map(block_on).eq(0..10_000));
            block_on(first);
        });
    });
}

/// A thread may be stuck before it has come to anything that it was given.
#[test]
fn two_runs_on_one_thread_and_one_on_another_share_what_there_is() {
    watched("", || {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        driven(&ex, Drive::Run, 1, || {
            let mut runs = [0; 2].map(|_| Puppet::new(ex.run(pending::<()>())));
            for _ in 0..20 {
                for _ in 0..300 {
                    let ended = ended.clone();
                    ex.spawn(async move {
                        yields(2).await;
                        ended.fetch_add(1, SeqCst);
                    })
                    .detach();
                }
                for run in &mut runs {
                    assert!(run.poll().is_pending());
                }
            }
            // Their queues may hold something that the other thread can have.
            while !ex.is_empty() {
                thread::yield_now();
            }
        });
        assert_eq!(ended.load(SeqCst), 6_000);
    });
}
