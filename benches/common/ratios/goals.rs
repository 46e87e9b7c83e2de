//! What each workload is to reach: ratios to tokio's figures in the same rounds.

use super::allocator::Allocator;
use super::outcome::{Figure, Outcome, TOKIO};

/// At most this ratio, with the system's allocator and with mimalloc.
#[derive(Clone, Copy)]
pub struct Goal(pub Figure, [f64; 2]);

const fn time(most: f64) -> [Goal; 1] {
    [Goal(Figure::Time, [most; 2])]
}

const fn times(system: f64, mimalloc: f64) -> [Goal; 1] {
    [Goal(Figure::Time, [system, mimalloc])]
}

/// For what is not named: nowhere slower than tokio.
const OTHERWISE: &[Goal] = &time(1.0);

const REPLIES: &[Goal] = &[Goal(Figure::P50, [1.0; 2]), Goal(Figure::Cpu, [1.0; 2])];

/// By name, in which `*` stands for anything; the first that fits. The first goal of each has
/// the figure that the workload is judged by.
const GOALS: &[(&str, &[Goal])] = &[
    ("spawn_many", &times(0.20, 0.45)),
    ("spawn_inside", &times(0.15, 0.30)),
    ("spawn_remote_1", &time(0.50)),
    ("spawn_remote_2", &time(0.50)),
    ("spawn_remote_4", &time(0.50)),
    ("spawn_remote_8", &time(0.50)),
    ("chained_spawn", &times(0.15, 0.30)),
    ("spawn_await", &times(0.15, 0.28)),
    ("spawn_await_main", &time(0.004)),
    ("yield_200", &time(0.45)),
    ("yield_1", &time(0.40)),
    ("ping_pong", &times(0.25, 0.40)),
    ("pair", &time(0.40)),
    ("pair_beside_yielders", &[Goal(Figure::Time, [0.10; 2]), Goal(Figure::P99, [1.5; 2])]),
    ("main_round_trip", &time(0.004)),
    ("remote_round_trip", &[Goal(Figure::Time, [0.15; 2]), Goal(Figure::Cpu, [1.0; 2])]),
    // With a gap, their time says how many clients there are.
    ("request_reply_*us", REPLIES),
    ("request_reply_*ms", REPLIES),
    ("lifecycle_with_work", &time(0.7)),
    ("lifecycle_*", &time(0.05)),
    // Its time is given.
    ("idle", &[Goal(Figure::Cpu, [1.0; 2])]),
    // Its time is the longest of the sleeps.
    ("many_timers", &[Goal(Figure::Cpu, [0.5; 2]), Goal(Figure::P50, [0.05; 2])]),
    ("timeout_ready", &time(0.5)),
    ("arm_cancel_1m", &time(0.5)),
    ("echo_1", &time(0.90)),
    ("echo_64", &time(0.90)),
    ("echo_1000", &time(0.90)),
];

/// The first is the one that the workload is judged by.
pub fn of(workload: &str) -> &'static [Goal] {
    let fits = |name: &str| match name.split_once('*') {
        Some((begin, end)) => workload.starts_with(begin) && workload.ends_with(end),
        None => workload == name,
    };
    GOALS.iter().find(|(name, _)| fits(name)).map_or(OTHERWISE, |(_, goals)| goals)
}

pub fn judged_by(workload: &str) -> Figure {
    of(workload)[0].0
}

impl Goal {
    pub fn most(&self, allocator: Allocator) -> f64 {
        self.1[usize::from(allocator == Allocator::Mimalloc)]
    }

    /// None if it cannot be told from what was measured.
    pub fn is_met(&self, outcome: &Outcome) -> Option<bool> {
        let ratio = outcome.ratio(outcome.subject(), TOKIO, self.0).median;
        ratio.is_finite().then(|| ratio <= self.most(outcome.allocator))
    }
}

/// Names are found, and a goal is met as it should be.
pub fn check() {
    let most = |workload: &str| of(workload)[0].most(Allocator::Mimalloc);
    assert_eq!(most("spawn_many"), 0.45);
    assert_eq!(most("lifecycle_8"), 0.05);
    assert_eq!(most("lifecycle_with_work"), 0.7);
    assert_eq!(judged_by("request_reply_4_2ms"), Figure::P50);
    assert_eq!(judged_by("request_reply_4"), Figure::Time);
    assert_eq!(most("spawn_many_more"), 1.0);
    assert_eq!(judged_by("many_timers"), Figure::Cpu);
    let is_met = |ratio: f64| {
        let outcome = Outcome::made_up("pair", &[("paceline", &[ratio]), (TOKIO, &[1.0])]);
        of("pair")[0].is_met(&outcome)
    };
    assert_eq!(is_met(0.39), Some(true));
    assert_eq!(is_met(0.41), Some(false));
    assert_eq!(is_met(f64::NAN), None);
}
