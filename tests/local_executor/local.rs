//! Futures and outputs that are not `Send`.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use futures_lite::future::{block_on, yield_now, zip};

use crate::common::{on_each, watched};
use crate::either::{Puppet, idle_run, implements, yields};
use crate::{Ex, ex};

#[test]
fn a_local_executor_and_its_futures_are_neither_send_nor_sync() {
    assert!(!implements!(ex::LocalExecutor<'static>: Send));
    assert!(!implements!(ex::LocalExecutor<'static>: Sync));
    assert!(!implements!(&'static ex::LocalExecutor<'static>: Send));
}

#[test]
fn futures_and_outputs_need_not_be_send() {
    watched("", || {
        let (local, order) = (Ex::new(), Rc::new(RefCell::new(Vec::new())));
        let tasks: Vec<ex::Task<Rc<usize>>> = (0..10)
            .map(|i| {
                let order = order.clone();
                local.spawn(async move {
                    let held = Rc::new(i);
                    yields(i % 3).await;
                    order.borrow_mut().push(*held);
                    held
                })
            })
            .collect();
        block_on(local.run(async {
            for (i, task) in tasks.into_iter().enumerate() {
                assert_eq!(*task.await, i);
            }
        }));
        order.borrow_mut().sort_unstable();
        assert!(order.borrow().iter().copied().eq(0..10));
    });
}

#[test]
fn spawn_many_takes_futures_that_are_not_send() {
    watched("", || {
        let (sum, local) = (Cell::new(0), Ex::new());
        let mut tasks = Vec::new();
        let futures = (0..1_000).map(|i| {
            let sum = &sum;
            async move {
                yields(i % 2).await;
                sum.set(sum.get() + i);
                Rc::new(i)
            }
        });
        local.spawn_many(futures, &mut tasks);
        block_on(local.run(async {
            for (i, task) in tasks.into_iter().enumerate() {
                assert_eq!(*task.await, i);
            }
        }));
        assert_eq!(sum.get(), 499_500);
    });
}

#[test]
fn two_local_executors_on_one_thread_share_no_work() {
    watched("", || {
        let polls = Cell::new(0);
        let [first, second] = [Ex::new(), Ex::new()];
        let [mut run, mut other] = [Puppet::new(idle_run(&first)), Puppet::new(idle_run(&second))];
        assert!(run.settle().is_pending() && other.settle().is_pending());
        let counts = async {
            polls.set(polls.get() + 1);
            pending::<()>().await;
        };
        first.spawn(counts).detach();
        assert!(run.is_woken() && !other.is_woken());
        assert!(other.poll().is_pending());
        assert!(!second.try_tick());
        assert_eq!(polls.get(), 0);
        assert!(run.poll().is_pending());
        assert_eq!(polls.get(), 1);
    });
}

#[test]
fn tasks_of_two_local_executors_wake_each_other() {
    watched("", || {
        let [first, second] = [Ex::new(), Ex::new()];
        // Whose `run` is being polled.
        let polled = Rc::new(Cell::new(0));
        let named = async |name, local: &Ex<'_>, main: ex::Task<()>| {
            let mut run = std::pin::pin!(local.run(main));
            poll_fn(|cx| {
                let outer = polled.replace(name);
                let poll = run.as_mut().poll(cx);
                polled.set(outer);
                poll
            })
            .await;
        };
        let (ping, pings) = async_channel::bounded(1);
        let (pong, pongs) = async_channel::bounded(1);
        let here = polled.clone();
        let caller = first.spawn(async move {
            for i in 0..1_000 {
                ping.send(i).await.unwrap();
                assert_eq!(pongs.recv().await, Ok(i));
                assert_eq!(here.get(), 1);
            }
        });
        let here = polled.clone();
        let echo = second.spawn(async move {
            while let Ok(i) = pings.recv().await {
                assert_eq!(here.get(), 2);
                pong.send(i).await.unwrap();
            }
        });
        block_on(zip(named(1, &first, caller), named(2, &second, echo)));
        assert!(first.is_empty() && second.is_empty());
    });
}

#[test]
fn local_executors_nest_three_deep_in_tasks_that_borrow_them() {
    watched("", || {
        let inner = Ex::new();
        let middle = Ex::new();
        let outer = Ex::new();
        let nested = async {
            let task = inner.spawn(async {
                yields(5).await;
                1
            });
            inner.run(task).await + 1
        };
        let nested = middle.spawn(nested);
        let task = outer.spawn(async { middle.run(nested).await + 1 });
        let answer = block_on(outer.run(task));
        assert_eq!(answer, 3);
    });
}

#[test]
fn a_local_executor_runs_in_block_on_with_timers() {
    on_each(|runtime| {
        let (local, count) = (Rc::new(Ex::new()), Rc::new(Cell::new(0)));
        runtime.block_on(local.run(async {
            let tasks: Vec<_> = (0..100)
                .map(|i| {
                    let (local_of, count) = (local.clone(), count.clone());
                    local.spawn(async move {
                        paceline::time::sleep(std::time::Duration::from_millis(i % 5)).await;
                        // It spawns there, too.
                        let count_there = count.clone();
                        local_of.spawn(async move { count_there.set(count_there.get() + 1) }).await;
                        yield_now().await;
                        count.set(count.get() + 1);
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
        }));
        assert_eq!(count.get(), 200);
    });
}

#[test]
fn a_chain_of_tasks_each_spawned_by_the_one_before() {
    fn link(local: Rc<Ex<'static>>, left: usize, ended: Rc<Cell<bool>>) {
        let next = local.clone();
        let task = local.spawn(async move {
            match left {
                0 => ended.set(true),
                _ => link(next, left - 1, ended),
            }
        });
        task.detach();
    }
    watched("", || {
        let (local, ended) = (Rc::new(Ex::new()), Rc::new(Cell::new(false)));
        link(local.clone(), 10_000, ended.clone());
        block_on(local.run(async {
            while !ended.get() {
                yield_now().await;
            }
        }));
        assert!(local.is_empty());
    });
}

#[test]
fn a_local_waker_passes_between_tasks_without_a_channel() {
    watched("", || {
        let (turn, local) = (Rc::new((Cell::new(0), RefCell::new(Vec::new()))), Ex::new());
        // Each waits until it is its turn, and then wakes all.
        let tasks: Vec<_> = (0..50)
            .map(|own| {
                let turn = turn.clone();
                local.spawn(async move {
                    poll_fn(|cx| {
                        if turn.0.get() == own {
                            return Poll::Ready(());
                        }
                        turn.1.borrow_mut().push(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                    turn.0.set(own + 1);
                    turn.1.take().into_iter().for_each(std::task::Waker::wake);
                })
            })
            .rev()
            .collect();
        block_on(local.run(async {
            for task in tasks {
                task.await;
            }
        }));
        assert_eq!(turn.0.get(), 50);
    });
}
