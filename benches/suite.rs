//! Criterion over every workload and arm: histories, confidence intervals, `cargo bench -- NAME`.
//! The arms run one after the other here; for ratios see the interleaved `ratios`.
#![allow(missing_docs)] // the macros of criterion make public items

mod common;

use std::time::Duration;

use common::arms::{Arm, Paceline, SlotOff, Smol, Tokio};
use common::measure::Sample;
use common::workloads::{self, WORKERS};
use criterion::{Criterion, criterion_group, criterion_main};

/// One workload on one arm; the time is that of one operation.
fn arm<A: Arm>(criterion: &mut Criterion, workload: &str, body: fn(&A) -> Sample) {
    let runtime = A::new(WORKERS);
    let mut group = criterion.benchmark_group(workload);
    group.bench_function(A::NAME, |bencher| {
        bencher.iter_custom(|iterations| {
            // Criterion may ask for less than one run of the workload, which does many operations.
            let first = body(&runtime);
            let (mut done, mut elapsed) = (first.ops, first.elapsed);
            while done < iterations {
                let more = body(&runtime);
                (done, elapsed) = (done + more.ops, elapsed + more.elapsed);
            }
            elapsed.mul_f64(iterations as f64 / done as f64)
        });
    });
    group.finish();
}

macro_rules! on_every_arm {
    ($criterion:ident: $($name:literal $body:ident $(::<$workers:literal>)?),* $(,)?) => { $(
        arm::<Paceline>($criterion, $name, workloads::$body::<Paceline $(, $workers)?>);
        arm::<Tokio>($criterion, $name, workloads::$body::<Tokio $(, $workers)?>);
        arm::<Smol>($criterion, $name, workloads::$body::<Smol $(, $workers)?>);
        arm::<SlotOff>($criterion, $name, workloads::$body::<SlotOff $(, $workers)?>);
    )* };
}

fn suite(criterion: &mut Criterion) {
    workloads::expect_planned_panics();
    on_every_arm!(criterion:
        "spawn_many" spawn_many,
        "spawn_inside" spawn_inside,
        "chained_spawn" chained_spawn,
        "spawn_await" spawn_await,
        "spawn_await_main" spawn_await_main,
        "yield_200" yield_200,
        "yield_1" yield_1,
        "ping_pong" ping_pong,
        "pair" pair_alone,
        "pair_beside_yielders" pair_beside_yielders,
        "main_round_trip" main_round_trip,
        "remote_round_trip" remote_round_trip,
        "lifecycle_1" lifecycle::<1>,
        "lifecycle_2" lifecycle::<2>,
        "lifecycle_8" lifecycle::<8>,
        "lifecycle_with_work" lifecycle_with_work,
        "fan_out_compute" fan_out_compute,
        "catch_panics" catch_panics,
    );
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
