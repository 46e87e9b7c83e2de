//! Runs a future on the calling thread, which works for the runtime while the future waits.

use std::any::Any;
use std::future::Future;
use std::panic::{Location, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::current;
use crate::identity::Identity;
use crate::outside;
use crate::park::{Bed, Sleeper};
use crate::processor::Lease;
use crate::shared::Shared;
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::sync::{Arc, Mutex, lock};
use crate::worker::{Worker, give_up};

/// The waker of the future in `block_on`.
struct Main {
    woken: AtomicBool,
    sleeper: Arc<Sleeper>,
    called_at: &'static Location<'static>,
    /// Why it must not wait any longer.
    failure: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering B1: release what the waker did, for the poll that B2 starts.
        if !self.woken.swap(true, AcqRel) {
            self.sleeper.unpark();
        }
    }
}

impl outside::Main for Main {
    fn is_woken(&self) -> bool {
        self.woken.load(Acquire)
    }

    fn called_at(&self) -> &'static Location<'static> {
        self.called_at
    }

    fn fail(self: Arc<Self>, payload: Box<dyn Any + Send>) {
        *lock(&self.failure) = Some(payload);
        self.wake();
    }
}

/// This `block_on` as the census counts it, if somebody wants one.
struct Counted<'a> {
    shared: &'a Shared,
    main: Arc<dyn outside::Main>,
}

impl<'a> Counted<'a> {
    fn begin(shared: &'a Shared, main: &Arc<Main>) -> Option<Self> {
        shared.config.on_deadlock.as_ref()?;
        shared.outside.job_begins();
        current::set_runs_main(true);
        Some(Counted { shared, main: main.clone() })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shared.outside.job_ends();
        // Those that still wait may do so in vain.
        self.shared.rouse_census();
    }
}

/// Waits, as the census sees it. The polls around this `block_on` wait for it, and are no jobs meanwhile.
fn waiting(counted: Option<&Counted<'_>>, wait: impl FnOnce()) {
    let Some(Counted { shared, main }) = counted else { return wait() };
    let jobs = 1 + current::outer_jobs(shared);
    current::set_runs_main(false);
    shared.outside.main_waits(main.clone(), jobs);
    shared.rouse_census();
    wait();
    shared.outside.main_goes_on(main, jobs);
    current::set_runs_main(true);
}

/// Leaves what the thread holds to the others, also when the future panics.
struct Leave<'a>(&'a Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some(lease) = current::lease(self.0) {
            // Where no thread can be had, the work waits for the next worker.
            let _ = give_up(lease);
        }
    }
}

/// As [`give_up`], for a thread that is about to block in the middle of a poll.
///
/// # Panics
/// If no other thread can be had: nobody would work for as long as this one blocks.
fn give_up_or_panic(lease: Lease<'_>) {
    let shared = lease.shared;
    if let Err(error) = give_up(lease) {
        assert!(
            !shared.idle.is_all_idle(),
            "`block_on` inside a task needs another thread to work meanwhile, and none could be \
             started: {error}"
        );
    }
}

#[track_caller]
pub(super) fn block_on<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    shared.check_entry();
    let called_at = Location::caller();
    current::within(shared, |nested| drive(shared, future, called_at, nested))
}

fn drive<F: Future>(
    shared: &Arc<Shared>,
    future: F,
    called_at: &'static Location<'static>,
    nested: bool,
) -> F::Output {
    let bed = Bed::new(shared.reactor.clone());
    let main = Arc::new(Main {
        woken: AtomicBool::new(true),
        sleeper: bed.sleeper().clone(),
        called_at,
        failure: Mutex::new(None),
    });
    let waker = Waker::from(main.clone());
    let worker = Worker::new(shared, &bed, Some(&main.woken));
    // Gone after the future, whose destructor may wake others.
    let counted = Counted::begin(shared, &main);
    let mut future = pin!(future);
    let _leave = Leave(shared);
    // Of a local runtime, its own thread is the only one, whatever it has been doing.
    let works = if shared.is_local() { shared.is_of_this_thread() } else { !nested };
    if works {
        worker.acquire();
    }
    loop {
        // Ordering B2: acquire; pairs with B1.
        if main.woken.swap(false, AcqRel) {
            if counted.is_some() {
                let failure = lock(&main.failure).take();
                if let Some(payload) = failure {
                    resume_unwind(payload);
                }
            }
            if let Some(lease) = current::lease(Arc::as_ptr(shared)) {
                lease.begin_poll(Identity::of(called_at));
                if shared.config.on_wedge.is_some() {
                    lease.call_ticker();
                }
            }
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
        }
        if nested {
            // A task is being polled further down on this stack. Running others on top of it
            // could wait for that very task: the thread only blocks, and another one works.
            current::give_up_outer(give_up_or_panic);
        }
        waiting(counted.as_ref(), || {
            if works {
                worker.work();
            }
            if !works || shared.stop.is_closing() {
                while !main.woken.load(Acquire) {
                    bed.sleep(None);
                }
            }
        });
    }
}
