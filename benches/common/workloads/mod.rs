//! One body per workload, generic over the runtime, and the list of them. See benches/README.md for
//! what each is for.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::channel::oneshot;

use super::arms::{Arm, Paceline, SlotOff, Smol, Tokio};
use super::measure::Sample;
use super::settings;

pub mod channels;
pub mod io;
pub mod outside;
pub mod tasks;
pub mod timers;

/// Workers of every runtime, unless the workload says otherwise.
pub fn workers() -> usize {
    settings::get().workers
}

/// A workload on a runtime of its own, set up: a call is one round.
pub type Runner = Box<dyn FnMut() -> Sample>;

/// A runtime's name, and what makes one and sets a workload up on it.
pub type Start = (&'static str, fn() -> Runner);

pub struct Workload {
    pub name: &'static str,
    /// Of long workloads there are fewer rounds.
    pub rounds_divisor: usize,
    pub arms: &'static [Start],
}

/// `workload!(name, kind module::body)`, or with the divisor of rounds as a third argument. A
/// `plain` body is one round; a `prepared` one takes the runtime and gives the runner.
macro_rules! workload {
    ($name:literal, $kind:ident $module:ident::$body:ident $(::<$n:literal>)?) => {
        workload!($name, $kind $module::$body $(::<$n>)?, 1)
    };
    ($name:literal, $kind:ident $module:ident::$body:ident $(::<$n:literal>)?, $divisor:literal) => {
        Workload {
            name: $name,
            rounds_divisor: $divisor,
            arms: &[
                (Paceline::NAME, || $kind($module::$body::<Paceline $(, $n)?>)),
                (Tokio::NAME, || $kind($module::$body::<Tokio $(, $n)?>)),
                (Smol::NAME, || $kind($module::$body::<Smol $(, $n)?>)),
                (SlotOff::NAME, || $kind($module::$body::<SlotOff $(, $n)?>)),
            ],
        }
    };
}

pub fn plain<A: Arm>(round: fn(&A) -> Sample) -> Runner {
    let runtime = A::new(workers());
    Box::new(move || round(&runtime))
}

pub fn prepared<A: Arm>(set_up: fn(A) -> Runner) -> Runner {
    set_up(A::new(workers()))
}

pub const WORKLOADS: &[Workload] = &[
    workload!("spawn_many", plain tasks::spawn_many),
    workload!("spawn_inside", plain tasks::spawn_inside),
    workload!("chained_spawn", plain tasks::chained_spawn),
    workload!("spawn_await", plain tasks::spawn_await),
    workload!("spawn_await_main", plain tasks::spawn_await_main),
    workload!("yield_200", plain tasks::yield_200),
    workload!("yield_1", plain tasks::yield_1),
    workload!("ping_pong", plain tasks::ping_pong),
    workload!("pair", plain tasks::pair_alone),
    workload!("pair_beside_yielders", plain tasks::pair_beside_yielders, 3),
    workload!("main_round_trip", plain tasks::main_round_trip),
    workload!("remote_round_trip", plain tasks::remote_round_trip),
    workload!("lifecycle_1", plain tasks::lifecycle::<1>),
    workload!("lifecycle_2", plain tasks::lifecycle::<2>),
    workload!("lifecycle_8", plain tasks::lifecycle::<8>),
    workload!("lifecycle_with_work", plain tasks::lifecycle_with_work),
    workload!("fan_out_compute", plain tasks::fan_out_compute),
    workload!("catch_panics", plain tasks::catch_panics),
    workload!("channel_1_to_1", plain channels::many_to_one::<1>),
    workload!("channel_8_to_1", plain channels::many_to_one::<8>),
    workload!("channel_chains", plain channels::chains),
    workload!("pipeline", plain channels::pipeline),
    workload!("many_timers", plain timers::many_timers, 2),
    workload!("timeout_ready", plain timers::timeout_ready),
    workload!("timeout_pending_once", plain timers::timeout_pending_once),
    workload!("arm_cancel_0", prepared timers::arm_cancel::<0>),
    workload!("arm_cancel_100k", prepared timers::arm_cancel::<100_000>),
    workload!("arm_cancel_1m", prepared timers::arm_cancel::<1_000_000>),
    workload!("drop_1m", plain timers::drop_1m, 4),
    workload!("echo_1", prepared io::echo_tcp::<1>),
    workload!("echo_64", prepared io::echo_tcp::<64>),
    workload!("echo_1000", prepared io::echo_tcp::<1_000>, 2),
    workload!("echo_udp", prepared io::echo_udp),
    #[cfg(unix)]
    workload!("echo_unix", prepared io::echo_unix),
    workload!("mixed", prepared io::mixed, 2),
];

/// Silences the panics of `catch_panics`, and no others.
pub fn expect_planned_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"as planned") {
            eprintln!("{panic}");
        }
    }));
}

/// Tells the waiter when the last of `count` has gone.
#[derive(Clone)]
struct Countdown(Arc<(AtomicUsize, Mutex<Option<oneshot::Sender<()>>>)>);

fn countdown(count: usize) -> (Countdown, oneshot::Receiver<()>) {
    let (sender, receiver) = oneshot::channel();
    (Countdown(Arc::new((AtomicUsize::new(count), Mutex::new(Some(sender))))), receiver)
}

impl Countdown {
    fn one_less(&self) {
        if self.0.0.fetch_sub(1, AcqRel) == 1 {
            let _ = self.0.1.lock().unwrap().take().unwrap().send(());
        }
    }
}

/// Yields without any runtime's help.
fn yield_now() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// How many primes there are in the range: work for a processor.
fn primes(range: std::ops::Range<u64>) -> u64 {
    let is_prime = |n: &u64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0);
    range.filter(is_prime).count() as u64
}
