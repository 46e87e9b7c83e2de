//! The workloads of an executor that threads share: in `_in` rows the main future is that of `run`, on one
//! thread; in `_1` and `_2` rows it is beside, and so many threads run the executor.
#![allow(clippy::disallowed_methods)] // the executors' threads are for their user to start

use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use async_channel::{Receiver, Sender, bounded};
use futures_lite::future::{block_on, yield_now};

use super::arms::{self, Shared};
use super::{LIGHT_TASKS, Row, STEPS, TASKS};
use crate::common::measure::{Sample, measured};
use crate::common::workloads::Runner;

/// An executor with its threads.
pub struct Stage<E: Shared> {
    /// It is there as long as the process is.
    ex: &'static E,
    threads: Vec<JoinHandle<()>>,
    stop: Option<Sender<()>>,
}

impl<E: Shared> Stage<E> {
    pub fn new(threads: usize) -> Self {
        let ex: &E = Box::leak(Box::new(E::new()));
        let (stop, stopped) = bounded::<()>(1);
        let threads = (0..threads)
            .map(|_| {
                let stopped = stopped.clone();
                thread::spawn(move || _ = block_on(ex.run(stopped.recv())))
            })
            .collect();
        Stage { ex, threads, stop: Some(stop) }
    }

    /// Beside the threads that run the executor, or in `run` where there are none.
    fn block_on<T>(&self, main: impl Future<Output = T>) -> T {
        if self.threads.is_empty() { block_on(self.ex.run(main)) } else { block_on(main) }
    }
}

impl<E: Shared> Drop for Stage<E> {
    fn drop(&mut self) {
        self.stop = None;
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

macro_rules! start {
    ($arm:ident, $body:ident, $threads:literal) => {
        (arms::$arm::NAME, || {
            let stage = Stage::<arms::$arm>::new($threads);
            Box::new(move || $body(&stage)) as Runner
        })
    };
}

macro_rules! row {
    ($name:literal, $body:ident, $threads:literal) => {
        Row { name: $name, arms: shared_arms!(start!($body, $threads)) }
    };
}

pub const ROWS: &[Row] = &[
    row!("create", create, 0),
    row!("spawn_one_in", spawn_one, 0),
    row!("spawn_one_1", spawn_one, 1),
    row!("spawn_one_2", spawn_one, 2),
    row!("spawn_batch_in", spawn_batch, 0),
    row!("spawn_batch_1", spawn_batch, 1),
    row!("spawn_batch_2", spawn_batch, 2),
    row!("spawn_many_in", spawn_many, 0),
    row!("spawn_many_1", spawn_many, 1),
    row!("spawn_many_2", spawn_many, 2),
    row!("spawn_recursively_in", spawn_recursively, 0),
    row!("spawn_recursively_1", spawn_recursively, 1),
    row!("spawn_recursively_2", spawn_recursively, 2),
    row!("yield_now_in", yields, 0),
    row!("yield_now_1", yields, 1),
    row!("yield_now_2", yields, 2),
    row!("channels_in", channels, 0),
    row!("channels_1", channels, 1),
    row!("channels_2", channels, 2),
    row!("web_server_in", web_server, 0),
    row!("web_server_1", web_server, 1),
    row!("web_server_2", web_server, 2),
];

/// An executor is made, runs one task, and is dropped.
fn create<E: Shared>(_: &Stage<E>) -> Sample {
    const CYCLES: u64 = 2_000;
    measured(CYCLES, || {
        for _ in 0..CYCLES {
            let ex = E::new();
            let task = ex.spawn(async {});
            block_on(ex.run(task));
        }
    })
}

/// A task is spawned and awaited, again and again.
pub fn spawn_one<E: Shared>(stage: &Stage<E>) -> Sample {
    const SPAWNS: u64 = 1_000;
    measured(SPAWNS, || {
        stage.block_on(async {
            for _ in 0..SPAWNS {
                stage.ex.spawn(async {}).await;
            }
        });
    })
}

/// Batches of 250 tasks that give way once, one after the other.
fn spawn_batch<E: Shared>(stage: &Stage<E>) -> Sample {
    const BATCHES: u64 = 40;
    const BATCH: u64 = 250;
    measured(BATCHES * BATCH, || {
        stage.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..BATCHES {
                stage.ex.spawn_many((0..BATCH).map(|_| yield_now()), &mut tasks);
                for task in tasks.drain(..) {
                    task.await;
                }
            }
        });
    })
}

