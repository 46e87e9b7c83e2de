//! Keeping a task alive: a [`Supervisor`] starts it, and starts it anew when it ends, as often as its
//! policy allows. For one child; what is to live and die together belongs into one child.
//!
//! Built on what every user has: a spawned task that is joined, and a sleep.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::contain::contain;
use crate::identity::TaskInfo;
use crate::runtime::{spawn_as, spawn_named};
use crate::sync::Arc;
use crate::task::{JoinError, Task};
use crate::time::sleep;

/// After which ends a child is started anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restart {
    /// After none: a panic is given up at once (Erlang's `temporary`).
    Never,
    /// After a panic (`transient`). An output is the supervisor's own, an `Err` too: a child that is to
    /// be restarted after an error unwraps it.
    #[default]
    OnPanic,
    /// After a panic and after an output, which is dropped (`permanent`).
    Always,
}

/// Keeps one task, the child, alive: starts it, and after a panic starts it anew, later each time, until
/// that happens too often.
///
/// The child is a task of its own with the supervisor's name, which reports of wedged workers and of
/// deadlocks give beside the line that called [`spawn`](Supervisor::spawn) or [`run`](Supervisor::run). There
/// is never more than one: its future has been dropped before the next one is made. What is to outlive a
/// panic (a queue, a counter) is kept outside of it, and cloned into each.
///
/// Nothing is printed but by the panic hook. Supervisors nest: a child that unwraps another supervisor's
/// output passes on that it has given up.
///
/// # Examples
/// ```
/// use paceline::supervise::Supervisor;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use std::time::Duration;
/// static STARTS: AtomicUsize = AtomicUsize::new(0);
///
/// let supervised = Supervisor::new("moody")
///     .backoff(Duration::from_millis(1), Duration::from_millis(10))
///     .intensity(5, Duration::from_secs(10))
///     .spawn(|| async {
///         let starts = STARTS.fetch_add(1, Relaxed) + 1;
///         assert!(starts == 3, "not today");
///         starts
///     });
/// assert_eq!(paceline::block_on(supervised).unwrap(), 3);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a supervisor does nothing until `spawn` or `run` is called"]
pub struct Supervisor {
    name: Arc<str>,
    plan: Plan,
}

