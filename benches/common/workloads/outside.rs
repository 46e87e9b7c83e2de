//! Loads that a foreign thread puts on a runtime which has nothing else to do: requests with gaps
//! between, bursts of tasks, nothing at all. Each goes on for as long as it is told.
//!
//! The foreign thread is the one that calls. It waits for the runtime as `std::thread::park` does, in
//! the kernel, so that it takes no CPU from what is measured.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, bounded};

use super::{Runner, counting, workers};
use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};
use crate::common::net::{LOOPBACK, Net};

/// A load, set up: a call goes on for about that long.
pub type Timed = Box<dyn FnMut(Duration) -> Sample>;

/// Clients that each send a request to a task of their own over an async-channel, wait for the reply,
/// and rest for a gap. An operation is a request; watched is how long it takes, the caller's own
/// wake-up included.
///
/// One thread is all clients: as many threads would keep the CPUs busy with switches from one to the
/// next, which hides how long the runtime's own threads take to wake up.
pub struct Clients<A> {
    arm: A,
    gap: Duration,
    requests: Vec<Sender<()>>,
    replies: mpsc::Receiver<usize>,
    /// When each client sent its last request.
    sent: Vec<Instant>,
    /// When each client that does not wait sends the next one.
    next: BinaryHeap<Reverse<(Instant, usize)>>,
    took: Histogram,
}

/// Replies to one client.
async fn serve(
    requests: Receiver<()>,
    client: usize,
    replies: mpsc::Sender<usize>,
    caller: Thread,
) {
    while requests.recv().await.is_ok() {
        replies.send(client).unwrap();
        caller.unpark();
    }
}

impl<A: Arm> Clients<A> {
    /// Must be called by the thread that calls later.
    pub fn new(arm: A, count: usize, gap: Duration) -> Self {
        let (reply, replies) = mpsc::channel();
        let start = |client| {
            let (request, requests) = bounded(1);
            arm.launch_from_outside(serve(requests, client, reply.clone(), thread::current()));
            request
        };
        let requests = (0..count).map(start).collect();
        let (sent, next) = (vec![Instant::now(); count], BinaryHeap::new());
        Clients { arm, gap, requests, replies, sent, next, took: Histogram::new() }
    }

    /// No request is under way afterwards.
    pub fn call(&mut self, lasts: Duration) -> Sample {
        let mut requests = 0;
        let mut sample = measured(0, || requests = self.call_until(Instant::now() + lasts));
        sample.ops = requests;
        sample.watched =
            Some(std::mem::replace(&mut self.took, Histogram::new()).watched("request"));
        sample
    }

    fn call_until(&mut self, end: Instant) -> u64 {
        let (start, count) = (Instant::now(), self.requests.len() as u32);
        // Evenly over the first gap.
        let first = |client| Reverse((start + self.gap * client as u32 / count, client));
        self.next = (0..self.requests.len()).map(first).collect();
        let mut requests = 0;
        loop {
            let now = self.take_replies();
            let waiting = self.requests.len() - self.next.len();
            if now >= end {
                if waiting == 0 {
                    return requests;
                }
                thread::park();
                continue;
            }
            match self.next.peek() {
                Some(Reverse((moment, client))) if *moment <= now => {
                    self.sent[*client] = Instant::now();
                    self.requests[*client].try_send(()).expect("it has replied");
                    self.next.pop();
                    requests += 1;
                }
                Some(Reverse((moment, _))) => rest(|| thread::park_timeout(*moment - now)),
                None => thread::park(),
            }
        }
    }

    /// Gives the time.
    fn take_replies(&mut self) -> Instant {
        loop {
            let reply = self.replies.try_recv();
            let now = Instant::now();
            let Ok(client) = reply else { return now };
            self.took.add(now - self.sent[client]);
            self.next.push(Reverse((now + self.gap, client)));
        }
    }
}

