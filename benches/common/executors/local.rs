//! The workloads of an executor of one thread. All of them run inside one of its tasks.

use std::future::Future;
use std::mem::replace;
use std::pin::Pin;

use async_channel::bounded;
use futures::channel::oneshot;
use futures_lite::future::yield_now;

use super::arms::{self, Local};
use super::{LIGHT_TASKS, Row, STEPS, TASKS};
use crate::common::channel::{Receiver, Sender, channel};
use crate::common::measure::{Sample, measured};
use crate::common::workloads::Runner;

macro_rules! start {
    ($arm:ident, $body:ident, $ops:expr) => {
        (arms::$arm::NAME, || {
            let local = arms::$arm::new();
            Box::new(move || inside(&local, $ops, $body)) as Runner
        })
    };
}

macro_rules! row {
    ($name:literal, $body:ident, $ops:expr) => {
        Row { name: $name, arms: local_arms!(start!($body, $ops)) }
    };
}

pub const ROWS: &[Row] = &[
    row!("local_spawn_await", spawn_await, SPAWNS),
    row!("local_spawn_many", spawn_many, LIGHT_TASKS),
    row!("local_spawn_recursively", spawn_recursively, TASKS * (STEPS + 1)),
    row!("local_yield_now", yields, TASKS * STEPS),
    row!("local_yield_1", yields_alone, LONE_YIELDS),
    row!("local_channels", channels, (TASKS + 1) * STEPS),
    row!("local_ping_pong", ping_pong, PAIRS),
    row!("local_pair", pair, MESSAGES),
];

pub const SPAWNS: usize = 10_000;
pub const LONE_YIELDS: usize = 100_000;
const PAIRS: usize = 1_000;
pub const MESSAGES: usize = 20_000;

/// Measures `body`, which does so many operations, in a task.
pub fn inside<L: Local, F: Future<Output = ()> + 'static>(
    local: &L,
    ops: usize,
    body: fn(L) -> F,
) -> Sample {
    measured(ops as u64, || local.block_on(async { local.spawn(body(local.clone())).await }))
}

/// A task is spawned and awaited, again and again.
pub async fn spawn_await<L: Local>(local: L) {
    for _ in 0..SPAWNS {
        local.spawn(async {}).await;
    }
}

/// Tasks that have nothing to do are spawned one by one, and then awaited.
async fn spawn_many<L: Local>(local: L) {
    let tasks: Vec<_> = (0..LIGHT_TASKS).map(|_| local.spawn(async {})).collect();
    for task in tasks {
        task.await;
    }
}

/// Spawns a task that does the same, one less deep, and awaits it.
fn descend<L: Local>(local: L, depth: usize) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        if depth > 0 {
            let inner = local.clone();
            local.spawn(async move { descend(inner, depth - 1).await }).await;
        }
    })
}

/// An operation is a spawn.
async fn spawn_recursively<L: Local>(local: L) {
    let tasks: Vec<_> = (0..TASKS).map(|_| local.spawn(descend(local.clone(), STEPS))).collect();
    for task in tasks {
        task.await;
    }
}

/// Tasks that give way again and again.
pub async fn yields<L: Local>(local: L) {
    let give_way = || async {
        for _ in 0..STEPS {
            yield_now().await;
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|_| local.spawn(give_way())).collect();
    for task in tasks {
        task.await;
    }
}

/// One task does, and there is no other.
pub async fn yields_alone<L: Local>(_: L) {
    for _ in 0..LONE_YIELDS {
        yield_now().await;
    }
}

/// A chain of tasks hands one message after the other from end to end; an operation is a hop.
async fn channels<L: Local>(local: L) {
    let (start, mut end) = bounded(1);
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (sender, receiver) = bounded(1);
        let from = replace(&mut end, receiver);
        tasks.push(local.spawn(async move {
            for _ in 0..STEPS {
                sender.send(from.recv().await.unwrap()).await.unwrap();
            }
        }));
    }
    for step in 0..STEPS {
        start.send(step).await.unwrap();
        assert_eq!(end.recv().await, Ok(step));
    }
    for task in tasks {
        task.await;
    }
}

/// A task and its child exchange two oneshots.
async fn exchange<L: Local>(local: L) {
    let (ping, pinged) = oneshot::channel();
    let (pong, ponged) = oneshot::channel();
    L::detach(local.spawn(async move {
        pinged.await.unwrap();
        pong.send(()).unwrap();
    }));
    ping.send(()).unwrap();
    ponged.await.unwrap();
}

async fn ping_pong<L: Local>(local: L) {
    let tasks: Vec<_> = (0..PAIRS).map(|_| local.spawn(exchange(local.clone()))).collect();
    for task in tasks {
        task.await;
    }
}

/// Sends back what comes in, until the other side hangs up.
async fn echo(mut incoming: Receiver<usize>, mut outgoing: Sender<usize>) {
    while let Some(message) = incoming.recv().await {
        outgoing.send(message).await;
    }
}

/// Two tasks exchange messages over channels of capacity 1; an operation is one there and back.
pub async fn pair<L: Local>(local: L) {
    let (mut ping, pings) = channel();
    let (pong, mut pongs) = channel();
    let echo = local.spawn(echo(pings, pong));
    let caller = local.spawn(async move {
        for message in 0..MESSAGES {
            ping.send(message).await;
            assert_eq!(pongs.recv().await, Some(message));
        }
    });
    caller.await;
    echo.await;
}
