//! What the adaptive spin is held to, and which rows fall short of it.

use super::conditions::{CONDITIONS, Condition};
use super::rounds::{Figure, Outcome};
use super::rows::{ADAPTIVE, FIXED, IDLE, ROUND_TRIP, TOKIO};
use super::table::Outcomes;
use crate::common::measure::Quartiles;

/// It does as much as the best fixed spin, within this.
const LEAST_TO_BEST: f64 = 0.95;
/// On one CPU it is off, so that it differs from that by noise alone.
const MOST_OFF_ON_ONE_CPU: f64 = 0.02;
/// It costs no CPU time while idle, within this and what one more wake-up or so comes to.
const MOST_IDLE_TO_OFF: f64 = 1.1;
const IDLE_NOISE_MS_PER_S: f64 = 0.1;

/// A line for everything in which the row falls short.
pub fn of_row(condition: &Condition, row: &str, outcomes: &Outcomes) -> Vec<String> {
    let mut lines = Vec::new();
    let mut falls_short = |what: String| lines.push(format!("{} {row}: {what}", condition.name));
    if row == IDLE {
        let cpu = |arm| outcomes.of(row, arm, Figure::CpuMsPerS).median;
        let (adaptive, off) = (cpu(ADAPTIVE), cpu("off"));
        if adaptive > off * MOST_IDLE_TO_OFF + IDLE_NOISE_MS_PER_S {
            falls_short(format!("{adaptive:.2} ms of CPU time per s, with spin off {off:.2}"));
        }
    } else if condition.has_one_cpu() {
        let to_off = outcomes.ratio(row, ADAPTIVE, "off", Figure::OpsPerS);
        if (to_off.median - 1.0).abs() > MOST_OFF_ON_ONE_CPU {
            falls_short(format!("does {} of what it does with spin off", with_quartiles(to_off)));
        }
    } else if let Some(best) = outcomes.best_fixed(row) {
        let to_best = outcomes.ratio(row, ADAPTIVE, best, Figure::OpsPerS);
        if to_best.median < LEAST_TO_BEST {
            falls_short(format!("does {} of what {best} does", with_quartiles(to_best)));
        }
    }
    if row == ROUND_TRIP {
        let to_tokio = outcomes.ratio(row, ADAPTIVE, TOKIO, Figure::CpuUsPerOp);
        if to_tokio.median > 1.0 {
            falls_short(format!("CPU per op is {} of tokio's", with_quartiles(to_tokio)));
        }
    }
    lines
}

fn with_quartiles(Quartiles { low, median, high }: Quartiles) -> String {
    format!("{median:.3} ({low:.3} to {high:.3})")
}

/// Made-up figures are judged as they should be.
pub fn check() {
    let judged = |condition: &Condition, row: &str, figures: &[(&str, f64, f64)]| {
        let mut outcomes = Outcomes::default();
        for (arm, ops_per_s, cpu) in figures {
            outcomes.add(row, arm, Outcome::made_up(*ops_per_s, *cpu));
        }
        of_row(condition, row, &outcomes).len()
    };
    let [two, one, _] = &CONDITIONS;
    let against_fixed = |adaptive| {
        let mut figures = FIXED.map(|arm| (arm, 80.0, 1.0)).to_vec();
        figures[1].1 = 100.0;
        figures.push((ADAPTIVE, adaptive, 1.0));
        figures
    };
    assert_eq!(judged(two, "pair", &against_fixed(94.0)), 1);
    assert_eq!(judged(two, "pair", &against_fixed(96.0)), 0);
    assert_eq!(judged(one, "pair", &[("off", 100.0, 1.0), (ADAPTIVE, 103.0, 1.0)]), 1);
    assert_eq!(judged(one, "pair", &[("off", 100.0, 1.0), (ADAPTIVE, 99.0, 1.0)]), 0);
    assert_eq!(judged(two, IDLE, &[("off", 1.0, 1.0), (ADAPTIVE, 1.0, 1.3)]), 1);
    assert_eq!(judged(two, IDLE, &[("off", 1.0, 1.0), (ADAPTIVE, 1.0, 1.15)]), 0);
    assert_eq!(judged(two, ROUND_TRIP, &[(TOKIO, 1.0, 1.0), (ADAPTIVE, 1.0, 1.1)]), 1);
    assert_eq!(judged(two, ROUND_TRIP, &[(TOKIO, 1.0, 1.0), (ADAPTIVE, 1.0, 0.9)]), 0);
}