/// Runs of tasks, spawned one after the other, and a pause when all have run. An operation is a task;
/// watched is how long it waits for its turn.
pub fn bursts<A: Arm>(arm: A, run: usize, pause: Duration) -> Timed {
    let waits: Arc<[AtomicU64]> = (0..run).map(|_| AtomicU64::new(0)).collect();
    Box::new(move |lasts| {
        let (mut tasks, mut waited) = (0, Histogram::new());
        let mut sample = measured(0, || {
            let end = Instant::now() + lasts;
            while Instant::now() < end {
                burst(&arm, &waits);
                waits.iter().for_each(|ns| waited.add(Duration::from_nanos(ns.load(Relaxed))));
                tasks += run as u64;
                nap(pause);
            }
        });
        sample.ops = tasks;
        sample.watched = Some(waited.watched("wait"));
        sample
    })
}

/// One run; notes how long each task waited.
fn burst<A: Arm>(arm: &A, waits: &Arc<[AtomicU64]>) {
    let left = Arc::new(AtomicUsize::new(waits.len()));
    for task in 0..waits.len() {
        let (left, waits, caller) = (left.clone(), waits.clone(), thread::current());
        let spawned = Instant::now();
        arm.launch_from_outside(async move {
            waits[task].store(spawned.elapsed().as_nanos() as u64, Relaxed);
            if left.fetch_sub(1, AcqRel) == 1 {
                caller.unpark();
            }
        });
    }
    while left.load(Acquire) > 0 {
        thread::park();
    }
}

/// Nothing, for a runtime that has worked, and now waits for requests, each of a task of its own, for a
/// connection and for a timer. An operation is a round; its CPU time counts.
pub fn rests<A: Net>(arm: A, tasks: usize) -> Timed {
    /// For the last spin, and the ticker's last ticks.
    const SETTLES: Duration = Duration::from_millis(100);
    arm.launch_from_outside(async {
        A::launch(A::sleep_until(Instant::now() + Duration::from_secs(3_600)));
        let (listener, _) = A::listen(LOOPBACK).await;
        drop(A::accept(&listener).await);
    });
    let mut clients = Clients::new(arm, tasks, Duration::ZERO);
    clients.call(Duration::from_millis(20));
    nap(SETTLES);
    Box::new(move |lasts| {
        // They and the runtime stay as long as the closure.
        let _stay = &clients;
        measured(1, || nap(lasts))
    })
}

/// 1,000 tasks wait, for 250 ms. The runtime is made for the round: what others do that are idle would
/// count as well.
pub fn idle<A: Net>() -> Sample {
    let arm = A::new(workers());
    let parks = arm.parks();
    let mut rest = rests(arm, 1_000);
    counting(parks.as_deref(), || rest(Duration::from_millis(250)))
}

/// Clients for 20 ms, or for ten of their gaps if that is longer.
pub fn request_reply<A: Arm, const CLIENTS: usize, const GAP_US: u64>(arm: A) -> Runner {
    let gap = Duration::from_micros(GAP_US);
    let mut clients = Clients::new(arm, CLIENTS, gap);
    Box::new(move || clients.call(Duration::from_millis(20).max(gap * 10)))
}

/// Sleeps for that long and no shorter.
#[allow(clippy::disallowed_methods)] // a pause of the load; nothing waits for it
fn nap(length: Duration) {
    rest(|| thread::sleep(length));
}

/// Sleeps as exactly as the system can: by default, Linux lets a timer be 50 µs late.
fn rest(sleep: impl FnOnce()) {
    set_timer_slack(1);
    sleep();
    set_timer_slack(0);
}

/// Of this thread, in ns; zero is the default. Not for longer than a sleep, for threads that it starts
/// inherit it, and the runtime's may be among them.
#[cfg(target_os = "linux")]
fn set_timer_slack(ns: libc::c_ulong) {
    // SAFETY: sets a number of this thread.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) }, 0);
}

#[cfg(not(target_os = "linux"))]
fn set_timer_slack(_: u32) {}
