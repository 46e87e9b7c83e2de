//! Criterion over every workload and arm: histories, confidence intervals, `cargo bench -- NAME`.
//! The arms run one after the other here; for ratios see the interleaved `ratios`.
#![allow(missing_docs)] // the macros of criterion make public items

mod common;

use std::time::Duration;

use common::workloads::{self, Runner, WORKLOADS};
use criterion::{Criterion, criterion_group, criterion_main};

/// One workload on one arm; the time is that of one operation.
fn bench(criterion: &mut Criterion, workload: &str, arm: &str, start: fn() -> Runner) {
    let mut group = criterion.benchmark_group(workload);
    // Made when it is asked for: not if the workload is filtered out.
    let mut runner = None;
    group.bench_function(arm, |bencher| {
        let round = runner.get_or_insert_with(start);
        bencher.iter_custom(|iterations| {
            // Criterion may ask for less than one round, which does many operations.
            let first = round();
            let (mut done, mut elapsed) = (first.ops, first.elapsed);
            while done < iterations {
                let more = round();
                (done, elapsed) = (done + more.ops, elapsed + more.elapsed);
            }
            elapsed.mul_f64(iterations as f64 / done as f64)
        });
    });
    group.finish();
}

fn suite(criterion: &mut Criterion) {
    workloads::expect_planned_panics();
    for workload in WORKLOADS {
        for (arm, start) in workload.arms {
            bench(criterion, workload.name, arm, *start);
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = suite
}
criterion_main!(benches);
