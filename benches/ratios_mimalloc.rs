//! The table of ratios, with mimalloc for every arm. See benches/README.md.

mod common;
#[path = "common/ratios.rs"]
mod ratios;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    ratios::main();
}
