//! What is allocated on the way.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use futures_lite::future::block_on;

use crate::Ex;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator, counted in a thread-local that has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn a_tick_of_a_task_that_is_ready_allocates_nothing() {
    let local = Ex::new();
    let tasks: Vec<_> = (0..10).map(|_| local.spawn(async {})).collect();
    block_on(async {
        local.tick().await;
        let before = COUNT.get();
        for _ in 1..tasks.len() {
            local.tick().await;
        }
        assert_eq!(COUNT.get(), before);
    });
    assert!(local.is_empty());
}
