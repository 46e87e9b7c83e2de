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

mod busy;
pub mod channels;
pub mod io;
pub mod outside;
pub mod pairs;
pub mod remote;
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

/// `workload!(name, kind module::body)`. What may follow: the divisor of rounds; `on` and the number of
/// workers; `beside` and one more arm. A `plain` body is one round; a `prepared` one takes the runtime
/// and gives the runner; a `bare` one makes its runtimes itself.
macro_rules! workload {
    (
        $name:literal, $kind:ident $module:ident::$body:ident $(::<$($n:literal),+>)?
        $(, $divisor:literal)? $(, on $workers:literal)? $(, beside $arm:expr)?
    ) => {
        Workload {
            name: $name,
            rounds_divisor: [$($divisor,)? 1][0],
            arms: &[
                workload!(Paceline, $kind $module::$body $(::<$($n),+>)? $(, on $workers)?),
                workload!(Tokio, $kind $module::$body $(::<$($n),+>)? $(, on $workers)?),
                workload!(Smol, $kind $module::$body $(::<$($n),+>)? $(, on $workers)?),
                workload!(SlotOff, $kind $module::$body $(::<$($n),+>)? $(, on $workers)?),
                $($arm)?
            ],
        }
    };
    (
        $arm:ident, $kind:ident $module:ident::$body:ident $(::<$($n:literal),+>)?
        $(, on $workers:literal)?
    ) => {
        ($arm::NAME, || {
            $kind($module::$body::<$arm $(, $($n),+)?>, [$($workers,)? workers()][0])
        })
    };
}

pub fn plain<A: Arm>(round: fn(&A) -> Sample, workers: usize) -> Runner {
    let runtime = A::new(workers);
    let parks = runtime.parks();
    Box::new(move || counting(parks.as_deref(), || round(&runtime)))
}

pub fn prepared<A: Arm>(set_up: fn(A) -> Runner, workers: usize) -> Runner {
    let runtime = A::new(workers);
    let parks = runtime.parks();
    let mut round = set_up(runtime);
    Box::new(move || counting(parks.as_deref(), &mut round))
}

pub fn bare(round: fn() -> Sample, _workers: usize) -> Runner {
    Box::new(round)
}

/// The round, and how often workers went to sleep in it.
fn counting(parks: Option<&dyn Fn() -> u64>, round: impl FnOnce() -> Sample) -> Sample {
    let before = parks.map(|parks| parks());
    let sample = round();
    Sample { parks: parks.zip(before).map(|(parks, before)| parks() - before), ..sample }
}

pub const WORKLOADS: &[Workload] = &[
    workload!("spawn_many", plain tasks::spawn_many),
    workload!("spawn_inside", plain tasks::spawn_inside),
    workload!("spawn_remote_1", plain remote::spawn_remote::<1>),
    workload!("spawn_remote_2", plain remote::spawn_remote::<2>),
    workload!("spawn_remote_4", plain remote::spawn_remote::<4>),
    workload!("spawn_remote_8", plain remote::spawn_remote::<8>),
    workload!("spawn_remote_busy", plain busy::spawn_remote_busy, 4),
    workload!("spawn_remote_chains", plain busy::spawn_remote_chains, 4),
    workload!("chained_spawn", plain tasks::chained_spawn),
    workload!("spawn_await", plain tasks::spawn_await),
    workload!("spawn_await_main", plain tasks::spawn_await_main),
    workload!("spawn_recursive", plain tasks::spawn_recursive),
    workload!("spawn_storm_busy", plain busy::spawn_storm_busy),
    workload!("yield_200", plain tasks::yield_200),
    workload!("yield_1", plain tasks::yield_1),
    workload!("ping_pong", plain tasks::ping_pong),
    workload!("pair", plain pairs::pairs::<1>),
    workload!("pairs_2", plain pairs::pairs::<2>),
    workload!("pairs_8", plain pairs::pairs::<8>),
    workload!("pair_beside_yielders", plain pairs::pair_beside_yielders, 3),
    workload!("main_round_trip", plain pairs::main_round_trip),
    workload!("remote_round_trip", plain pairs::remote_round_trip,
        beside ("raw", || bare(pairs::raw_round_trip, 0))),
    workload!("request_reply_1", prepared outside::request_reply::<1, 0>),
    workload!("request_reply_1_200us", prepared outside::request_reply::<1, 200>),
    workload!("request_reply_1_2ms", prepared outside::request_reply::<1, 2_000>),
    workload!("request_reply_4", prepared outside::request_reply::<4, 0>),
    workload!("request_reply_4_200us", prepared outside::request_reply::<4, 200>),
    workload!("request_reply_4_2ms", prepared outside::request_reply::<4, 2_000>),
    workload!("request_reply_32", prepared outside::request_reply::<32, 0>),
    workload!("request_reply_32_200us", prepared outside::request_reply::<32, 200>),
    workload!("request_reply_32_2ms", prepared outside::request_reply::<32, 2_000>),
    workload!("burst_1", plain remote::burst::<1>),
    workload!("burst_2", plain remote::burst::<2>),
    workload!("burst_4", plain remote::burst::<4>),
    workload!("burst_8", plain remote::burst::<8>),
    workload!("burst_16", plain remote::burst::<16>),
    workload!("burst_32", plain remote::burst::<32>),
    workload!("burst_64", plain remote::burst::<64>),
    workload!("burst_128", plain remote::burst::<128>),
    workload!("burst_256", plain remote::burst::<256>),
    workload!("lifecycle_1", bare tasks::lifecycle::<1>),
    workload!("lifecycle_2", bare tasks::lifecycle::<2>),
    workload!("lifecycle_8", bare tasks::lifecycle::<8>),
    workload!("lifecycle_with_work", bare tasks::lifecycle_with_work),
    workload!("idle", bare outside::idle, 4),
    workload!("fan_out_compute", plain tasks::fan_out_compute),
    workload!("catch_panics", plain tasks::catch_panics),
    workload!("channel_1_to_1", plain channels::many_to_one::<1>),
    workload!("channel_8_to_1", plain channels::many_to_one::<8>),
    workload!("channel_chains", plain channels::chains),
    workload!("pipeline", plain channels::pipeline),
    workload!("std_channel_in_block_on", plain channels::std_channel_in_block_on),
    workload!("many_timers", plain timers::many_timers, 2),
    workload!("timers_busy", plain timers::timers_busy, 2),
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
    workload!("spawn_inside_w8", plain tasks::spawn_inside, on 8),
    workload!("spawn_inside_w32", plain tasks::spawn_inside, on 32),
    workload!("spawn_remote_4_w8", plain remote::spawn_remote::<4>, on 8),
    workload!("spawn_remote_4_w32", plain remote::spawn_remote::<4>, on 32),
    workload!("yield_200_w8", plain tasks::yield_200, on 8),
    workload!("yield_200_w32", plain tasks::yield_200, on 32),
    workload!("ping_pong_w8", plain tasks::ping_pong, on 8),
    workload!("ping_pong_w32", plain tasks::ping_pong, on 32),
    workload!("pairs_8_w8", plain pairs::pairs::<8>, on 8),
    workload!("pairs_8_w32", plain pairs::pairs::<8>, on 32),
    workload!("echo_64_w8", prepared io::echo_tcp::<64>, on 8),
    workload!("echo_64_w32", prepared io::echo_tcp::<64>, on 32),
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
