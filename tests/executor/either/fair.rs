//! Nobody waits for ever: neither tasks, nor the future of `run`, nor who stands beside `run`.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use futures_lite::future::{block_on, or, poll_once, yield_now, zip};

use super::{Ex, Shared, yields};
use crate::common::{self_waker, watched};

/// Two tasks that exchange messages until told to stop.
fn ping_pong(ex: &Ex<'_>, stop: &Arc<AtomicBool>) {
    let (ping, pings) = async_channel::bounded(1);
    let (pong, pongs) = async_channel::bounded(1);
    let stop = stop.clone();
    ex.spawn(async move {
        while !stop.load(SeqCst) && ping.send(()).await.is_ok() {
            pongs.recv().await.unwrap();
        }
    })
    .detach();
    ex.spawn(async move { while pings.recv().await.is_ok() && pong.send(()).await.is_ok() {} })
        .detach();
}

/// Two tasks each of which wakes the other at every poll.
fn wake_each_other(ex: &Ex<'_>, stop: &Arc<AtomicBool>) {
    let wakers = Arc::new([const { std::sync::Mutex::new(None::<Waker>) }; 2]);
    for own in 0..2 {
        let (wakers, stop) = (wakers.clone(), stop.clone());
        ex.spawn(std::future::poll_fn(move |cx| {
            *wakers[own].lock().unwrap() = Some(cx.waker().clone());
            let other = wakers[1 - own].lock().unwrap().take();
            other.into_iter().for_each(Waker::wake);
            if stop.load(SeqCst) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        }))
        .detach();
    }
}

#[derive(Clone, Copy, Debug)]
enum Load {
    SelfWakers,
    PingPong,
    WakingEachOther,
}

impl Load {
    const ALL: [Load; 3] = [Load::SelfWakers, Load::PingPong, Load::WakingEachOther];

    /// Tasks that are never all idle until told to stop.
    fn start(self, ex: &Ex<'_>, stop: &Arc<AtomicBool>) {
        for _ in 0..if matches!(self, Load::PingPong) { 100 } else { 2 } {
            match self {
                Load::SelfWakers => ex.spawn(self_waker(stop.clone())).detach(),
                Load::PingPong => ping_pong(ex, stop),
                Load::WakingEachOther => wake_each_other(ex, stop),
            }
        }
    }
}

/// With each load.
fn under_load(body: impl Fn(&Ex<'_>) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for load in Load::ALL {
        let body = body.clone();
        watched(&format!("beside {load:?}"), move || {
            let (ex, stop) = (Ex::new(), Arc::default());
            load.start(&ex, &stop);
            body(&ex);
            stop.store(true, SeqCst);
            while !ex.is_empty() {
                block_on(ex.run(yields(1)));
            }
        });
    }
}

#[test]
fn a_main_future_that_gives_way_comes_to_its_end_under_load() {
    under_load(|ex| block_on(ex.run(yields(100))));
}

#[test]
fn a_yielder_comes_to_its_end_under_load() {
    under_load(|ex| block_on(ex.run(ex.spawn(yields(1_000)))));
}

#[test]
fn tasks_that_are_spawned_and_awaited_come_to_their_end_under_load() {
    under_load(|ex| {
        let sum = block_on(ex.run(async {
            let mut sum = 0;
            for i in 0..100 {
                sum += ex.spawn(async move { i }).await;
            }
            sum
        }));
        assert_eq!(sum, 4_950);
    });
}

#[test]
fn a_foreign_thread_completes_a_task_under_load() {
    under_load(|ex| {
        for _ in 0..20 {
            let (tx, rx) = futures::channel::oneshot::channel();
            let task = ex.spawn(rx);
            let foreign = std::thread::spawn(move || tx.send(5).unwrap());
            assert_eq!(block_on(ex.run(task)), Ok(5));
            foreign.join().unwrap();
        }
    });
}

#[test]
fn a_run_under_load_gives_way_to_what_stands_beside_it() {
    under_load(|ex| {
        let run = async {
            ex.run(pending::<()>()).await;
        };
        block_on(or(run, yields(100)));
    });
}

#[test]
fn two_runs_under_load_on_one_thread_give_way_to_each_other() {
    under_load(|ex| {
        let other = Ex::new();
        let stop = Arc::default();
        Load::SelfWakers.start(&other, &stop);
        block_on(zip(ex.run(yields(20)), other.run(yields(20))));
    });
}

#[test]
fn an_executor_under_load_inside_a_task_lets_the_outer_tasks_run() {
    under_load(|inner| {
        let outer = Ex::new();
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let ended = ended.clone();
            outer
                .spawn(async move {
                    yields(20).await;
                    ended.fetch_add(1, SeqCst);
                })
                .detach();
        }
        let all_ended = async {
            while ended.load(SeqCst) < 10 {
                yield_now().await;
            }
        };
        let inner = async { inner.run(pending::<()>()).await };
        block_on(outer.run(or(inner, all_ended)));
    });
}

#[test]
fn a_task_that_spawns_its_like_again_and_again_starves_no_other() {
    fn again(ex: Shared<Ex<'static>>, stop: Arc<AtomicBool>) {
        if !stop.load(SeqCst) {
            let next = ex.clone();
            ex.spawn(async move { again(next, stop) }).detach();
        }
    }
    watched("", || {
        let (ex, stop) = (Shared::new(Ex::new()), Arc::new(AtomicBool::new(false)));
        again(ex.clone(), stop.clone());
        let task = ex.spawn(yields(200));
        block_on(ex.run(async {
            task.await;
            yields(200).await;
            stop.store(true, SeqCst);
            while !ex.is_empty() {
                yield_now().await;
            }
        }));
    });
}

#[test]
fn fifty_rings_of_two_hundred_hops_are_completed() {
    watched("", || {
        let ex = Ex::new();
        let rings: Vec<_> = (0..50)
            .map(|_| {
                let (first, mut last) = async_channel::bounded(1);
                for _ in 0..200 {
                    let (sender, receiver) = async_channel::bounded::<u32>(1);
                    let from = std::mem::replace(&mut last, receiver);
                    let hop = async move { sender.send(from.recv().await.unwrap() + 1).await };
                    ex.spawn(async move { hop.await.unwrap() }).detach();
                }
                (first, last)
            })
            .collect();
        block_on(ex.run(async {
            for (first, _) in &rings {
                first.send(0).await.unwrap();
            }
            for (_, last) in &rings {
                assert_eq!(last.recv().await, Ok(200));
            }
        }));
    });
}

#[test]
fn a_run_that_is_polled_a_little_at_a_time_gets_everything_done() {
    watched("", || {
        let ex = Ex::new();
        let tasks: Vec<_> = (0..100).map(|_| ex.spawn(yields(100))).collect();
        block_on(async {
            // Dropped after one poll each time.
            while tasks.iter().any(|task| !task.is_finished()) {
                assert!(poll_once(ex.run(pending::<()>())).await.is_none());
            }
        });
        assert!(ex.is_empty());
    });
}
