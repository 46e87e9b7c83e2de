//! What was measured of a workload with one allocator, and what that comes to.

use std::time::Duration;

use super::allocator::Allocator;
use super::goals;
use crate::common::arms::{Arm, Paceline, SlotOff, Smol, Tokio};
use crate::common::measure::{Quartiles, Sample};

pub const PACELINE: &str = Paceline::NAME;
pub const SLOT_OFF: &str = SlotOff::NAME;
pub const TOKIO: &str = Tokio::NAME;
/// Those that paceline is to beat.
pub const OTHERS: [&str; 2] = [TOKIO, Smol::NAME];

/// What is known of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    Time,
    Cpu,
    Cores,
    Switches,
    Parks,
    P50,
    P99,
}

impl Figure {
    pub fn name(self) -> &'static str {
        match self {
            Figure::Time => "time",
            Figure::Cpu => "CPU",
            Figure::Cores => "cores",
            Figure::Switches => "switches",
            Figure::Parks => "parks",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
        }
    }
}

/// The figures of one round, by [`Figure`]: ns per operation, CPU time in ns per operation, CPUs kept
/// busy, context switches and parks per operation, quantiles of what is watched in ns. What there is not
/// is not a number.
#[derive(Clone, Copy, Debug)]
pub struct Round([f64; 7]);

impl Round {
    pub fn new(sample: &Sample) -> Self {
        Round([
            sample.ns_per_op(),
            sample.cpu_ns_per_op(),
            sample.cores(),
            sample.switches_per_op(),
            sample.parks_per_op(),
            sample.watched.map_or(f64::NAN, |watched| watched.p50),
            sample.watched.map_or(f64::NAN, |watched| watched.p99),
        ])
    }

    pub fn get(&self, figure: Figure) -> f64 {
        self.0[figure as usize]
    }
}

/// One arm's rounds, and how long its starts and stops took.
#[derive(Default)]
struct Measured {
    rounds: Vec<Round>,
    starts: Vec<f64>,
    stops: Vec<f64>,
}

pub struct Outcome {
    pub workload: String,
    pub allocator: Allocator,
    /// The name of what is watched; empty without.
    pub watched: String,
    arms: Vec<(String, Measured)>,
}

/// A line of what a process prints that measures.
pub enum Line<'a> {
    Start(&'a str, Duration),
    Round(&'a str, Round),
    Stop(&'a str, Duration),
    Watched(&'a str),
}

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Line::Start(arm, time) => write!(f, "start\t{arm}\t{}", time.as_nanos()),
            Line::Stop(arm, time) => write!(f, "stop\t{arm}\t{}", time.as_nanos()),
            Line::Watched(name) => write!(f, "watched\t{name}"),
            Line::Round(arm, round) => {
                let figures = round.0.map(|figure| figure.to_string()).join("\t");
                write!(f, "round\t{arm}\t{figures}")
            }
        }
    }
}

impl<'a> Line<'a> {
    pub fn parsed(line: &'a str) -> Option<Self> {
        let (kind, rest) = line.split_once('\t')?;
        if kind == "watched" {
            return Some(Line::Watched(rest));
        }
        let (arm, figures) = rest.split_once('\t')?;
        let time = || figures.parse().ok().map(Duration::from_nanos);
        match kind {
            "start" => Some(Line::Start(arm, time()?)),
            "stop" => Some(Line::Stop(arm, time()?)),
            "round" => {
                let figures: Result<Vec<f64>, _> = figures.split('\t').map(str::parse).collect();
                Some(Line::Round(arm, Round(figures.ok()?.try_into().ok()?)))
            }
            _ => None,
        }
    }
}

impl Outcome {
    pub fn new(workload: &str, allocator: Allocator) -> Self {
        let (watched, arms) = (String::new(), Vec::new());
        Outcome { workload: workload.into(), allocator, watched, arms }
    }

    pub fn add(&mut self, line: Line) {
        match line {
            Line::Watched(name) => self.watched = name.into(),
            Line::Round(arm, round) => self.arm(arm).rounds.push(round),
            Line::Start(arm, time) => self.arm(arm).starts.push(time.as_nanos() as f64),
            Line::Stop(arm, time) => self.arm(arm).stops.push(time.as_nanos() as f64),
        }
    }

    fn arm(&mut self, name: &str) -> &mut Measured {
        let known = self.arms.iter().position(|arm| arm.0 == name);
        let index = known.unwrap_or_else(|| {
            self.arms.push((name.into(), Measured::default()));
            self.arms.len() - 1
        });
        &mut self.arms[index].1
    }

    fn measured(&self, arm: &str) -> Option<&Measured> {
        self.arms.iter().find(|known| known.0 == arm).map(|known| &known.1)
    }

    pub fn arms(&self) -> impl Iterator<Item = &str> {
        self.arms.iter().map(|arm| &*arm.0)
    }

