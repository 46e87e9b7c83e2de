//! That an `Executor` is shared between threads, in a `static` or on the stack.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use futures_lite::future::block_on;

use crate::common::watched;
use crate::either::{implements, yields};
use crate::{Drive, Ex, driven, ex};

fn is_send_and_sync<T: Send + Sync>(value: T) -> T {
    value
}

#[test]
fn an_executor_and_its_futures_are_send_and_sync() {
    let ex = is_send_and_sync(Ex::new());
    drop(is_send_and_sync(ex.run(pending::<()>())));
    drop(is_send_and_sync(ex.tick()));
    assert!(implements!(ex::Executor<'static>: Send));
    assert!(implements!(ex::Executor<'static>: Sync));
}

#[test]
fn the_functions_have_the_types_that_were_promised() {
    fn on<'a, E: Extend<ex::Task<u8>>>(ex: &Ex<'a>, many: &mut E, future: std::future::Ready<u8>) {
        drop::<ex::Task<u8>>(ex.spawn(future.clone()));
        ex.spawn_many([future], many);
    }
    let _: for<'e> fn(&'e Ex<'static>) -> bool = Ex::is_empty;
    let _: for<'e> fn(&'e Ex<'static>) -> bool = Ex::try_tick;
    drop::<ex::FallibleTask<u8>>(Ex::new().spawn(async { 1 }).fallible());
    on(&Ex::new(), &mut Vec::new(), std::future::ready(1));
}

static SHARED: ex::Executor<'static> = ex::Executor::new();

#[test]
fn an_executor_in_a_static_serves_all_threads() {
    watched("", || {
        let spawns = |i: usize| {
            let tasks: Vec<_> = (0..100)
                .map(|j| {
                    SHARED.spawn(async move {
                        yields(j % 3).await;
                        // It spawns there, too.
                        SHARED.spawn(async move { i * j }).await
                    })
                })
                .collect();
            tasks.into_iter().map(block_on).sum::<usize>()
        };
        let sum: usize = driven(&SHARED, Drive::Run, 2, || {
            thread::scope(|scope| {
                let threads = [0, 1, 2, 3].map(|i| scope.spawn(move || spawns(i)));
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            })
        });
        assert_eq!(sum, 6 * 4_950);
        assert!(SHARED.is_empty());
    });
}

#[test]
fn tasks_that_borrow_from_the_stack_run_on_other_threads() {
    watched("", || {
        let (count, text) = (AtomicUsize::new(0), String::from("a text"));
        let ex = Ex::new();
        driven(&ex, Drive::Run, 3, || {
            let tasks: Vec<_> = (0..1_000)
                .map(|i| {
                    let (count, text) = (&count, &text);
                    ex.spawn(async move {
                        yields(i % 3).await;
                        count.fetch_add(text.len(), SeqCst);
                        &text[i % 6..]
                    })
                })
                .collect();
            for (i, task) in tasks.into_iter().enumerate() {
                assert_eq!(block_on(task), &text[i % 6..]);
            }
        });
        assert_eq!(count.load(SeqCst), 6_000);
    });
}

#[test]
fn a_future_of_run_is_send_if_what_it_awaits_is() {
    watched("", || {
        let ex = Ex::new();
        let task = ex.spawn(async { 3 });
        let run: Box<dyn Future<Output = i32> + Send + '_> = Box::new(ex.run(task));
        let run = Box::into_pin(run);
        assert_eq!(thread::scope(|scope| scope.spawn(|| block_on(run)).join().unwrap()), 3);
    });
}
