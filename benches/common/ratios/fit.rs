//! What a run of tasks costs: so much for the first, and so much for each.

use super::allocator::Allocator;
use super::goals;
use super::outcome::{Figure, Outcome};

/// A line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub fixed: f64,
    pub marginal: f64,
    /// How much of the variance of the points is on the line, 1 for all.
    pub r_squared: f64,
}

/// None of fewer than three points, or if all are above one another.
pub fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |product: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| product(x - mean_x, y - mean_y)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if points.len() < 3 || xx == 0.0 {
        return None;
    }
    let marginal = xy / xx;
    let fixed = mean_y - marginal * mean_x;
    let r_squared = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
    Some(Line { fixed, marginal, r_squared })
}

/// A row of the table: the cost of a run in ns.
pub struct Fit {
    pub allocator: Allocator,
    pub arm: String,
    pub line: Line,
}

/// How many tasks a run has, if the workload is one of these: `burst_64` has 64.
fn tasks(workload: &str) -> Option<f64> {
    workload.strip_prefix("burst_")?.parse::<u32>().ok().map(f64::from)
}

/// For each allocator and arm with enough of such workloads.
pub fn fits(outcomes: &[Outcome]) -> Vec<Fit> {
    let bursts: Vec<_> = outcomes.iter().filter(|one| tasks(&one.workload).is_some()).collect();
    let mut fits = Vec::new();
    for allocator in Allocator::ALL {
        let own = || bursts.iter().filter(move |one| one.allocator == allocator);
        for arm in own().next().iter().flat_map(|one| one.arms()) {
            let points = own().filter_map(|one| {
                let (tasks, time) = (tasks(&one.workload)?, one.of(arm, Figure::Time).median);
                time.is_finite().then_some((tasks, time * tasks))
            });
            if let Some(line) = least_squares(&points.collect::<Vec<_>>()) {
                fits.push(Fit { allocator, arm: arm.into(), line });
            }
        }
    }
    fits
}

/// Lines are found again, and bursts are known by their names.
pub fn check() {
    let on_line: Vec<_> = [1.0, 4.0, 64.0, 256.0].map(|x| (x, 3_000.0 + 50.0 * x)).into();
    let line = least_squares(&on_line).expect("there are enough points");
    assert!((line.fixed - 3_000.0).abs() < 1e-6 && (line.marginal - 50.0).abs() < 1e-9);
    assert!((line.r_squared - 1.0).abs() < 1e-9, "{line:?}");
    let off_line = least_squares(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]).expect("three points");
    assert!((off_line.marginal - 0.5).abs() < 1e-9 && (off_line.r_squared - 0.25).abs() < 1e-9);
    assert_eq!(least_squares(&on_line[..2]), None);
    assert_eq!(least_squares(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    let burst = |tasks: f64| {
        let time = 3_000.0 / tasks + 50.0;
        Outcome::made_up(&format!("burst_{tasks}"), &[("paceline", &[time])])
    };
    let found = fits(&[burst(1.0), burst(16.0), burst(256.0)]);
    assert_eq!(found.len(), 1);
    assert!((found[0].line.fixed - 3_000.0).abs() < 1e-6);
    assert_eq!(tasks("bursts_16_1ms"), None);
    assert_eq!(goals::judged_by("burst_1"), Figure::Time);
}