/// Tasks that have nothing to do are spawned one by one, and then awaited.
fn spawn_many<E: Shared>(stage: &Stage<E>) -> Sample {
    measured(LIGHT_TASKS as u64, || {
        stage.block_on(async {
            let tasks: Vec<_> = (0..LIGHT_TASKS).map(|_| stage.ex.spawn(async {})).collect();
            for task in tasks {
                task.await;
            }
        });
    })
}

/// Spawns a task that does the same, one less deep, and awaits it.
fn descend<E: Shared>(
    ex: &'static E,
    depth: usize,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
    Box::pin(async move {
        if depth > 0 {
            ex.spawn(async move { descend(ex, depth - 1).await }).await;
        }
    })
}

/// An operation is a spawn.
fn spawn_recursively<E: Shared>(stage: &Stage<E>) -> Sample {
    measured((TASKS * (STEPS + 1)) as u64, || {
        stage.block_on(async {
            let ex = stage.ex;
            let tasks: Vec<_> = (0..TASKS).map(|_| ex.spawn(descend(ex, STEPS))).collect();
            for task in tasks {
                task.await;
            }
        });
    })
}

async fn give_way(times: usize) {
    for _ in 0..times {
        yield_now().await;
    }
}

/// Tasks that give way again and again.
pub fn yields<E: Shared>(stage: &Stage<E>) -> Sample {
    measured((TASKS * STEPS) as u64, || {
        stage.block_on(async {
            let tasks: Vec<_> = (0..TASKS).map(|_| stage.ex.spawn(give_way(STEPS))).collect();
            for task in tasks {
                task.await;
            }
        });
    })
}

/// A chain of tasks hands one message after the other from end to end; an operation is a hop.
fn channels<E: Shared>(stage: &Stage<E>) -> Sample {
    measured(((TASKS + 1) * STEPS) as u64, || {
        stage.block_on(async {
            let (start, mut end) = bounded(1);
            let mut tasks = Vec::new();
            for _ in 0..TASKS {
                let (sender, receiver) = bounded(1);
                let from = replace(&mut end, receiver);
                tasks.push(stage.ex.spawn(async move {
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
        });
    })
}

/// xorshift64: each round makes the same decisions.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn fork(&mut self) -> Self {
        Random(self.below(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

/// Answers each query after some turns.
async fn serve_queries(queries: Receiver<Sender<u64>>, mut random: Random) {
    while let Ok(reply) = queries.recv().await {
        give_way(random.below(10) as usize).await;
        // Who has asked may have gone.
        let _ = reply.send(random.below(1_000)).await;
    }
}

/// A request: half of them are answered at once, the others take many queries, one after the other.
async fn serve_request(database: Sender<Sender<u64>>, mut random: Random, asked: Arc<AtomicU64>) {
    if random.below(2) == 0 {
        return yield_now().await;
    }
    let queries = STEPS as u64 / 2 + random.below(STEPS as u64 / 2);
    for _ in 0..queries {
        let (reply, replies) = bounded(1);
        database.send(reply).await.unwrap();
        std::hint::black_box(replies.recv().await.unwrap());
    }
    asked.fetch_add(queries, Relaxed);
    give_way(3 + random.below(13) as usize).await;
}

/// A server with a task for each request, and a database with a task of its own; an operation is a query.
fn web_server<E: Shared>(stage: &Stage<E>) -> Sample {
    let (ex, asked) = (stage.ex, Arc::new(AtomicU64::new(0)));
    let counts = asked.clone();
    let mut sample = measured(0, move || {
        stage.block_on(async {
            let mut random = Random(0x1234_5678_9abc_def1);
            let (database, queries) = bounded(TASKS / 5);
            let serves_queries = ex.spawn(serve_queries(queries, random.fork()));
            let server = ex.spawn(async move {
                for request in 0..TASKS {
                    if random.below(16) == 0 || request % 16 == 0 {
                        yield_now().await;
                    }
                    let served = serve_request(database.clone(), random.fork(), asked.clone());
                    E::detach(ex.spawn(served));
                }
            });
            server.await;
            // It ends with the last request.
            serves_queries.await;
        });
    });
    sample.ops = counts.load(Relaxed);
    sample
}
