//! Run queues beside each other, interleaved: a worker's own, with its thieves, and the injector, with
//! producers and consumers. paceline's are those of the runtime, included from its source. See
//! benches/README.md.
#![allow(clippy::disallowed_methods)] // threads that are nobody's workers, and that wait for no task

#[path = "common/choice.rs"]
mod choice;
#[path = "../src/injector.rs"]
#[allow(dead_code, unused_imports)] // a bench is compiled with `cfg(test)`
mod injector;
#[path = "common/measure.rs"]
#[allow(dead_code)]
mod measure;
#[path = "../src/queue.rs"]
#[allow(dead_code, unused_imports)]
mod queue;
#[path = "common/queues/mod.rs"]
mod queues;
#[path = "../src/sync.rs"]
#[allow(dead_code, unused_imports)]
mod sync;
#[path = "../src/word.rs"]
mod word;

use choice::Choice;
use queues::{injectors, locals, table};

fn main() {
    let rows = || locals::ROWS.iter().chain(injectors::ROWS);
    let names: Vec<_> = rows().map(|row| row.name).collect();
    let arms: Vec<_> = rows().flat_map(|row| row.arms).map(|arm| arm.0).collect();
    let choice = Choice::from_arguments(&names, &arms);
    let mut operations = table::run("A worker's queue", locals::ROWS, &choice);
    println!();
    operations += table::run("Injector", injectors::ROWS, &choice);
    if choice.counts {
        println!("operations: {operations}");
    }
}
