//! Seeded storms of spawns, wakes, cancels, panics and drops, of timers and sockets, and of what blocks,
//! from workers and foreign threads. At the end of each, every future that was made has been dropped, and
//! every timer and socket with it.
//!
//! `PACELINE_STRESS_SEED` runs one seed, `PACELINE_STRESS_SEEDS` so many.

#![allow(clippy::disallowed_methods)] // foreign threads are plain ones here

mod common;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, until, watched};
use parking_lot::Mutex;

use paceline::time::{sleep, timeout};
use paceline::{
    Builder, Handle, Task, Ticker, Timer, block_in_place, unblock, yield_if_due, yield_now,
};
use sockets::Shelf;

const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 200 };

/// What the storm's tasks and threads share.
struct Storm {
    /// Where tasks wait to be woken by anybody.
    places: Vec<Mutex<Option<Waker>>>,
    /// Futures that may still be made.
    budget: AtomicI64,
    made: AtomicU64,
    dropped: AtomicU64,
    over: AtomicBool,
    shelf: Shelf,
}

struct Made(Arc<Storm>);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
        // A destructor that wakes.
        self.0.wake(self.0.dropped.load(SeqCst));
    }
}

impl Storm {
    fn wake(&self, place: u64) {
        let waker = self.places[place as usize % self.places.len()].lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until somebody wakes this place; who waited there before is woken.
    async fn wait(&self, place: u64) {
        let mut waiting = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waiting, true) || self.over.load(SeqCst) {
                return Poll::Ready(());
            }
            let place = &self.places[place as usize % self.places.len()];
            let before = place.lock().replace(cx.waker().clone());
            before.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await;
    }
}

fn make(storm: &Arc<Storm>, handle: &Handle, random: &mut Random) -> Option<Task<()>> {
    if storm.budget.fetch_sub(1, SeqCst) <= 0 {
        return None;
    }
    storm.made.fetch_add(1, SeqCst);
    let made = Made(storm.clone());
    let (random, inner) = (random.fork(), handle.clone());
    Some(handle.spawn(live(made, inner, random)))
}

/// The life of one task.
fn live(
    made: Made,
    handle: Handle,
    mut random: Random,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let storm = made.0.clone();
        for _ in 0..random.below(12) {
            match random.below(18) {
                0 => yield_now().await,
                1 => yield_if_due().await,
                2 => storm.wait(random.below(64)).await,
                3 | 4 => storm.wake(random.below(64)),
                5..=10 => beget(&storm, &handle, &mut random).await,
                11 if random.below(8) == 0 => panic!("storm"),
                12 | 13 => let_time_pass(&storm, &mut random).await,
                14 | 15 => sockets::use_sockets(&storm, &mut random).await,
                16 if random.below(8) == 0 => block(&storm, &handle, &mut random).await,
                _ => {
                    if let Some(task) = make(&storm, &handle, &mut random) {
                        task.detach();
                    }
                }
            }
        }
    })
}

/// Makes another task, and does something with it.
async fn beget(storm: &Arc<Storm>, handle: &Handle, random: &mut Random) {
    let Some(task) = make(storm, handle, random) else { return };
    match random.below(5) {
        0 => drop(task),
        1 => drop(task.cancel().await),
        2 => drop(task.join().await),
        3 if random.below(16) == 0 => drop(handle.block_on(task.join())),
        4 => drop(timeout(random.moments(), task.join()).await),
        _ => task.detach(),
    }
}

async fn let_time_pass(storm: &Storm, random: &mut Random) {
    match random.below(4) {
        0 => sleep(random.moments()).await,
        1 => _ = timeout(random.moments(), storm.wait(random.below(64))).await,
        2 => {
            // Armed, set anew, and dropped.
            let mut timer = Timer::after(random.moments());
            let _ = futures::poll!(&mut timer);
            timer.set_after(random.moments());
            let _ = futures::poll!(&mut timer);
        }
        _ => {
            let mut timer = Timer::after(Duration::from_secs(60));
            let _ = futures::poll!(&mut timer);
            timer.set_after(random.moments());
            timer.await;
        }
    }
}

/// Keeps a thread, in one way or another.
async fn block(storm: &Arc<Storm>, handle: &Handle, random: &mut Random) {
    // About that after which a worker is made up for.
    let length = Duration::from_nanos(random.below(3_000_000));
    match random.below(6) {
        0 => thread::sleep(length),
        1 => common::compute_until(Instant::now() + length),
        2 => block_in_place(|| thread::sleep(length)),
        3 => block_in_place(|| {
            storm.wake(random.below(64));
            make(storm, handle, random).into_iter().for_each(Task::detach);
            handle.block_on(block_in_place(|| let_time_pass(storm, random)));
        }),
        4 => _ = timeout(random.moments(), unblock(move || thread::sleep(length))).await,
        _ => {
            let (made, place) = (storm.clone(), random.below(64));
            unblock(move || made.wake(place)).await;
        }
    }
}

/// Socket pairs, of which one end waits on the shelf for whoever takes it.
#[cfg(unix)]
mod sockets {
    use super::*;
    use futures::future::select;
    use paceline::Async;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::pin::pin;

    type Socket = Async<UnixStream>;

    pub struct Shelf {
        places: Vec<Mutex<Option<Socket>>>,
        /// Pairs that may still be made: open files are limited.
        budget: AtomicI64,
    }

    impl Shelf {
        pub fn new() -> Self {
            let places = (0..16).map(|_| Mutex::default()).collect();
            Shelf { places, budget: AtomicI64::new(300) }
        }

        fn swap(&self, place: u64, socket: Option<Socket>) -> Option<Socket> {
            std::mem::replace(&mut *self.places[place as usize % self.places.len()].lock(), socket)
        }

