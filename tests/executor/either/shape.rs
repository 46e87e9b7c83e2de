//! Batches, emptiness, `Debug`, auto traits, lifetimes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::future::{Ready, pending, ready};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_lite::future::block_on;

use super::{Ex, Shared, ex, implements, tick_all, yields};
use crate::common::{Census, watched};

const MANY: usize = 50_000;

#[test]
fn fifty_thousand_ready_tasks_give_their_outputs_in_order() {
    watched("", || {
        let (ex, mut tasks) = (Ex::new(), Vec::new());
        ex.spawn_many((0..MANY).map(ready), &mut tasks);
        block_on(ex.run(async {
            for (i, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await, i);
            }
        }));
        assert!(ex.is_empty());
    });
}

#[test]
fn fifty_thousand_tasks_that_give_way_come_to_their_end() {
    watched("", || {
        let (ex, mut tasks) = (Ex::new(), VecDeque::new());
        let futures = (0..MANY).map(|i| async move {
            yields(i % 3).await;
            i
        });
        ex.spawn_many(futures, &mut tasks);
        assert_eq!(tasks.len(), MANY);
        let sum = block_on(ex.run(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        }));
        assert_eq!(sum, MANY * (MANY - 1) / 2);
        assert!(ex.is_empty());
    });
}

#[test]
fn spawn_many_adds_to_what_is_there_and_spawns_nothing_of_nothing() {
    watched("", || {
        let ex = Ex::new();
        let mut tasks = vec![ex.spawn(ready(0))];
        ex.spawn_many((1..1).map(ready), &mut tasks);
        ex.spawn_many(Vec::<Ready<i32>>::new(), &mut tasks);
        ex.spawn_many([1, 2].map(ready), &mut tasks);
        ex.spawn_many(Some(ready(3)), &mut tasks);
        tick_all(&ex);
        assert!(tasks.into_iter().map(block_on).eq(0..4));
    });
}

#[test]
fn tasks_whose_handles_spawn_many_is_not_to_keep_are_cancelled() {
    struct Keeps(usize, Vec<ex::Task<usize>>);
    impl Extend<ex::Task<usize>> for Keeps {
        fn extend<I: IntoIterator<Item = ex::Task<usize>>>(&mut self, tasks: I) {
            for task in tasks {
                self.0 += 1;
                if self.0 % 2 == 0 {
                    self.1.push(task);
                }
            }
        }
    }
    watched("", || {
        let (ex, census, mut keeps) = (Ex::new(), Census::new(), Keeps(0, Vec::new()));
        let futures = (0..2_000).map(|i| {
            let one = census.one();
            async move {
                let _one = one;
                i
            }
        });
        ex.spawn_many(futures, &mut keeps);
        tick_all(&ex);
        assert_eq!((keeps.0, census.dead()), (2_000, 2_000));
        assert!(ex.is_empty());
        assert!(keeps.1.into_iter().map(block_on).eq((0..1_000).map(|i| 2 * i + 1)));
    });
}

#[test]
fn an_executor_is_empty_when_no_task_is_unfinished() {
    watched("", || {
        let ex = Ex::new();
        assert!(ex.is_empty());
        let task = ex.spawn(ready(1));
        assert!(!ex.is_empty());
        tick_all(&ex);
        // Finished; nobody has asked for its output.
        assert!(ex.is_empty());
        assert_eq!(block_on(task), 1);

        let waits = ex.spawn(pending::<()>());
        ex.spawn(yields(3)).detach();
        let panics = ex.spawn(async { crate::common::silent_panic() });
        tick_all(&ex);
        assert!(!ex.is_empty());
        drop((waits, panics));
        tick_all(&ex);
        assert!(ex.is_empty());
        let never_polled = ex.spawn(pending::<()>());
        assert!(!ex.is_empty());
        drop(never_polled);
        tick_all(&ex);
        assert!(ex.is_empty());
    });
}

/// By the time that an awaiter knows.
#[test]
fn an_executor_is_empty_once_its_last_task_is_known_to_have_ended() {
    watched("", || {
        let ex = Ex::new();
        block_on(ex.run(async {
            for i in 0..300 {
                let task = ex.spawn(yields(i % 4));
                assert!(!ex.is_empty());
                match i % 3 {
                    0 => task.await,
                    1 => assert_eq!(task.fallible().await, Some(())),
                    _ => drop(task.cancel().await),
                }
                assert!(ex.is_empty());
            }
        }));
    });
}

