//! Every workload over every arm and with both allocators, as ratios to tokio: tables, files, a chart;
//! records and compares baselines, sweeps over knobs. See benches/README.md.

mod common;
#[path = "common/ratios/mod.rs"]
mod ratios;

#[global_allocator]
static ALLOCATOR: ratios::allocator::Switch = ratios::allocator::Switch::new();

fn main() -> std::process::ExitCode {
    ratios::main()
}
