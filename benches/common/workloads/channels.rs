//! Workloads of channels: async-channel's for every arm, with room for 128; one of the standard library's.

use std::sync::mpsc;
use std::time::Instant;

use async_channel::{Receiver, Sender, bounded};

use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};

const CAPACITY: usize = 128;

/// Adds one to each item and hands it on, until there are no more.
async fn stage(items: Receiver<u64>, on: Sender<u64>) {
    while let Ok(item) = items.recv().await {
        on.send(item + 1).await.unwrap();
    }
}

async fn source(on: Sender<u64>, items: u64) {
    for item in 0..items {
        on.send(item).await.unwrap();
    }
}

/// How many items came, and their sum.
async fn sink(items: Receiver<u64>) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0);
    while let Ok(item) = items.recv().await {
        (count, sum) = (count + 1, sum + item);
    }
    (count, sum)
}

/// Launches `stages` tasks that hand items on, one to the next: the two ends of the chain.
fn chain<A: Arm>(stages: usize) -> (Sender<u64>, Receiver<u64>) {
    let (start, mut end) = bounded(CAPACITY);
    for _ in 0..stages {
        let (sender, receiver) = bounded(CAPACITY);
        A::launch(stage(std::mem::replace(&mut end, receiver), sender));
    }
    (start, end)
}

/// 100,000 messages from so many tasks to one.
pub fn many_to_one<A: Arm, const SENDERS: u64>(arm: &A) -> Sample {
    const MESSAGES: u64 = 100_000;
    measured(MESSAGES, || {
        let (count, _) = arm.in_task(async {
            let (sender, receiver) = bounded(CAPACITY);
            for _ in 0..SENDERS {
                A::launch(source(sender.clone(), MESSAGES / SENDERS));
            }
            drop(sender);
            sink(receiver).await
        });
        assert_eq!(count, MESSAGES);
    })
}

/// 64 chains of 8 tasks, 100 messages through each; an operation is a hop.
pub fn chains<A: Arm>(arm: &A) -> Sample {
    const CHAINS: u64 = 64;
    const HOPS: u64 = 8;
    const MESSAGES: u64 = 100;
    measured(CHAINS * HOPS * MESSAGES, || {
        arm.in_task(async {
            let mut ends = Vec::new();
            for _ in 0..CHAINS {
                let (start, end) = chain::<A>(HOPS as usize);
                A::launch(source(start, MESSAGES));
                ends.push(A::spawn(sink(end)));
            }
            for end in ends {
                assert_eq!(end.await.0, MESSAGES);
            }
        });
    })
}

/// 50,000 items through 4 tasks; an operation is an item's way from end to end.
pub fn pipeline<A: Arm>(arm: &A) -> Sample {
    const ITEMS: u64 = 50_000;
    const STAGES: u64 = 4;
    measured(ITEMS, || {
        let (count, sum) = arm.in_task(async {
            let (start, end) = chain::<A>(STAGES as usize);
            A::launch(source(start, ITEMS));
            sink(end).await
        });
        assert_eq!((count, sum), (ITEMS, ITEMS * (ITEMS - 1) / 2 + ITEMS * STAGES));
    })
}

/// The future of `block_on` spawns a task and blocks until its message comes, as no future should: its
/// thread is a worker, which others have to make up for. Watched is how long that takes.
pub fn std_channel_in_block_on<A: Arm>(arm: &A) -> Sample {
    const TIMES: u64 = 100;
    let mut took = Histogram::new();
    let mut sample = measured(TIMES, || {
        arm.block_on(async {
            for _ in 0..TIMES {
                let start = Instant::now();
                let (sender, receiver) = mpsc::channel();
                A::launch(async move { sender.send(()).unwrap() });
                receiver.recv().unwrap();
                took.add(start.elapsed());
            }
        });
    });
    sample.watched = Some(took.watched("message"));
    sample
}
