//! What the workers of one scheduler share, and how one of them is woken.
//! Knows nothing of the loop that a worker runs; it starts threads through functions it is given.

use std::io;
use std::sync::Weak;
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::config::Config;
use crate::doze::Doze;
use crate::fork::Origin;
use crate::identity::{Identity, Names};
use crate::idle::{Closed, Idle, Searching, Wake};
use crate::injector::Injector;
use crate::joiner::Joiner;
use crate::outside::Outside;
use crate::park::{Mail, Sleeper};
use crate::processor::{Processor, Processors};
use crate::reactor::Reactor;
use crate::registry::Registry;
use crate::stop::Stop;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use crate::sync::{Arc, Mutex};

/// The way from a runnable back to its scheduler: the schedule function stays free of captures,
/// so that async-task need not clone wakers to keep it alive.
pub(crate) struct Meta {
    /// A [`Shared`], or what else the task's schedule function knows it to be. Alive while the task's
    /// future is (see [`crate::tally`]); null for a task born cancelled.
    pub(crate) scheduler: *const (),
    pub(crate) identity: Identity,
    pub(crate) joiner: Joiner<Waker>,
}

// SAFETY: a scheduler is `Sync`, and the pointer is followed only while it is kept alive.
unsafe impl Send for Meta {}
// SAFETY: as above.
unsafe impl Sync for Meta {}

pub(crate) type Runnable = async_task::Runnable<Meta>;

/// A thread as the idle list knows it.
#[derive(Clone)]
pub(crate) struct Parked(pub(crate) Arc<Sleeper>);

