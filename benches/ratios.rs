//! The table of ratios, with the system's allocator. See benches/README.md.

mod common;
#[path = "common/ratios.rs"]
mod ratios;

fn main() {
    ratios::main();
}