#[test]
fn debug_names_the_type_and_blocks_nowhere() {
    watched("", || {
        let name = std::any::type_name::<Ex<'_>>().rsplit("::").next().unwrap();
        let name = name.split('<').next().unwrap();
        let ex = Shared::new(Ex::new());
        assert!(format!("{ex:?}").starts_with(name), "{ex:?}");
        let inner = ex.clone();
        let task = ex.spawn(async move {
            yields(1).await;
            format!("{inner:?} {inner:#?}")
        });
        assert!(format!("{ex:?} {task:?}").starts_with(name), "{ex:?}");
        let (inside, beside) = block_on(ex.run(async { (task.await, format!("{ex:?}")) }));
        assert!(inside.starts_with(name) && beside.starts_with(name), "{inside} {beside}");
        // While tasks are spawned.
        let inner = ex.clone();
        let mut tasks = Vec::new();
        ex.spawn_many((0..3).map(|_| ready(format!("{inner:?}"))), &mut tasks);
        tick_all(&ex);
        assert!(tasks.into_iter().map(block_on).all(|text| text.starts_with(name)));
    });
}

fn is_debug_unwind_safe<T: Debug + UnwindSafe + RefUnwindSafe>() {}
fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}
fn is_unpin<T: Unpin>() {}

#[test]
fn auto_traits_are_those_that_were_promised() {
    is_debug_unwind_safe::<Ex<'static>>();
    is_unpin::<Ex<'static>>();
    is_debug_unwind_safe::<ex::Task<Cell<u8>>>();
    is_send::<ex::Task<Cell<u8>>>();
    // Of what a reference to a task gives, nothing is its output.
    is_sync::<ex::Task<Rc<u8>>>();
    is_unpin::<ex::Task<std::marker::PhantomPinned>>();
    is_send::<ex::FallibleTask<Cell<u8>>>();
    is_sync::<ex::FallibleTask<Cell<u8>>>();
    is_unpin::<ex::FallibleTask<std::marker::PhantomPinned>>();
    let _: fn() -> Ex<'static> = Default::default;
    // In a constant expression.
    assert!(const { Ex::new() }.is_empty());
}

#[test]
fn a_task_is_send_if_its_output_is() {
    assert!(implements!(ex::Task<Cell<u8>>: Send));
    assert!(!implements!(ex::Task<Rc<u8>>: Send));
    assert!(!implements!(ex::FallibleTask<Rc<u8>>: Send));
    assert!(implements!(ex::Task<Rc<u8>>: Sync));
}

#[test]
fn tasks_borrow_what_outlives_the_executor() {
    watched("", || {
        let (words, sum) = (vec![String::from("a"), String::from("bc")], Mutex::new(0));
        let ex = Ex::new();
        let mut tasks = Vec::new();
        ex.spawn_many(
            words.iter().map(|word| {
                let sum = &sum;
                async move {
                    yields(1).await;
                    *sum.lock().unwrap() += word.len();
                    word.as_str()
                }
            }),
            &mut tasks,
        );
        ex.spawn(async { *sum.lock().unwrap() += 10 }).detach();
        let longest = block_on(ex.run(async {
            let mut longest = "";
            for task in tasks {
                longest = std::cmp::max_by_key(longest, task.await, |word| word.len());
            }
            longest
        }));
        tick_all(&ex);
        drop(ex);
        assert_eq!((longest, sum.into_inner().unwrap()), ("bc", 13));
    });
}

#[test]
fn the_future_of_run_borrows_and_need_be_neither_send_nor_static() {
    watched("", || {
        let (ex, local) = (Ex::new(), Rc::new(Cell::new(0)));
        let task = ex.spawn(async { 4 });
        let output = block_on(ex.run(async {
            local.set(task.await);
            Rc::clone(&local)
        }));
        assert_eq!((output.get(), Rc::strong_count(&local)), (4, 2));
    });
}

#[test]
fn an_executor_moves_with_its_tasks() {
    watched("", || {
        let (ex, order) = (Ex::new(), Arc::new(Mutex::new(Vec::new())));
        for i in 0..4 {
            let order = order.clone();
            ex.spawn(async move {
                yields(i).await;
                order.lock().unwrap().push(i);
            })
            .detach();
        }
        assert!(ex.try_tick());
        let mut moved = Box::new(Some(ex));
        block_on(moved.as_ref().as_ref().unwrap().run(yields(1)));
        let ex = moved.take().unwrap();
        tick_all(&ex);
        let mut order = order.lock().unwrap().clone();
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3]);
    });
}
