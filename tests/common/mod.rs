//! What the integration tests share: runtimes of both sizes, a watchdog, values that tell of
//! their end. Knows no behaviour; those are in the test files.

#![allow(dead_code)] // each test file uses its own part
#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::executor::block_on as block_foreign;
use futures::{AsyncReadExt, AsyncWriteExt, SinkExt, StreamExt};
use paceline::net::TcpListener;
use paceline::{Runtime, Task, spawn, yield_now};

/// Far above what any body takes on a loaded machine; only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(30);
/// Names the test that a child process runs.
const ALONE: &str = "PACELINE_TEST_ALONE";

/// xorshift64: a seed gives one sequence of decisions.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Up to 300 µs.
    pub fn moments(&mut self) -> Duration {
        Duration::from_nanos(self.below(300_000))
    }

    pub fn fork(&mut self) -> Self {
        Random(self.below(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

pub fn runtime(workers: usize) -> Runtime {
    Runtime::builder().worker_threads(workers).build().expect("valid settings")
}

/// Runs `body` on a runtime of one worker, then on one of four.
#[track_caller]
pub fn on_each(body: impl Fn(Runtime) + Send + Sync + 'static) {
    on_each_size(move |workers| body(runtime(workers)));
}

/// As [`on_each`], for a body that builds its runtimes itself.
#[track_caller]
pub fn on_each_size(body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for workers in [1, 4] {
        let body = body.clone();
        watched(&format!("on {workers} workers"), move || body(workers));
    }
}

/// Fails if `body` takes too long: a hang is a failure and not a stuck CI. The thread that hangs
/// is left behind.
#[track_caller]
pub fn watched(what: &str, body: impl FnOnce() + Send + 'static) {
    let place = Location::caller();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (done, finished) = mpsc::channel();
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        // Nobody listens any more if it took too long.
        let _ = done.send(result);
    };
    let runner = thread::Builder::new().name(name.clone()).spawn(run).expect("a thread");
    // In steps: while the whole machine stands still, nothing hangs.
    const STEPS: u32 = 300;
    match (0..STEPS).find_map(|_| finished.recv_timeout(LIMIT / STEPS).ok()) {
        Some(result) => {
            runner.join().expect("its panics are caught");
            result.unwrap_or_else(|payload| resume_unwind(payload));
        }
        None => panic!("{name} {what} ({place}) hangs: not done after {LIMIT:?}"),
    }
}

/// Runs the body of the test `name` in a process of its own: for what counts a process's threads
/// or allocations, and for what would abort the other tests when it fails.
#[track_caller]
pub fn alone(name: &str, body: impl FnOnce() + Send + 'static) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return watched("alone", body);
    }
    let output = Command::new(std::env::current_exe().expect("the test binary"))
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(ALONE, name)
        .output()
        .expect("a child process");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{name} alone: {}\n{}", output.status, text.concat());
    assert!(text[0].contains("1 passed"), "no such test: {name}");
}

/// Waits for what no channel can tell. What never becomes true is the watchdog's.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Runs a closure when dropped.
pub struct OnDrop<F: FnOnce()>(Option<F>);

pub fn on_drop<F: FnOnce()>(f: F) -> OnDrop<F> {
    OnDrop(Some(f))
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Counts how many of what it gave out are alive, and how many there were.
#[derive(Clone, Default)]
pub struct Census(Arc<[AtomicUsize; 2]>);

/// One that is counted.
pub struct Counted(Census);

impl Census {
    pub fn new() -> Self {
        Census::default()
    }

    pub fn one(&self) -> Counted {
        self.0[0].fetch_add(1, SeqCst);
        Counted(self.clone())
    }

    pub fn born(&self) -> usize {
        self.0[0].load(SeqCst)
    }

    pub fn dead(&self) -> usize {
        self.0[1].load(SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0[1].fetch_add(1, SeqCst);
    }
}

/// A future of hand-made parts: what it does when polled, and when dropped.
pub struct HandMade<P, D: FnOnce()> {
    poll: P,
    _drop: OnDrop<D>,
}

pub fn hand_made<T, P, D>(poll: P, drop: D) -> HandMade<P, D>
where
    P: FnMut(&mut Context<'_>) -> Poll<T>,
    D: FnOnce(),
{
    HandMade { poll, _drop: on_drop(drop) }
}

impl<T, P, D> Future for HandMade<P, D>
where
    P: FnMut(&mut Context<'_>) -> Poll<T> + Unpin,
    D: FnOnce() + Unpin,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        (self.poll)(cx)
    }
}

/// Sends its waker once, at its first poll, and waits for ever.
pub async fn lend_waker(to: mpsc::Sender<Waker>) {
    let mut to = Some(to);
    std::future::poll_fn(move |cx| {
        if let Some(to) = to.take() {
            to.send(cx.waker().clone()).expect("somebody wants the waker");
        }
        Poll::Pending
    })
    .await
}

/// The waker of a new task that waits for ever and is one of `census`.
pub fn waker_of_one(runtime: &Runtime, census: &Census) -> Waker {
    let ((tx, rx), one) = (mpsc::channel(), census.one());
    let task = async move {
        let _one = one;
        lend_waker(tx).await;
    };
    runtime.spawn(task).detach();
    rx.recv().expect("it is polled")
}

/// A task that wakes itself at every poll until told to stop.
pub fn self_waker(stop: Arc<AtomicBool>) -> impl Future<Output = ()> + Send {
    std::future::poll_fn(move |cx| {
        if stop.load(SeqCst) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Two tasks that wake each other until told to stop.
pub fn ping_pong(stop: &Arc<AtomicBool>) -> [paceline::Task<()>; 2] {
    let (mut ping, mut pings) = futures::channel::mpsc::channel(0);
    let (mut pong, mut pongs) = futures::channel::mpsc::channel(0);
    let stop = stop.clone();
    [
        spawn(async move {
            while !stop.load(SeqCst) {
                ping.send(()).await.unwrap();
                pongs.next().await.unwrap();
            }
        }),
        spawn(async move {
            while pings.next().await.is_some() {
                pong.send(()).await.unwrap();
            }
        }),
    ]
}

/// A waker that calls `f`.
pub fn waker_that(f: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Calls<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Calls(f)))
}

/// Computes until that moment has passed.
pub fn compute_until(moment: Instant) {
    while Instant::now() < moment {
        std::hint::black_box((0..10).sum::<u32>());
    }
}

/// The folders of those threads of this process that are paceline's.
#[cfg(target_os = "linux")]
fn paceline_threads() -> impl Iterator<Item = std::path::PathBuf> {
    let paths = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    paths.map(|task| task.path()).filter(|path| read(path, "comm").starts_with("paceline-"))
}

/// Nothing if the thread has ended meanwhile.
#[cfg(target_os = "linux")]
fn read(path: &std::path::Path, name: &str) -> String {
    std::fs::read_to_string(path.join(name)).unwrap_or_default()
}

/// How many threads of runtimes there are, and how often they have been switched.
#[cfg(target_os = "linux")]
pub fn threads_and_switches() -> (usize, u64) {
    let all: Vec<_> = paceline_threads().map(|path| switches(&path)).collect();
    (all.len(), all.iter().sum())
}

/// For how long the threads of runtimes have had a CPU.
#[cfg(target_os = "linux")]
pub fn cpu_time() -> Duration {
    let nanos = |stat: String| stat.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    let times = paceline_threads().filter_map(|path| nanos(read(&path, "schedstat")));
    Duration::from_nanos(times.sum())
}

/// How often a thread has been switched.
#[cfg(target_os = "linux")]
fn switches(path: &std::path::Path) -> u64 {
    let number = |line: &str| line.split_whitespace().last().and_then(|n| n.parse::<u64>().ok());
    let status = read(path, "status");
    status.lines().filter(|line| line.contains("ctxt")).filter_map(number).sum()
}

/// What the threads of runtimes have done, beside one that only sleeps: that one is switched too when
/// the machine stops all threads, to be copied or moved, say.
#[cfg(target_os = "linux")]
struct Activity {
    threads: std::collections::BTreeMap<std::path::PathBuf, u64>,
    cpu_time: Duration,
    control: [u64; 2],
}

#[cfg(target_os = "linux")]
impl Activity {
    fn now(control: &std::path::Path) -> Self {
        let before = switches(control);
        let threads = paceline_threads().map(|path| {
            let switches = switches(&path);
            (path, switches)
        });
        let (threads, cpu_time) = (threads.collect(), cpu_time());
        Activity { threads, cpu_time, control: [before, switches(control)] }
    }

    /// What has been done since: nothing, or an account.
    fn since(&self, before: &Activity) -> Option<String> {
        let disturbances = self.control[1] - before.control[0];
        let sleeps = |(path, switches): (&std::path::PathBuf, &u64)| {
            before.threads.get(path).is_some_and(|then| switches - then <= disturbances)
        };
        let all_sleep =
            self.threads.len() == before.threads.len() && self.threads.iter().all(sleeps);
        let used = self.cpu_time.saturating_sub(before.cpu_time);
        let nothing = all_sleep && (used.is_zero() || disturbances > 0);
        let (now, then) = (&self.threads, &before.threads);
        let account = || {
            format!("{used:?} used; {disturbances} disturbances;\n{then:?}\nbefore, now\n{now:?}")
        };
        (!nothing).then(account)
    }
}

/// Runs `body` beside a thread that only sleeps; where that is to be found.
#[cfg(target_os = "linux")]
fn with_control<R>(body: impl FnOnce(&std::path::Path) -> R) -> R {
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (_end, ending) = mpsc::channel::<()>();
        scope.spawn(move || {
            // SAFETY: it has no preconditions.
            tell.send(unsafe { libc::gettid() }).expect("somebody wants to know");
            ending.recv().expect_err("nothing is sent");
        });
        let control = told.recv().expect("a number");
        body(format!("/proc/self/task/{control}").as_ref())
    })
}

/// Waits until all threads of runtimes, a ticker among them, have gone to sleep or ended.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn settle() {
    with_control(|control| drop(settled(control)));
}

#[cfg(target_os = "linux")]
#[track_caller]
fn settled(control: &std::path::Path) -> Activity {
    let (mut before, mut quiet) = (Activity::now(control), 0);
    for _ in 0..40 {
        thread::sleep(Duration::from_millis(200));
        let now = Activity::now(control);
        if let Some(a) = now.since(&before) {
            eprintln!("NOTQUIET {a}");
        }
        quiet = if now.since(&before).is_none() { quiet + 1 } else { 0 };
        before = now;
        // Twice: a machine that stands still for a while looks quiet as well.
        if quiet == 2 {
            return before;
        }
    }
    panic!("the threads do not go to sleep: {:?}", before.threads);
}

/// Once the threads of runtimes have gone to sleep, they sleep on while this thread runs `body`.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn assert_all_sleep_while(body: impl FnOnce()) {
    with_control(|control| {
        let before = settled(control);
        assert!(before.threads.len() > 1, "no workers and no ticker: {:?}", before.threads);
        body();
        if let Some(account) = settled(control).since(&before) {
            panic!("not all have slept: {account}");
        }
    });
}