impl Supervisor {
    /// Of a child with this name. It is restarted after panics, 10 ms to 1 s later, and given up if that
    /// happens more than 5 times within 10 s, unless told otherwise.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let plan = Plan {
            restart: Restart::default(),
            first: Duration::from_millis(10),
            most: Duration::from_secs(1),
            limit: 5,
            period: Duration::from_secs(10),
        };
        Supervisor { name: name.into(), plan }
    }

    /// After which ends the child is started anew; [`Restart::OnPanic`] by default.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.plan.restart = restart;
        self
    }

    /// How long to wait before a restart: at most `first`, then twice as long each time, up to `most`; 10 ms
    /// and 1 s by default. Begins at `first` again once the child has run for longer than the period of
    /// the [`intensity`](Supervisor::intensity).
    ///
    /// Each wait is shortened by a random part of up to a half, lest all who crashed together come back
    /// together. A `first` of zero means no wait at all.
    ///
    /// # Panics
    /// If `most` is shorter than `first`.
    #[track_caller]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        assert!(
            first <= most,
            "a supervisor's backoff goes from {first:?} to {most:?}, but must not become shorter"
        );
        (self.plan.first, self.plan.most) = (first, most);
        self
    }

    /// How often the child is restarted within any stretch of `period`; 5 times within 10 s by default.
    /// When it would have to be restarted once more, it is given up. With zero restarts, that is at its
    /// first end.
    ///
    /// Counted are the moments of the restarts, so the waits between them are part of the period: if they
    /// are so long that no more than `restarts` fit into one, the child is never given up.
    ///
    /// # Panics
    /// If `period` is zero.
    #[track_caller]
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        assert!(
            !period.is_zero(),
            "a supervisor's period is {period:?}, but must be longer than zero"
        );
        (self.plan.limit, self.plan.period) = (restarts, period);
        self
    }

    /// [Runs](Supervisor::run) it as a task of the runtime that [`spawn`](crate::spawn) would choose, which
    /// is called "supervisor of" the child. **Dropping the [`Task`] cancels the child with it**;
    /// [`detach`](Task::detach) lets both run on.
    ///
    /// # Errors
    /// The task's output is what [`run`](Supervisor::run) gives.
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<S, F>(self, start: S) -> Task<Result<F::Output, GaveUp>>
    where
        S: FnMut() -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_named(format!("supervisor of {}", self.name), self.run(start))
    }

    /// Starts the child and keeps it alive until it ends for good. The output is that of the child, if its
    /// end is not one after which it is restarted.
    ///
    /// `start` makes each child's future. A panic in it counts as the child's. The child is a task of
    /// the runtime that polls this future; so this is how to supervise on another runtime:
    ///
    /// ```
    /// use paceline::supervise::Supervisor;
    /// let runtime = paceline::Runtime::new()?;
    /// let supervised = runtime.handle().spawn(Supervisor::new("worker").run(|| async { 42 }));
    /// assert_eq!(runtime.block_on(supervised).unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`GaveUp`] if the child has ended too often, or panicked and is never restarted; or if its runtime
    /// has stopped. (A task of that runtime, as of [`spawn`](Supervisor::spawn), is most likely cancelled
    /// before it sees that.)
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn), when polled.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the child, whose own future is dropped by a worker soon afterwards.
    #[track_caller]
    pub fn run<S, F>(self, mut start: S) -> impl Future<Output = Result<F::Output, GaveUp>>
    where
        S: FnMut() -> F,
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Supervisor { name, plan } = self;
        let child = TaskInfo { name: Some(name.clone()), spawned_at: Location::caller() };
        async move {
            let (mut policy, mut jitter) = (Policy::new(plan), Jitter::new());
            loop {
                let started = Instant::now();
                let ended = spawn_child(child.clone(), &mut start).join().await;
                match (policy.judge(End::of(&ended), started, Instant::now()), ended) {
                    (Verdict::Finish, Ok(output)) => return Ok(output),
                    (Verdict::Restart(delay), ended) => {
                        // What a destructor panics with is nobody's.
                        contain(|| drop(ended));
                        sleep(jitter.shorten(delay)).await;
                    }
                    (_, ended) => {
                        let mut error = None;
                        contain(|| error = ended.err());
                        return Err(GaveUp { name, restarts: policy.restarts, error });
                    }
                }
            }
        }
    }
}

/// Spawns the future that `start` makes. If `start` panics, so does the task.
fn spawn_child<F>(child: TaskInfo, start: impl FnMut() -> F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match catch_unwind(AssertUnwindSafe(start)) {
        Ok(future) => spawn_as(child, future),
        Err(payload) => spawn_as(child, panic_with(payload)),
    }
}

async fn panic_with<T>(payload: Box<dyn Any + Send>) -> T {
    resume_unwind(payload)
}

/// A [`Supervisor`] keeps its child alive no longer.
///
/// Its `Display` is one line, such as
/// `"worker" is given up after 5 restarts: task panicked: out of cheese`.
#[derive(Debug)]
#[non_exhaustive]
pub struct GaveUp {
    /// The child's.
    pub name: Arc<str>,
    /// How often it was restarted, in all.
    pub restarts: u64,
    /// How it ended last, with the panic's payload; that it was cancelled, if its runtime has stopped.
    /// None if it had an output, which is dropped: under [`Restart::Always`].
    pub error: Option<JoinError>,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GaveUp { name, restarts, error } = self;
        let plural = if *restarts == 1 { "" } else { "s" };
        write!(f, "{name:?} is given up after {restarts} restart{plural}: ")?;
        match error {
            Some(error) => write!(f, "{error}"),
            None => f.write_str("task finished"),
        }
    }
}

impl std::error::Error for GaveUp {}

/// What the supervisor was told.
#[derive(Clone, Copy, Debug)]
struct Plan {
    restart: Restart,
    /// The first wait, and the longest.
    first: Duration,
    most: Duration,
    /// How many restarts are allowed within a period.
    limit: u32,
    period: Duration,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Output,
    Panic,
    Cancelled,
}

