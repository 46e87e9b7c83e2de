//! Where a panic goes: to who awaits the task, never to who drives the executor.

use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::task::Poll;

use futures_lite::FutureExt;
use futures_lite::future::block_on;

use super::{Ex, assert_works, tick_all, yields};
use crate::common::{Census, hand_made, on_drop, silent_panic, watched};

/// What a panic carried.
#[track_caller]
fn payload<T>(result: std::thread::Result<T>) -> &'static str {
    match result {
        Ok(_) => panic!("it does not panic"),
        Err(payload) => *payload.downcast::<&str>().expect("a message"),
    }
}

async fn panics_after(times: usize) -> u32 {
    yields(times).await;
    silent_panic()
}

#[test]
fn a_tasks_panic_goes_to_its_awaiter_and_not_to_who_polls() {
    watched("", || {
        let ex = Ex::new();
        // By `try_tick`, `tick` and `run`.
        let [a, b, c] = [0, 1, 2].map(|times| ex.spawn(panics_after(times)));
        assert!(ex.try_tick());
        block_on(ex.tick());
        block_on(ex.run(yields(10)));
        assert!([&a, &b, &c].iter().all(|task| task.is_finished()));
        assert_eq!(payload(block_on(a.catch_unwind())), "silent");
        assert_eq!(payload(block_on(AssertUnwindSafe(b.fallible()).catch_unwind())), "silent");
        let cancel = AssertUnwindSafe(async { c.cancel().await });
        assert_eq!(payload(block_on(cancel.catch_unwind())), "silent");
        assert!(ex.is_empty());
        assert_works(&ex);
    });
}

#[test]
fn a_panic_goes_on_through_the_tasks_that_await() {
    watched("", || {
        let ex = Ex::new();
        let innermost = ex.spawn(panics_after(1));
        let inner = ex.spawn(async { innermost.await + 1 });
        let outer = ex.spawn(async { inner.await + 1 });
        let result = block_on(ex.run(outer.catch_unwind()));
        assert_eq!(payload(result), "silent");
        assert_works(&ex);
    });
}

#[test]
fn a_panic_that_nobody_awaits_is_lost() {
    watched("", || {
        let (ex, census) = (Ex::new(), Census::new());
        for times in 0..100 {
            let one = census.one();
            let task = ex.spawn(async move {
                let _one = one;
                panics_after(times % 3).await
            });
            if times % 2 == 0 {
                task.detach();
            } else {
                // Its payload is dropped with the handle.
                block_on(ex.run(yields(5)));
                drop(task);
            }
        }
        block_on(ex.run(yields(5)));
        assert_eq!(census.dead(), 100);
        assert!(ex.is_empty());
        assert_works(&ex);
    });
}

#[test]
fn a_panic_of_the_main_future_propagates_and_strands_nothing() {
    watched("", || {
        for times in [0, 1, 5] {
            let (ex, (tell, told)) = (Ex::new(), mpsc::channel());
            for i in 0..1_000 {
                let tell = tell.clone();
                ex.spawn(async move {
                    yields(3).await;
                    tell.send(i).unwrap();
                })
                .detach();
            }
            let run = AssertUnwindSafe(|| block_on(ex.run(panics_after(times))));
            assert_eq!(payload(catch_unwind(run)), "silent");
            drop(tell);
            while !ex.is_empty() {
                block_on(ex.run(yields(1)));
            }
            let mut ended: Vec<_> = told.iter().collect();
            ended.sort_unstable();
            assert!(ended.into_iter().eq(0..1_000));
            assert_works(&ex);
        }
    });
}

/// Ready at once, and panics instead of the tenth.
fn nine_and_a_panic() -> impl Iterator<Item = std::future::Ready<usize>> {
    (0..20).map(|i| if i == 9 { silent_panic() } else { ready(i) })
}