/// As [`assert_all_sleep_while`], for so long.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn assert_all_sleep(length: Duration) {
    assert_all_sleep_while(|| thread::sleep(length));
}

/// How many files this process has open.
#[cfg(target_os = "linux")]
pub fn descriptors() -> usize {
    // That of the look itself is not counted.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Panics without a word from the panic hook.
pub fn silent_panic() -> ! {
    resume_unwind(Box::new("silent"))
}

/// Polls once, with `waker`.
pub fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A hook that passes on what it is told, and where that arrives.
pub fn listener<T: Clone + Send + 'static>()
-> (impl Fn(&T) + Send + Sync + 'static, mpsc::Receiver<T>) {
    let (tell, told) = mpsc::channel();
    // Nobody listens any more once a test is over.
    (move |report: &T| drop(tell.send(report.clone())), told)
}

/// How a task keeps its thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hog {
    /// In one system call.
    Waits,
    /// In one sleep after the other.
    Sleeps,
    Computes,
}

impl Hog {
    pub const ALL: [Hog; 3] = [Hog::Waits, Hog::Sleeps, Hog::Computes];
}

#[derive(Default)]
struct Bar {
    is_open: AtomicBool,
    lock: Mutex<()>,
    opened: Condvar,
}

/// Keeps threads until it is opened or dropped.
#[derive(Default)]
pub struct Gate(Arc<Bar>);