impl PartialEq for Parked {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Who comes to work; the runtime's business.
pub(crate) enum Starter {
    Threads {
        /// A thread that works on the processor; it counts as searching.
        worker: fn(&Arc<Shared>, usize) -> io::Result<()>,
        ticker: fn(&Arc<Shared>) -> io::Result<()>,
    },
    /// No thread is ever started: somebody is told, and comes to work or not, on this thread alone.
    Host { thread: u64, tell: Box<dyn Fn() + Send + Sync> },
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) processors: Processors,
    /// Padded, as whatever else many write: the fields beside it are read at every turn.
    pub(crate) injector: CachePadded<Injector<Runnable>>,
    pub(crate) idle: Idle<Parked>,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) registry: Registry<Identity>,
    pub(crate) names: CachePadded<Names>,
    pub(crate) outside: Outside,
    pub(crate) doze: Doze,
    pub(crate) stop: Stop,
    /// How many spare workers are to stand down.
    pub(crate) surplus: AtomicUsize,
    pub(crate) threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    pub(crate) origin: Origin,
    starter: Starter,
    ticker_started: AtomicBool,
    this: Weak<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(config: Config, starter: Starter) -> Arc<Self> {
        let count = config.worker_threads;
        let shared = Arc::new_cyclic(|this| Shared {
            processors: Processors::new(count, config.timeslice),
            injector: CachePadded::new(Injector::new()),
            idle: Idle::new(count),
            reactor: Reactor::new(count, config.on_deadlock.is_some()),
            registry: Registry::new(count),
            names: CachePadded::default(),
            outside: Outside::default(),
            doze: Doze::new(),
            stop: Stop::new(count),
            surplus: AtomicUsize::new(0),
            threads: Mutex::default(),
            origin: Origin::here(),
            starter,
            ticker_started: AtomicBool::new(false),
            this: this.clone(),
            config,
        });
        shared.stop.keep(shared.clone());
        shared
    }

    pub(crate) fn arc(&self) -> Arc<Shared> {
        self.this.upgrade().expect("a reference to it proves that it lives")
    }

    /// Puts a runnable where every worker finds it, and wakes one for it. The error is that of a
    /// thread that could not be started; the runnable waits for the next worker then.
    pub(crate) fn inject(&self, runnable: Runnable) -> io::Result<()> {
        self.injector.push(runnable);
        let woken = self.wake(1);
        if self.has_ticker() && self.idle.is_none_idle() && self.doze.seems_asleep() {
            // A thread in `block_on` works unwatched until there is something to be kept waiting.
            self.rouse_ticker();
        }
        self.pushed();
        woken.map(|_| ())
    }

    /// Wakes workers until `wanted` of them search. Returns how many were woken.
    pub(crate) fn wake(&self, wanted: usize) -> io::Result<u64> {
        // Counted, since one that finds nothing may be asleep again before the next is woken.
        for woken in 0..wanted {
            match self.idle.wake(wanted) {
                Some(wake) => self.deliver(wake)?,
                None => return Ok(woken as u64),
            }
        }
        Ok(wanted as u64)
    }

    /// Hands a processor to a sleeping thread, or to a new one.
    pub(crate) fn deliver(&self, wake: Wake<Parked>) -> io::Result<()> {
        let Wake { processor, thread, searching } = wake;
        let Some(thread) = thread else {
            return self.start(processor, searching);
        };
        searching.send();
        thread.0.send(&Mail::Processor(processor));
        Ok(())
    }

    fn start(&self, processor: usize, searching: Searching) -> io::Result<()> {
        let worker = match &self.starter {
            Starter::Threads { worker, .. } => worker,
            Starter::Host { tell, .. } => {
                let _ = self.do_without(processor, searching);
                tell();
                return Ok(());
            }
        };
        match worker(&self.arc(), processor) {
            Ok(()) => {
                searching.send();
                Ok(())
            }
            Err(error) => self.do_without(processor, searching).ok_or(error),
        }
    }

    /// To be called before this thread works for it.
    ///
    /// # Panics
    /// If it was forked away from it, or cannot work for it.
    #[track_caller]
    pub(crate) fn check_entry(&self) {
        self.origin.check();
        assert!(
            !self.is_local() || !crate::current::is_inside(self),
            "`block_on` of a local runtime, or a turn, inside one of its own tasks: nobody else could run \
             the others meanwhile. Await the future, or spawn it, instead"
        );
    }

    /// Whether it works on nobody's but its host's thread.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.starter, Starter::Host { .. })
    }

    /// Whether this thread may work for it.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        match self.starter {
            Starter::Host { thread, .. } => thread == crate::current::thread_id(),
            Starter::Threads { .. } => true,
        }
    }

    /// No thread could be started for a processor. None if none has parked meanwhile either.
    #[cold]
    fn do_without(&self, processor: usize, searching: Searching) -> Option<()> {
        self.unload(processor);
        match self.idle.retry(processor, searching) {
            Ok(Some(wake)) => self.deliver(wake).ok(),
            Ok(None) => None,
            Err(Closed) => {
                drop(self.retire(&self.processors[processor]));
                self.pushed();
                None
            }
        }
    }

    /// Something was armed by a thread that holds no processor: somebody must drive the reactor, or
    /// look after who holds one, whose poll may last.
    #[cold]
    pub(crate) fn see_to_driver(&self) {
        // Ordering R1: store-load; what was armed before this, the idle count and the alarm after.
        // Pairs with P3 (a worker that parks looks at the reactor afterwards) and A1.
        fence(SeqCst);
        if !self.reactor.needs_driver() {
            return;
        }
        let watched = || self.has_ticker() && self.rouse_ticker();
        if self.idle.is_all_idle() || !watched() {
            // Where no thread can be had, the next one that works drives.
            let _ = self.wake(1);
        }
    }

    /// Whether somebody else must drive the reactor while this thread works: nobody does, and no
    /// ticker would notice that a poll lasts.
    pub(crate) fn hands_over_driving(&self) -> bool {
        !self.has_ticker() && self.reactor.needs_driver()
    }

    /// Whether anything waits that one more worker could do.
    pub(crate) fn has_work_waiting(&self) -> bool {
        !self.injector.is_empty()
            || self.reactor.needs_driver()
            || self.processors.iter().any(|processor| processor.stealer.len() > 0)
    }

    /// A spare worker asks whether it is one too many; if so, it is to stand down.
    pub(crate) fn is_surplus(&self, processor: &Processor) -> bool {
        let one_less = |surplus: usize| surplus.checked_sub(1);
        processor.index >= self.processors.own()
            && self.surplus.load(Relaxed) > 0
            && self.surplus.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }

    /// Moves what an unheld processor has to where every worker finds it.
    fn unload(&self, processor: usize) {
        let Processor { open, stealer, .. } = &self.processors[processor];
        loop {
            match open.slot.take().or_else(|| stealer.steal_one()) {
                Some(runnable) => self.injector.push(runnable),
                None if stealer.len() == 0 => return,
                // A theft is under way, and over in a moment.
                None => {}
            }
        }
    }

    /// Whether a searcher may spin: not on the CPU of a thread that it might wait for.
    pub(crate) fn may_spin(&self) -> bool {
        self.idle.held_processors() < self.config.cpus
    }

    pub(crate) fn has_ticker(&self) -> bool {
        self.config.ticker != crate::config::Ticker::Off
    }

    /// Starts or wakes the ticker, unless it is awake. False if it could not be started.
    pub(crate) fn rouse_ticker(&self) -> bool {
        !self.doze.is_asleep() || self.rouse_sleeping_ticker()
    }

    #[cold]
    fn rouse_sleeping_ticker(&self) -> bool {
        self.doze.rouse();
        if self.ticker_started.swap(true, SeqCst) || self.stop.is_closing() {
            return true;
        }
        let started = match &self.starter {
            Starter::Threads { ticker, .. } => ticker(&self.arc()).is_ok(),
            Starter::Host { .. } => false,
        };
        if !started {
            // Where no thread could be had, the next one to ask tries again.
            self.ticker_started.store(false, SeqCst);
            self.doze.not_started();
        }
        started
    }

    /// Something has changed while no worker runs: where somebody wants to know of deadlocks, the ticker
    /// looks once more.
    pub(crate) fn rouse_census(&self) {
        if self.config.on_deadlock.is_some() {
            self.rouse_ticker();
        }
    }

    /// How many futures are alive.
    pub(crate) fn alive(&self) -> usize {
        self.stop.tally.alive(self.processors.iter().map(|processor| &processor.open.share))
    }
}