impl End {
    fn of<T>(ended: &Result<T, JoinError>) -> Self {
        match ended {
            Ok(_) => End::Output,
            Err(error) if error.is_panic() => End::Panic,
            Err(_) => End::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The output is the supervisor's.
    Finish,
    /// After this wait, or a somewhat shorter one.
    Restart(Duration),
    GiveUp,
}

/// Says what comes after each end. Knows no task, and the time only from who asks.
struct Policy {
    plan: Plan,
    /// The next wait.
    delay: Duration,
    restarts: u64,
    /// The moments of the restarts that still count, oldest first; no more than the plan's limit.
    recent: VecDeque<Instant>,
}

impl Policy {
    fn new(plan: Plan) -> Self {
        Policy { delay: plan.first, plan, restarts: 0, recent: VecDeque::new() }
    }

    /// Of a child that was started at `started` and has ended `now`.
    fn judge(&mut self, end: End, started: Instant, now: Instant) -> Verdict {
        match (end, self.plan.restart) {
            (End::Output, Restart::Never | Restart::OnPanic) => return Verdict::Finish,
            (End::Panic, Restart::Never) | (End::Cancelled, _) => return Verdict::GiveUp,
            (End::Panic, Restart::OnPanic) | (End::Output | End::Panic, Restart::Always) => {}
        }
        if self.restarts > 0 {
            self.recent.push_back(started);
        }
        let period = self.plan.period;
        self.recent.retain(|restart| now.saturating_duration_since(*restart) <= period);
        if self.recent.len() >= self.plan.limit as usize {
            return Verdict::GiveUp;
        }
        if self.recent.is_empty() {
            // The last one has run for longer than a period, or there was none.
            self.delay = self.plan.first;
        }
        let delay = self.delay;
        self.delay = delay.saturating_mul(2).min(self.plan.most);
        self.restarts += 1;
        Verdict::Restart(delay)
    }
}

/// Chance, by xorshift: good enough to keep apart who would come back at the same time.
struct Jitter(u64);

impl Jitter {
    /// Like no other: the standard library's hash keys are random.
    fn new() -> Self {
        Jitter::from_seed(RandomState::new().hash_one(()))
    }

    fn from_seed(seed: u64) -> Self {
        // Zero would stay zero.
        Jitter(seed | 1)
    }

    /// From half of it to the whole.
    fn shorten(&mut self, delay: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let part = (self.0 >> 32) as f64 / (1u64 << 32) as f64;
        delay.saturating_sub((delay / 2).mul_f64(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Finish, GiveUp};

    use std::future::pending;

    const MS: Duration = Duration::from_millis(1);

    /// Up to `limit` restarts within 100 ms, 4 to 20 ms apart.
    fn plan(restart: Restart, limit: u32) -> Plan {
        Plan { restart, first: 4 * MS, most: 20 * MS, limit, period: 100 * MS }
    }

    /// The verdicts on a child whose ends come so many milliseconds after its start and after each
    /// restart.
    fn verdicts(plan: Plan, ends: &[(End, u64)]) -> Vec<Verdict> {
        let (mut policy, mut now) = (Policy::new(plan), Instant::now());
        let judge = |(end, after): &(End, u64)| {
            let started = now;
            now += Duration::from_millis(*after);
            let verdict = policy.judge(*end, started, now);
            if let Verdict::Restart(delay) = verdict {
                now += delay;
            }
            verdict
        };
        ends.iter().map(judge).collect()
    }

    fn restart(ms: u64) -> Verdict {
        Verdict::Restart(Duration::from_millis(ms))
    }

    #[test]
    fn the_policy_says_which_ends_are_followed_by_a_restart() {
        for (policy, end, verdict) in [
            (Restart::Never, End::Output, Finish),
            (Restart::Never, End::Panic, GiveUp),
            (Restart::OnPanic, End::Output, Finish),
            (Restart::OnPanic, End::Panic, restart(4)),
            (Restart::Always, End::Output, restart(4)),
            (Restart::Always, End::Panic, restart(4)),
            (Restart::Never, End::Cancelled, GiveUp),
            (Restart::OnPanic, End::Cancelled, GiveUp),
            (Restart::Always, End::Cancelled, GiveUp),
        ] {
            assert_eq!(verdicts(plan(policy, 1), &[(end, 0)]), [verdict], "{policy:?}, {end:?}");
        }
    }

    #[test]
    fn waits_double_up_to_the_most_and_begin_anew_after_a_period_of_peace() {
        let plan = plan(Restart::OnPanic, 9);
        let ends = [0, 0, 0, 0, 0, 100, 101, 0].map(|after| (End::Panic, after));
        let waits = [4, 8, 16, 20, 20, 20, 4, 8].map(restart);
        assert_eq!(verdicts(plan, &ends), waits);
    }

    #[test]
    fn the_first_child_may_end_late_and_its_start_is_no_restart() {
        let ends = [500, 0, 0].map(|after| (End::Panic, after));
        assert_eq!(verdicts(plan(Restart::OnPanic, 2), &ends), [restart(4), restart(8), GiveUp]);
    }

    #[test]
    fn one_restart_more_than_the_limit_within_a_period_is_none() {
        for limit in 0..4 {
            let ends = vec![(End::Panic, 0); limit as usize + 1];
            let verdicts = verdicts(plan(Restart::OnPanic, limit), &ends);
            let (last, before) = verdicts.split_last().unwrap();
            assert_eq!(*last, GiveUp, "{limit}");
            assert!(before.iter().all(|verdict| matches!(verdict, Verdict::Restart(_))), "{limit}");
        }
    }

    #[test]
    fn restarts_that_are_longer_ago_than_the_period_do_not_count() {
        let plan = Plan { first: Duration::ZERO, most: Duration::ZERO, ..plan(Restart::Always, 2) };
        let at_once = Verdict::Restart(Duration::ZERO);
        // Restarted at 0, 60, 120 and so on: there are two in every period, never three.
        let ends = [0, 60, 60, 60, 60, 60].map(|after| (End::Panic, after));
        assert_eq!(verdicts(plan, &ends), [at_once; 6]);
        // A period ago to the nanosecond is within it.
        let ends = [0, 50, 50].map(|after| (End::Output, after));
        assert_eq!(verdicts(plan, &ends), [at_once, at_once, GiveUp]);
        let ends = [0, 50, 51, 0].map(|after| (End::Panic, after));
        assert_eq!(verdicts(plan, &ends), [at_once, at_once, at_once, GiveUp]);
    }

    #[test]
    fn waits_of_any_length_are_shortened_by_chance_and_by_half_at_most() {
        for seed in [0, 1, u64::MAX] {
            let mut jitter = Jitter::from_seed(seed);
            for delay in [Duration::ZERO, MS, Duration::from_secs(3600), Duration::MAX] {
                let shortened: Vec<_> = (0..100).map(|_| jitter.shorten(delay)).collect();
                let (least, most) =
                    (shortened.iter().min().unwrap(), shortened.iter().max().unwrap());
                assert!(delay / 2 <= *least && *most <= delay, "{delay:?}: {least:?} to {most:?}");
                assert!(
                    delay.is_zero() || *most - *least > delay / 4,
                    "{delay:?}: {least:?} to {most:?}"
                );
            }
        }
        assert_ne!(Jitter::new().0, Jitter::new().0);
    }

    #[test]
    fn each_task_has_a_name_and_the_place_of_the_call() {
        let runtime = crate::Builder::new().worker_threads(1).build().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let start = move || {
            let tell = tell.clone();
            async move {
                // Who has waited once is registered.
                crate::yield_now().await;
                tell.send(()).unwrap();
                pending::<()>().await;
            }
        };
        let guard = runtime.handle().enter();
        let (task, line) = (Supervisor::new("worker").spawn(start), line!());
        told.recv().unwrap();
        let shared = &runtime.handle().shared;
        let tasks = shared.registry.notes().into_iter();
        let mut tasks: Vec<_> = tasks.filter_map(|who| shared.names.look_up(who)).collect();
        tasks.sort_by_key(|task| task.name.clone());
        let names: Vec<_> = tasks.iter().map(|task| task.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["supervisor of worker", "worker"]);
        for task in &tasks {
            let place = task.spawned_at;
            assert_eq!((place.file(), place.line()), (file!(), line), "{task}");
        }
        drop((task, guard));
    }
}