/// The way in to a [`Gate`].
#[derive(Clone)]
pub struct Entrance(Arc<Bar>);

impl Gate {
    pub fn entrance(&self) -> Entrance {
        Entrance(self.0.clone())
    }

    pub fn open(&self) {
        self.0.is_open.store(true, SeqCst);
        // Nobody is between the look and the wait.
        drop(self.0.lock.lock());
        self.0.opened.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Entrance {
    /// Returns when the gate is open.
    pub fn pass(&self, how: Hog) {
        let Bar { is_open, lock, opened } = &*self.0;
        let is_shut = || !is_open.load(SeqCst);
        match how {
            Hog::Waits => drop(opened.wait_while(lock.lock().unwrap(), |_| is_shut()).unwrap()),
            Hog::Sleeps => {
                while is_shut() {
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Hog::Computes => {
                while is_shut() {
                    std::hint::black_box((0..100).sum::<u32>());
                }
            }
        }
    }
}

/// Tasks that do not return from their polls until they are released, or this is dropped.
pub struct Hogs {
    gate: Gate,
    tasks: Vec<Task<()>>,
}

/// Starts `count` of them, called "hog 0" and so on, and waits until each is in its poll.
pub fn hogs(runtime: &Runtime, count: usize, how: Hog) -> Hogs {
    let gate = Gate::default();
    let (tell, told) = mpsc::channel();
    let hog = |i| {
        let (entrance, tell) = (gate.entrance(), tell.clone());
        runtime.spawn_named(format!("hog {i}"), async move {
            tell.send(()).expect("somebody wants to know");
            entrance.pass(how);
        })
    };
    let tasks = (0..count).map(hog).collect();
    (0..count).for_each(|_| told.recv().expect("it is polled"));
    Hogs { gate, tasks }
}

impl Hogs {
    /// Returns when all have ended; a runtime that was dropped has cancelled them.
    pub fn release(self) {
        self.gate.open();
        for task in self.tasks {
            block_foreign(task.fallible());
        }
    }
}

/// How many of many tasks that compute were polled at once, at most.
pub fn most_at_once(runtime: &Runtime) -> usize {
    let tasks = 8 + 4 * runtime.handle().config().worker_threads();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let computes = |_| {
        let (running, most) = (running.clone(), most.clone());
        runtime.spawn(async move {
            for _ in 0..20 {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                std::hint::black_box((0..20_000).sum::<u32>());
                running.fetch_sub(1, SeqCst);
                yield_now().await;
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(computes).collect();
    tasks.into_iter().for_each(block_foreign);
    most.load(SeqCst)
}

async fn echo(mut stream: paceline::net::TcpStream) {
    let mut bytes = [0; 64];
    // It ends with the connection, however that ends.
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Serves an echo on that runtime, with a task per connection, and tells where.
pub fn serve_echo(runtime: &Runtime) -> SocketAddr {
    let _guard = runtime.handle().enter();
    let listener = block_foreign(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream)).detach();
        }
    };
    spawn(serve).detach();
    address
}

/// Sends to an echo, and receives, so many times.
pub fn round_trips(mut stream: &TcpStream, count: usize) {
    let mut answer = [0; 5];
    for _ in 0..count {
        stream.write_all(b"hello").expect("it is read");
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"hello");
    }
}
