//! The allocator of this process: the system's or mimalloc, as the environment says when it starts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use mimalloc::MiMalloc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Allocator {
    System = 1,
    Mimalloc = 2,
}

impl Allocator {
    pub const ALL: [Allocator; 2] = [Allocator::System, Allocator::Mimalloc];
    /// That of a process is this variable's value, or the system's.
    pub const VARIABLE: &str = "PACELINE_BENCH_ALLOCATOR";

    pub fn name(self) -> &'static str {
        match self {
            Allocator::System => "system",
            Allocator::Mimalloc => "mimalloc",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|allocator| allocator.name() == name)
    }
}

const UNDECIDED: u8 = 0;

/// Sends everything to one of the two, decided at the first allocation. What that costs, a relaxed load
/// and a branch that is always predicted, is the same for every arm.
pub struct Switch(AtomicU8);

impl Switch {
    pub const fn new() -> Self {
        Switch(AtomicU8::new(UNDECIDED))
    }

    pub fn chosen(&self) -> Allocator {
        of(self.0.load(Relaxed)).unwrap_or_else(|| self.decide())
    }

    /// Must not allocate. The first to store decides for all, who else is here finds the same.
    #[cold]
    fn decide(&self) -> Allocator {
        let wanted = if wants_mimalloc() { Allocator::Mimalloc } else { Allocator::System };
        let before = self.0.compare_exchange(UNDECIDED, wanted as u8, Relaxed, Relaxed);
        before.map_or_else(|earlier| of(earlier).unwrap_or(wanted), |_| wanted)
    }
}

fn of(state: u8) -> Option<Allocator> {
    const SYSTEM: u8 = Allocator::System as u8;
    const MIMALLOC: u8 = Allocator::Mimalloc as u8;
    match state {
        SYSTEM => Some(Allocator::System),
        MIMALLOC => Some(Allocator::Mimalloc),
        _ => None,
    }
}

#[cfg(unix)]
fn wants_mimalloc() -> bool {
    const VARIABLE: &std::ffi::CStr = c"PACELINE_BENCH_ALLOCATOR";
    debug_assert_eq!(VARIABLE.to_bytes(), Allocator::VARIABLE.as_bytes());
    // SAFETY: the name ends with a zero byte, and so does the value if there is one; nothing in this
    // process changes its environment, so that the value stays as it is while it is compared.
    unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        !value.is_null() && std::ffi::CStr::from_ptr(value) == c"mimalloc"
    }
}

/// Reading the environment allocates here.
#[cfg(not(unix))]
fn wants_mimalloc() -> bool {
    false
}

// SAFETY: once decided, the choice never changes, and every call but the first sees it (the state is one
// atomic word that leaves `UNDECIDED` once). So all goes to one allocator, which keeps the contract; the
// layouts and pointers are passed on as they came.
unsafe impl GlobalAlloc for Switch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            match self.chosen() {
                Allocator::System => System.alloc(layout),
                Allocator::Mimalloc => MiMalloc.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            match self.chosen() {
                Allocator::System => System.alloc_zeroed(layout),
                Allocator::Mimalloc => MiMalloc.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory is from an allocation here, thus from the allocator chosen.
        unsafe {
            match self.chosen() {
                Allocator::System => System.dealloc(memory, layout),
                Allocator::Mimalloc => MiMalloc.dealloc(memory, layout),
            }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`.
        unsafe {
            match self.chosen() {
                Allocator::System => System.realloc(memory, layout, size),
                Allocator::Mimalloc => MiMalloc.realloc(memory, layout, size),
            }
        }
    }
}
