//! Every combination of knobs over some workloads: a file, and a short table.

use std::process::ExitCode;

use serde_json::json;

use super::allocator::Allocator;
use super::arguments::{Knobs, Plan};
use super::files::{self, Record};
use super::outcome::{Figure, Outcome, TOKIO};
use super::parent::{self, Launch};
use super::progress::Progress;
use super::table::{print_aligned, ratio, shown};

/// Those that the knobs tell on, where none were named.
const WORKLOADS: [&str; 6] =
    ["spawn_many", "yield_200", "pair", "pair_beside_yielders", "remote_round_trip", "echo_64"];

/// Where no knob was given.
const GRID: [(&str, &str); 4] = [
    ("workers", "1,2,8"),
    ("timeslice", "5us,10us,40us"),
    ("spin", "off,adaptive"),
    ("slot", "on,off"),
];

/// One combination, for one workload with one allocator.
struct Cell {
    knobs: Knobs,
    outcome: Outcome,
}

pub fn run(plan: &Plan) -> ExitCode {
    let grid = grid(&plan.knobs);
    let named = |name: &str| plan.is_named || WORKLOADS.contains(&name);
    let workloads: Vec<_> = plan.workloads.iter().filter(|one| named(one.name)).collect();
    let jobs = workloads.len() * plan.allocators.len() * grid.len();
    let profile = plan.profile.single().shared_by(jobs);
    let mut progress = Progress::new(jobs);
    let (mut cells, mut failures) = (Vec::new(), Vec::new());
    for workload in workloads {
        for allocator in &plan.allocators {
            for knobs in &grid {
                let mut arms = knobs.slot_arms();
                arms.push(TOKIO);
                let extent = profile.extent(workload);
                let launch = Launch { extent, arms, knobs, launches: 1 };
                let mut outcome = Outcome::new(workload.name, *allocator);
                failures.extend(launch.run(&mut outcome, &mut progress).err());
                cells.push(Cell { knobs: knobs.clone(), outcome });
            }
        }
        progress.tell(workload.name);
    }
    let records: Vec<_> = cells.iter().flat_map(Cell::records).collect();
    let file = files::directory(plan).join("sweep.csv");
    files::save(&file, &files::csv(&records));
    print(&cells);
    println!("\nAll figures: {}", file.display());
    parent::told(&failures)
}

/// All combinations; the slot's values share a process.
fn grid(given: &Knobs) -> Vec<Knobs> {
    let mut given = given.clone();
    if given.are_default() {
        let values = GRID.map(|(_, values)| values.split(',').map(str::to_owned).collect());
        let [workers, timeslice, spin, slot] = values;
        given = Knobs { workers, timeslice, spin, slot };
    }
    if given.slot.is_empty() {
        given.slot = vec!["on".into()];
    }
    // No value is the default.
    let one_by_one = |values: &[String]| -> Vec<Vec<String>> {
        let each = || values.iter().map(|value| vec![value.clone()]).collect();
        if values.is_empty() { vec![Vec::new()] } else { each() }
    };
    let mut grid = Vec::new();
    for workers in one_by_one(&given.workers) {
        for timeslice in one_by_one(&given.timeslice) {
            for spin in one_by_one(&given.spin) {
                let (workers, timeslice, slot) =
                    (workers.clone(), timeslice.clone(), given.slot.clone());
                grid.push(Knobs { workers, timeslice, spin, slot });
            }
        }
    }
    grid
}

fn value(values: &[String]) -> &str {
    values.first().map_or("default", |value| value)
}

impl Cell {
    /// One for each value of the slot.
    fn records(&self) -> Vec<Record> {
        let Cell { knobs, outcome } = self;
        let record = |(slot, arm): (&String, &str)| {
            let own = |figure| files::number(outcome.of(arm, figure).median);
            let mut record = vec![
                ("workload", json!(outcome.workload)),
                ("allocator", json!(outcome.allocator.name())),
                ("workers", json!(value(&knobs.workers))),
                ("timeslice", json!(value(&knobs.timeslice))),
                ("spin", json!(value(&knobs.spin))),
                ("slot", json!(slot)),
                ("rounds", json!(outcome.rounds(arm).len())),
            ];
            let time = outcome.of(arm, Figure::Time);
            let to_tokio = outcome.ratio(arm, TOKIO, Figure::Time);
            record.extend(files::quartiles(["ns_per_op", "ns_low", "ns_high"], time));
            record
                .extend(files::quartiles(["to_tokio", "to_tokio_low", "to_tokio_high"], to_tokio));
            record.extend([
                ("cpu_ns_per_op", own(Figure::Cpu)),
                ("cores", own(Figure::Cores)),
                ("switches_per_op", own(Figure::Switches)),
                ("p50_ns", own(Figure::P50)),
                ("p99_ns", own(Figure::P99)),
            ]);
            record
        };
        knobs.slot.iter().zip(knobs.slot_arms()).map(record).collect()
    }

    fn row(&self, slot: &str, arm: &str, best: f64) -> Vec<String> {
        let Cell { knobs, outcome } = self;
        let time = outcome.of(arm, Figure::Time);
        vec![
            outcome.workload.clone(),
            outcome.allocator.name().into(),
            value(&knobs.workers).into(),
            value(&knobs.timeslice).into(),
            value(&knobs.spin).into(),
            slot.into(),
            shown(time.median, 1),
            shown(time.spread_percent(), 0),
            shown(time.median / best, 2),
            ratio(outcome.ratio(arm, TOKIO, Figure::Time).median),
            shown(outcome.of(arm, Figure::P99).median / 1e3, 1),
        ]
    }
}

/// The combinations of a workload with one allocator, the fastest first.
fn print(cells: &[Cell]) {
    let mut rows = Vec::new();
    let key = |cell: &Cell| (cell.outcome.workload.clone(), cell.outcome.allocator);
    for group in cells.chunk_by(|one, other| key(one) == key(other)) {
        let all = group.iter().flat_map(|cell| {
            let arms = cell.knobs.slot.iter().zip(cell.knobs.slot_arms());
            arms.map(move |(slot, arm)| {
                (cell, slot, arm, cell.outcome.of(arm, Figure::Time).median)
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|one, other| one.3.total_cmp(&other.3));
        let best = all.first().map_or(f64::NAN, |best| best.3);
        rows.extend(all.iter().map(|(cell, slot, arm, _)| cell.row(slot, arm, best)));
    }
    let head = [
        "<workload",
        "<allocator",
        "workers",
        "timeslice",
        "spin",
        "slot",
        "ns/op",
        "spread, %",
        "to best",
        "to tokio",
        "p99, us",
    ];
    println!("\nTime per operation with each combination of knobs\n");
    print_aligned(&head, &rows);
}

/// A grid has every combination once.
pub fn check() {
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let given = Knobs { workers: list("1,2,8"), spin: list("off,adaptive"), ..Knobs::default() };
    let grid = grid(&given);
    assert_eq!(grid.len(), 6);
    assert!(grid.iter().all(|knobs| knobs.timeslice.is_empty() && knobs.slot == ["on"]));
    assert_eq!(grid[3].arguments(), ["--workers", "2", "--spin", "adaptive"]);
    assert_eq!(self::grid(&Knobs::default()).len(), 18);
    assert_eq!(Allocator::ALL.len(), 2);
}