#[test]
fn an_iterator_that_panics_in_spawn_many_leaves_a_usable_executor() {
    watched("", || {
        let ex = Ex::new();
        let mut tasks = Vec::new();
        let many = AssertUnwindSafe(|| ex.spawn_many(nine_and_a_panic(), &mut tasks));
        assert_eq!(payload(catch_unwind(many)), "silent");
        assert_works(&ex);
        for (i, task) in tasks.drain(..).enumerate() {
            assert_eq!(block_on(ex.run(task)), i);
        }
        // Cancelled by the panic: the handles are dropped as it unwinds.
        let many = AssertUnwindSafe(|| {
            let mut tasks = Vec::new();
            ex.spawn_many(nine_and_a_panic(), &mut tasks);
        });
        assert_eq!(payload(catch_unwind(many)), "silent");
        assert_works(&ex);
        tick_all(&ex);
        assert!(ex.is_empty());
    });
}

#[test]
fn an_executor_dropped_by_a_panic_drops_its_tasks() {
    watched("", || {
        let census = Census::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let ex = Ex::new();
            for _ in 0..10 {
                let one = census.one();
                ex.spawn(async move {
                    let _one = one;
                    std::future::pending::<()>().await;
                })
                .detach();
            }
            block_on(ex.run(async {
                yields(1).await;
                silent_panic()
            }))
        }));
        assert_eq!(payload::<()>(result), "silent");
        assert_eq!(census.dead(), 10);
    });
}

/// Ready at its second poll; its destructor panics, unless a panic drops it.
fn panics_when_dropped() -> impl Future<Output = u32> + Send {
    let mut is_second = false;
    let poll = move |cx: &mut std::task::Context<'_>| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut is_second, true) { Poll::Ready(7) } else { Poll::Pending }
    };
    hand_made(poll, || {
        if !std::thread::panicking() {
            resume_unwind(Box::new("of the destructor"))
        }
    })
}

#[test]
fn a_panic_of_a_futures_destructor_is_contained() {
    watched("", || {
        // At its end; whether the awaiter has the output or the panic is not promised.
        let ex = Ex::new();
        let task = ex.spawn(panics_when_dropped());
        drop(block_on(ex.run(AssertUnwindSafe(task).catch_unwind())));
        assert_works(&ex);
        // Cancelled before its first poll, and before its second one.
        drop(ex.spawn(panics_when_dropped()));
        let task = ex.spawn(panics_when_dropped());
        assert!(ex.try_tick());
        drop(task);
        tick_all(&ex);
        assert!(ex.is_empty());
        assert_works(&ex);
        // By the executor's end.
        let census = Census::new();
        let counted = |future| {
            let one = census.one();
            async move {
                let _one = one;
                future.await
            }
        };
        for _ in 0..3 {
            ex.spawn(counted(panics_when_dropped())).detach();
        }
        drop(ex);
        assert_eq!(census.dead(), 3);
    });
}

#[test]
fn a_panic_of_an_outputs_destructor_is_contained() {
    watched("", || {
        let ex = Ex::new();
        let output = || on_drop(|| silent_panic());
        // Detached before and after it is there.
        ex.spawn(async move { output() }).detach();
        tick_all(&ex);
        let task = ex.spawn(async move { output() });
        tick_all(&ex);
        // Not of the executor's doing: the panic is that of who drops the handle, if anybody's.
        drop(catch_unwind(AssertUnwindSafe(|| task.detach())));
        assert!(ex.is_empty());
        assert_works(&ex);
    });
}

#[test]
fn a_destructor_that_wakes_while_its_tasks_panic_unwinds_is_harmless() {
    watched("", || {
        let ex = Ex::new();
        let (tx, rx) = futures::channel::oneshot::channel::<()>();
        let listener = ex.spawn(rx);
        let own = std::sync::Arc::new(std::sync::Mutex::new(None::<std::task::Waker>));
        let kept = own.clone();
        let task = ex.spawn(async move {
            let _wakes = on_drop(move || {
                own.lock().unwrap().take().unwrap().wake();
                tx.send(()).unwrap();
            });
            poll_fn(|cx| -> Poll<()> {
                *kept.lock().unwrap() = Some(cx.waker().clone());
                silent_panic()
            })
            .await
        });
        assert_eq!(payload(block_on(ex.run(task.catch_unwind()))), "silent");
        assert_eq!(block_on(ex.run(listener)), Ok(()));
        assert_works(&ex);
    });
}
