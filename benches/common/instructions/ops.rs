//! The operations that are counted: rounds of the workloads, on as few threads as each can do with, and
//! with nothing left to the clock.

use std::time::{Duration, Instant};

use futures::poll;

use super::clock;
use crate::common::arms::{Arm, Paceline, Tokio};
use crate::common::measure::{Sample, measured};
use crate::common::net::Net;
use crate::common::settings::{self, Settings};
use crate::common::workloads::{
    Runner, Start, bare, channels, io, pairs, plain, prepared, tasks, timers,
};
use crate::executors::arms::{self, Local, Shared};
use crate::executors::{STEPS, TASKS, local, shared};

/// See [`settle`].
const WORKERS: usize = 1;

pub struct Op {
    pub name: &'static str,
    /// paceline's, and tokio's if it has the like.
    pub arms: &'static [Start],
    /// Why the gate lets it pass: its count is not the same every time.
    pub varies: Option<&'static str>,
}

macro_rules! op {
    ($name:literal, $kind:ident $($body:ident)::+ $(::<$n:literal>)? $(, varies: $why:literal)?) => {
        Op {
            name: $name,
            arms: &[
                (Paceline::NAME, || $kind($($body)::+::<Paceline $(, $n)?>, WORKERS)),
                (Tokio::NAME, || $kind($($body)::+::<Tokio $(, $n)?>, WORKERS)),
            ],
            varies: op!(@why $($why)?),
        }
    };
    (@why) => { None };
    (@why $why:literal) => { Some($why) };
}

macro_rules! local_op {
    ($name:literal, $body:ident, $ops:expr) => {
        Op {
            name: $name,
            arms: &[
                (Paceline::NAME, || in_local_task::<arms::PacelineLocal, _>($ops, local::$body)),
                (Tokio::NAME, || in_local_task::<arms::TokioLocal, _>($ops, local::$body)),
            ],
            varies: None,
        }
    };
}

macro_rules! executor_op {
    ($name:literal, $body:ident) => {
        Op {
            name: $name,
            arms: &[(Paceline::NAME, || in_run(shared::$body::<arms::Paceline>))],
            varies: None,
        }
    };
}

pub const OPS: &[Op] = &[
    op!("spawn", plain tasks::spawn_inside),
    op!("spawn_main", plain tasks::spawn_many),
    op!("spawn_outside", plain tasks::spawn_outside),
    op!("spawn_await", plain tasks::spawn_await),
    op!("spawn_await_main", plain tasks::spawn_await_main),
    op!("yield_1", plain tasks::yield_1),
    op!("yield_200", plain tasks::yield_200),
    op!("pair", plain pairs::pairs::<1>),
    op!("ping_pong", plain tasks::ping_pong),
    op!("channel", plain channels::many_to_one::<1>),
    op!("block_on_ready", plain tasks::block_on_ready),
    op!("main_round_trip", plain pairs::main_round_trip),
    op!(
        "remote_round_trip",
        plain pairs::remote_round_trip,
        varies: "whether the worker sleeps already when it is woken"
    ),
    op!("unblock", plain unblock, varies: "whether the other thread sleeps already when it is woken"),
    op!("timeout_ready", plain timers::timeout_ready),
    op!("timeout_pending_once", plain timers::timeout_pending_once),
    op!("arm_cancel", prepared timers::arm_cancel::<0>),
    op!("sleep_expired", plain timers::sleep_expired),
    op!("sleep_fires", plain sleeps_fire),
    op!("echo_tcp", prepared io::echo_tcp::<1>),
    #[cfg(unix)]
    op!("echo_unix", prepared io::echo_unix),
    op!("lifecycle", bare tasks::lifecycle::<1>, varies: "where the heap lies, by 7%"),
    local_op!("local_spawn_await", spawn_await, local::SPAWNS),
    local_op!("local_yield_1", yields_alone, local::LONE_YIELDS),
    local_op!("local_yield_300", yields, TASKS * STEPS),
    local_op!("local_pair", pair, local::MESSAGES),
    executor_op!("executor_spawn_await", spawn_one),
    executor_op!("executor_yield_300", yields),
];

/// Under valgrind only one thread runs at a time. So there is one worker, which does not look on for work
/// that another thread can only bring once it sleeps; and a ticker that is awake, as it is while there is
/// work, but has no tick.
pub fn settle() {
    const NEVER: Duration = Duration::from_secs(3_600);
    settings::set(Settings {
        workers: WORKERS,
        timeslice: None,
        spin: Some(paceline::Spin::Off),
        ticker: Some(paceline::Ticker::Every(NEVER)),
    });
}

fn in_local_task<L: Local, F: Future<Output = ()> + 'static>(
    ops: usize,
    body: fn(L) -> F,
) -> Runner {
    let executor = L::new();
    Box::new(move || local::inside(&executor, ops, body))
}

/// On the thread that runs the executor.
fn in_run<E: Shared>(body: fn(&shared::Stage<E>) -> Sample) -> Runner {
    let stage = shared::Stage::<E>::new(0);
    Box::new(move || body(&stage))
}

/// A runtime with threads for what blocks.
trait Blocks: Arm {
    /// Does nothing there.
    fn block() -> impl Future<Output = ()> + Send;
}

impl Blocks for Paceline {
    async fn block() {
        paceline::unblock(|| ()).await;
    }
}

impl Blocks for Tokio {
    async fn block() {
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

fn unblock<A: Blocks>(arm: &A) -> Sample {
    const TIMES: u64 = 2_000;
    measured(TIMES, || {
        arm.in_task(async {
            for _ in 0..TIMES {
                A::block().await;
            }
        });
    })
}

/// A task arms timers, and awaits each when all have fired.
fn sleeps_fire<A: Net>(arm: &A) -> Sample {
    const TIMERS: usize = 2_000;
    const AWAY: Duration = Duration::from_secs(1);
    measured(TIMERS as u64, || {
        arm.in_task(async {
            let deadline = Instant::now() + AWAY;
            let sleeps = (0..TIMERS).map(|_| Box::pin(A::sleep_until(deadline)));
            let mut sleeps: Vec<_> = sleeps.collect();
            for sleep in &mut sleeps {
                assert!(poll!(sleep.as_mut()).is_pending());
            }
            // A timer that counts milliseconds is late by up to one.
            clock::pass(AWAY + Duration::from_millis(2));
            for sleep in sleeps {
                sleep.await;
            }
        });
    })
}
