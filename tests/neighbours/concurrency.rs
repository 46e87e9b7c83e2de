//! futures-concurrency, which gives each of its futures a waker of its own.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::StreamExt;
use futures_concurrency::concurrent_stream::IntoConcurrentStream;
use futures_concurrency::prelude::*;
use paceline::time::{interval, sleep};
use paceline::{spawn, yield_now};

use crate::common::Census;
use crate::{Crowd, each, until};

#[test]
fn join_awaits_tuples_arrays_and_vectors_of_tasks_and_timers() {
    each(async || {
        let timer = sleep(Duration::from_micros(50));
        assert_eq!((spawn(async { 1 }), timer, async { "two" }).join().await, (1, (), "two"));
        let tasks: Vec<_> = (0..100)
            .map(|i| {
                spawn(async move {
                    for _ in 0..i % 5 {
                        yield_now().await;
                    }
                    i
                })
            })
            .collect();
        assert_eq!(tasks.join().await, (0..100).collect::<Vec<_>>());
        let failed = [spawn(async { Ok(1) }), spawn(async { Err("no") })].try_join().await;
        assert_eq!(failed, Err("no"));
    });
}

#[test]
fn race_cancels_the_tasks_that_lose() {
    each(async || {
        let census = Census::new();
        let mut tasks: Vec<_> = (0..10)
            .map(|_| {
                let one = census.one();
                spawn(async move {
                    let _one = one;
                    std::future::pending().await
                })
            })
            .collect();
        tasks.push(spawn(async { "first" }));
        assert_eq!(tasks.race().await, "first");
        until(|| census.dead() == 10).await;
    });
}

#[test]
fn merge_brings_all_of_several_streams_each_in_its_order() {
    each(async || {
        let (sender, receiver) = async_channel::bounded(2);
        let send = spawn(async move {
            for i in 0..100 {
                sender.send(i).await.unwrap();
            }
        });
        let ticks = interval(Duration::from_micros(50)).take(20).map(|_| None);
        let mut merged = std::pin::pin!((receiver.map(Some), ticks).merge());
        let (mut messages, mut ticks) = (Vec::new(), 0);
        while let Some(item) = merged.next().await {
            match item {
                Some(i) => messages.push(i),
                None => ticks += 1,
            }
        }
        assert_eq!((messages, ticks), ((0..100).collect(), 20));
        send.await;
    });
}

#[test]
fn a_concurrent_stream_runs_so_many_tasks_at_once() {
    const LIMIT: usize = 8;
    each(async || {
        let (crowd, sum) = (Crowd::default(), Arc::new(AtomicUsize::new(0)));
        let numbers: Vec<_> = (0..500).collect();
        numbers
            .into_co_stream()
            .limit(NonZero::new(LIMIT))
            .map(|i: usize| {
                let crowd = crowd.clone();
                spawn(async move {
                    crowd.enter();
                    for _ in 0..i % 3 {
                        yield_now().await;
                    }
                    crowd.leave();
                    i
                })
            })
            .for_each(async |i| {
                sum.fetch_add(i, SeqCst);
            })
            .await;
        assert_eq!(sum.load(SeqCst), 124_750);
        assert!(crowd.most() <= LIMIT, "{}", crowd.most());
    });
}

#[test]
fn a_group_takes_more_tasks_while_it_is_awaited() {
    each(async || {
        let mut group = futures_concurrency::future::FutureGroup::new();
        group.insert(spawn(async { 0 }));
        let mut all = Vec::new();
        while let Some(i) = group.next().await {
            all.push(i);
            if i < 100 {
                group.insert(spawn(async move {
                    yield_now().await;
                    i + 1
                }));
            }
        }
        assert_eq!(all, (0..=100).collect::<Vec<_>>());
    });
}