    /// The arm that the tables are about.
    pub fn subject(&self) -> &str {
        let preferred = [PACELINE, SLOT_OFF].into_iter().find(|arm| self.measured(arm).is_some());
        preferred.or(self.arms().next()).unwrap_or(PACELINE)
    }

    pub fn rounds(&self, arm: &str) -> &[Round] {
        self.measured(arm).map_or(&[], |measured| &measured.rounds)
    }

    /// Of nothing if that arm was not measured or has no such figure.
    pub fn of(&self, arm: &str, figure: Figure) -> Quartiles {
        Quartiles::of(self.rounds(arm).iter().map(|round| round.get(figure)))
    }

    /// Of the ratios within the same round, in which the machine was the same.
    pub fn ratio(&self, arm: &str, to: &str, figure: Figure) -> Quartiles {
        let pairs = self.rounds(arm).iter().zip(self.rounds(to));
        Quartiles::of(pairs.map(|(one, other)| one.get(figure) / other.get(figure)))
    }

    /// That of the others which does best, if any was measured.
    pub fn best_other(&self, figure: Figure) -> Option<&'static str> {
        let cost = |arm: &&str| self.of(arm, figure).median;
        let known =
            OTHERS.into_iter().filter(|arm| *arm != self.subject() && cost(arm).is_finite());
        known.min_by(|one, other| cost(one).total_cmp(&cost(other)))
    }

    /// The figure by which the workload is judged, of the subject relative to tokio.
    pub fn judged(&self) -> Quartiles {
        self.ratio(self.subject(), TOKIO, goals::judged_by(&self.workload))
    }

    /// How long it takes to make the runtime and set the workload up, in ns; the median.
    pub fn start(&self, arm: &str) -> f64 {
        self.measured(arm).map_or(f64::NAN, |arm| Quartiles::of(arm.starts.iter().copied()).median)
    }

    /// How long it takes to end both.
    pub fn stop(&self, arm: &str) -> f64 {
        self.measured(arm).map_or(f64::NAN, |arm| Quartiles::of(arm.stops.iter().copied()).median)
    }

    /// The workload's name, with what it is judged by if that is not the time.
    pub fn title(&self) -> String {
        match goals::judged_by(&self.workload) {
            Figure::Time => self.workload.clone(),
            other => format!("{} ({})", self.workload, other.name()),
        }
    }
}

/// The workloads by the worse of their ratios; the allocators of one stay together.
pub fn sort_worst_first(outcomes: &mut [Outcome]) {
    let ratios: Vec<_> =
        outcomes.iter().map(|one| (one.workload.clone(), one.judged().median)).collect();
    let worst = |workload: &str| {
        let own = ratios.iter().filter(|one| one.0 == workload && one.1.is_finite());
        own.map(|one| one.1).fold(f64::NEG_INFINITY, f64::max)
    };
    outcomes.sort_by(|one, other| worst(&other.workload).total_cmp(&worst(&one.workload)));
}

/// Lines mean what they meant when they were printed, and ratios are those within rounds.
pub fn check() {
    let mut outcome = Outcome::made_up("pair", &[(PACELINE, &[1.0, 4.0, 3.0])]);
    outcome.merge(Outcome::made_up("pair", &[(TOKIO, &[2.0, 4.0, 30.0])]));
    assert_eq!(outcome.of(PACELINE, Figure::Time).median, 3.0);
    assert_eq!(outcome.judged().median, 0.5);
    assert_eq!(outcome.best_other(Figure::Time), Some(TOKIO));
    assert!(outcome.of(PACELINE, Figure::P50).median.is_nan());
    assert_eq!(outcome.start(PACELINE), 5_000.0);
    assert!(Line::parsed("round\tpaceline\t1").is_none());
    let worse = Outcome::made_up("yield_1", &[(PACELINE, &[9.0]), (TOKIO, &[1.0])]);
    let mut both = [outcome, worse];
    sort_worst_first(&mut both);
    assert_eq!(both[0].workload, "yield_1");
}

impl Outcome {
    /// One whose rounds took so long per operation.
    pub fn made_up(workload: &str, arms: &[(&str, &[f64])]) -> Self {
        let mut outcome = Outcome::new(workload, Allocator::System);
        for (arm, times) in arms {
            let five_us = Duration::from_micros(5);
            let rounds = times.iter().map(|time| {
                let unknown = f64::NAN;
                Line::Round(arm, Round([*time, *time, 1.0, 0.0, unknown, unknown, unknown]))
            });
            let ends = [Line::Start(arm, five_us), Line::Stop(arm, five_us)];
            for line in rounds.chain(ends).map(|line| line.to_string()) {
                outcome.add(Line::parsed(&line).unwrap_or_else(|| panic!("{line:?}")));
            }
        }
        outcome
    }

    fn merge(&mut self, other: Outcome) {
        self.arms.extend(other.arms);
    }
}
