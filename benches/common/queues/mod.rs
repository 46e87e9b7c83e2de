//! What the bench of run queues consists of.

pub mod injectors;
pub mod local;
pub mod locals;
pub mod outside;
pub mod table;

use std::hint::black_box;
use std::ptr::{NonNull, without_provenance_mut};

use crate::measure::Sample;
use crate::word::Word;

/// A queue's name, and one round of a workload on it.
pub type Arm = (&'static str, fn() -> Sample);

/// One line of a table: a workload on every queue that can do it.
pub struct Row {
    pub name: &'static str,
    pub arms: &'static [Arm],
}

/// What the bounded queues hold: tokio's number.
const BOUND: usize = 256;

/// What is queued: as large as a runnable, a pointer that is not null. It points nowhere.
pub struct Item(NonNull<()>);

// SAFETY: it is a number.
unsafe impl Send for Item {}

impl Item {
    /// The number is not zero.
    fn new(number: usize) -> Self {
        Item(NonNull::new(without_provenance_mut(number)).expect("a number above zero"))
    }

    fn number(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

// SAFETY: the pointer goes there and back as it is.
unsafe impl Word for Item {
    #[inline]
    fn into_raw(self) -> NonNull<()> {
        self.0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Item(raw)
    }
}

/// What becomes of the items: so much work for each, and a sum that shows whether all came once.
struct Polled {
    work: usize,
    sum: usize,
}

impl Polled {
    fn with(work: usize) -> Self {
        Polled { work, sum: 0 }
    }

    #[inline]
    fn poll(&mut self, item: &Item) {
        self.sum += item.number();
        work(self.work);
    }
}

/// About a nanosecond each.
#[inline]
fn work(steps: usize) {
    (0..steps).for_each(|step| {
        black_box(step);
    });
}

/// The sum of the numbers from 1 on.
fn sum_to(count: usize) -> usize {
    count * (count + 1) / 2
}

/// Who found nothing looks again, first at once; then others have the CPU.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn found(&mut self) {
        self.0 = 0;
    }

    fn wait(&mut self) {
        self.0 += 1;
        if self.0 % 16 == 0 {
            std::thread::yield_now();
        } else {
            work(64);
        }
    }
}