        /// Whoever waits for what lies there reads an end.
        pub fn clear(&self, place: u64) {
            drop(self.swap(place, None));
        }

        pub fn clear_all(&self) {
            (0..self.places.len() as u64).for_each(|place| self.clear(place));
        }

        fn pair(&self) -> Option<(Socket, Socket)> {
            if self.budget.fetch_sub(1, SeqCst) <= 0 {
                return None;
            }
            // Fails on a runtime that has stopped.
            let (a, b) = UnixStream::pair().ok()?;
            Some((Async::new(a).ok()?, Async::new(b).ok()?))
        }
    }

    /// Reads, writes, waits and closes at random. Errors are those of peers and runtimes that have
    /// gone.
    pub async fn use_sockets(storm: &Storm, random: &mut Random) {
        let (shelf, place) = (&storm.shelf, random.below(16));
        let mut socket = shelf.swap(place, None);
        if socket.is_none() {
            if let Some((mine, theirs)) = shelf.pair() {
                drop(shelf.swap(place, Some(theirs)));
                socket = Some(mine);
            }
        }
        let Some(socket) = socket else { return };
        for _ in 0..random.below(4) {
            let read = socket.read_with(|mut socket| socket.read(&mut [0; 4]));
            match random.below(6) {
                // The peer may read as well.
                0 => drop(select(pin!(read), pin!(storm.wait(random.below(64)))).await),
                1 => drop(timeout(random.moments(), read).await),
                2 => drop(futures::poll!(pin!(socket.readable()))),
                3 => drop(socket.writable().await),
                _ => drop(socket.write_with(|mut socket| socket.write(&[0; 3])).await),
            }
        }
        match random.below(3) {
            0 => drop(socket),
            1 => drop(socket.into_inner()),
            _ => drop(shelf.swap(random.below(16), Some(socket))),
        }
    }
}

#[cfg(not(unix))]
mod sockets {
    use super::{Random, Storm};

    pub struct Shelf;

    impl Shelf {
        pub fn new() -> Self {
            Shelf
        }

        pub fn clear(&self, _: u64) {}

        pub fn clear_all(&self) {}
    }

    pub async fn use_sockets(_: &Storm, _: &mut Random) {}
}

/// Wakes and spawns until the storm is over.
fn disturb(storm: &Arc<Storm>, handle: &Handle, mut random: Random) {
    while !storm.over.load(SeqCst) {
        match random.below(8) {
            0 => drop(make(storm, handle, &mut random)),
            1 => make(storm, handle, &mut random).into_iter().for_each(Task::detach),
            2 => storm.shelf.clear(random.below(16)),
            3 if random.below(64) == 0 => {
                let _guard = handle.enter();
                futures::executor::block_on(let_time_pass(storm, &mut random));
            }
            place => storm.wake(random.below(64) + place),
        }
    }
}

fn storm(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of similar seeds are similar.
    (0..4).for_each(|_| _ = random.below(2));
    let mut builder = Builder::new()
        .worker_threads([1, 2, 4, 16][random.below(4) as usize])
        .wake_slot(random.below(4) > 0)
        .wedge_after(Duration::from_micros(1_000 + random.below(2_000)));
    let wedges = Arc::new(AtomicU64::new(0));
    builder = match random.below(4) {
        0 => builder.ticker(Ticker::Off),
        1 => builder,
        _ => {
            let wedges = wedges.clone();
            builder
                .on_wedge(move |wedge| _ = wedges.fetch_add(u64::from(!wedge.is_over), SeqCst))
                .on_deadlock(|_| unreachable!("the main future never waits"))
        }
    };
    let runtime = builder.build().unwrap();
    let storm = Arc::new(Storm {
        places: (0..64).map(|_| Mutex::default()).collect(),
        budget: AtomicI64::new(3_000),
        made: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        over: AtomicBool::new(false),
        shelf: Shelf::new(),
    });
    let handle = runtime.handle().clone();
    // Half of the storms are let blow out, the others are cut short by the drop.
    let cut_short = random.below(2) == 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            let (random, storm, handle) = (random.fork(), &storm, runtime.handle().clone());
            scope.spawn(move || disturb(storm, &handle, random));
        }
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            while storm.budget.load(SeqCst) > if cut_short { 1_500 } else { 0 } {
                make(&storm, &handle, &mut random).into_iter().for_each(Task::detach);
                yield_now().await;
            }
            while !cut_short && handle.metrics().live_tasks > 0 {
                yield_now().await;
            }
        });
        drop(runtime);
        storm.over.store(true, SeqCst);
    });
    // Wakers that are left hold memory only.
    storm.places.iter().for_each(|place| drop(place.lock().take()));
    storm.shelf.clear_all();
    let (made, dropped) = (storm.made.load(SeqCst), storm.dropped.load(SeqCst));
    assert_eq!(made, dropped, "seed {seed}: futures made and dropped");
    // Jobs that have begun go on for a moment.
    until(|| Arc::strong_count(&storm) == 1);
    let metrics = handle.metrics();
    assert_eq!((metrics.timers, metrics.sources), (0, 0), "seed {seed}: timers and sockets");
    let reported = wedges.load(SeqCst);
    assert!([0, metrics.total().wedges].contains(&reported), "seed {seed}: {reported} wedges");
}

#[test]
fn storms_lose_no_future() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect(name));
    let seeds = match number("PACELINE_STRESS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PACELINE_STRESS_SEEDS").unwrap_or(SEEDS),
    };
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"storm") {
            eprintln!("{panic}");
        }
    }));
    for seed in seeds {
        watched(&format!("seed {seed}"), move || storm(seed));
    }
}
