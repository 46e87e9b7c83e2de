//! A host with a loop of its own: turns, and what wakes it between them.

use super::*;

const LONG: Duration = Duration::from_secs(3600);

/// A runtime whose callback counts, and sends.
fn hosted() -> (LocalRuntime, Arc<AtomicUsize>, mpsc::Receiver<()>) {
    let (runtime, calls) = (local(), Arc::<AtomicUsize>::default());
    let (tell, told) = mpsc::channel();
    let counts = calls.clone();
    runtime.on_ready(move || {
        counts.fetch_add(1, SeqCst);
        // Nobody listens any more once a test is over.
        let _ = tell.send(());
    });
    (runtime, calls, told)
}

fn stall(runtime: &LocalRuntime) {
    while !runtime.run_until_stalled(LONG) {}
}

#[test]
fn the_callback_is_called_once_after_each_stall_whoever_has_something() {
    with(|_| {
        let (runtime, calls, told) = hosted();
        assert_eq!(calls.load(SeqCst), 0, "nothing waits yet");
        stall(&runtime);
        let (tell, wakers) = mpsc::channel();
        runtime.spawn(common::lend_waker(tell.clone())).detach();
        runtime.handle().spawn(common::lend_waker(tell)).detach();
        assert_eq!(calls.swap(0, SeqCst), 1);
        stall(&runtime);
        assert_eq!(calls.load(SeqCst), 0, "what wakes inside of a turn is found by it");
        let wakers: [_; 2] = [wakers.recv().unwrap(), wakers.recv().unwrap()];
        let handle = runtime.handle().clone();
        let elsewhere = |f: &(dyn Fn() + Sync)| {
            thread::scope(|scope| scope.spawn(f).join().unwrap());
        };
        let sources: [(&str, &dyn Fn()); 7] = [
            ("a wake here", &|| wakers[0].wake_by_ref()),
            ("another's wake here", &|| wakers[1].wake_by_ref()),
            ("a wake elsewhere", &|| elsewhere(&|| wakers[0].wake_by_ref())),
            ("another's wake elsewhere", &|| elsewhere(&|| wakers[1].wake_by_ref())),
            ("a spawn here", &|| runtime.spawn(async {}).detach()),
            ("a spawn through the handle", &|| handle.spawn(async {}).detach()),
            ("a spawn elsewhere", &|| elsewhere(&|| handle.spawn(async {}).detach())),
        ];
        for (what, source) in sources {
            for (second, other) in sources {
                source();
                assert_eq!(calls.load(SeqCst), 1, "{what}");
                other();
                assert_eq!(calls.swap(0, SeqCst), 1, "{what}, then {second}");
                stall(&runtime);
                assert_eq!(calls.load(SeqCst), 0, "{what}, then {second}");
            }
        }
        drop(told);
    });
}

#[test]
fn the_callback_is_called_at_once_if_something_waits_when_it_is_set() {
    with(|runtime| {
        let calls = Arc::<AtomicUsize>::default();
        let set = || {
            let calls = calls.clone();
            runtime.on_ready(move || _ = calls.fetch_add(1, SeqCst));
        };
        set();
        assert_eq!(calls.load(SeqCst), 0);
        runtime.spawn(async {}).detach();
        assert_eq!(calls.swap(0, SeqCst), 1);
        set();
        assert_eq!(calls.swap(0, SeqCst), 1);
        stall(runtime);
        runtime.handle().spawn(async {}).detach();
        assert_eq!(calls.swap(0, SeqCst), 1);
        set();
        assert_eq!(calls.swap(0, SeqCst), 1);
        // In a turn that sees to what there is.
        let set_inside = calls.clone();
        let runtime = Rc::new(local());
        let inside = runtime.clone();
        runtime
            .spawn(async move {
                inside.on_ready(move || _ = set_inside.fetch_add(1, SeqCst));
                yield_now().await;
            })
            .detach();
        stall(&runtime);
        assert_eq!(calls.load(SeqCst), 0);
        runtime.spawn(async {}).detach();
        assert_eq!(calls.load(SeqCst), 1);
    });
}

/// A host that sleeps until it is told, and nothing else: a wake that is lost is a hang.
#[test]
fn no_wake_that_races_the_end_of_a_turn_is_lost() {
    fn race(spawns: bool) {
        const ROUNDS: usize = 10_000;
        let (runtime, calls, told) = hosted();
        let done = Arc::<AtomicUsize>::default();
        let (sender, receiver) = async_channel::unbounded::<usize>();
        let seen = done.clone();
        runtime
            .spawn(async move {
                while receiver.recv().await.is_ok() {
                    seen.fetch_add(1, SeqCst);
                }
            })
            .detach();
        let (handle, counts) = (runtime.handle().clone(), done.clone());
        let races = thread::spawn(move || {
            for round in 0..ROUNDS {
                if spawns && round % 2 == 0 {
                    let counts = counts.clone();
                    handle.spawn(async move { _ = counts.fetch_add(1, SeqCst) }).detach();
                } else {
                    sender.try_send(round).unwrap();
                }
                // Some rounds begin when the one before has been seen, in the end of that turn.
                while round % 4 > 0 && counts.load(SeqCst) <= round {
                    std::hint::spin_loop();
                    if round % 16 > 8 {
                        thread::yield_now();
                    }
                }
            }
        });
        let mut stalls = 0;
        while done.load(SeqCst) < ROUNDS {
            if runtime.run_until_stalled(LONG) {
                stalls += 1;
                if done.load(SeqCst) < ROUNDS {
                    told.recv().unwrap();
                }
            }
        }
        races.join().unwrap();
        let calls = calls.load(SeqCst);
        assert!(calls <= stalls + 1, "{calls} calls in {stalls} stalls");
    }
    watched("of wakes", || race(false));
    watched("of spawns and wakes", || race(true));
}

#[test]
fn a_turn_ends_with_its_budget_and_says_that_something_is_left() {
    with(|_| {
        let (runtime, calls, _told) = hosted();
        let polls = Rc::new(Cell::new(0));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let polls = polls.clone();
            tasks.push(runtime.spawn(async move { polls.set(polls.get() + 1) }));
        }
        assert_eq!(calls.swap(0, SeqCst), 1);
        // One at a time.
        assert!(!runtime.run_until_stalled(Duration::ZERO));
        assert_eq!(polls.get(), 1);
        assert!(!runtime.run_until_stalled(Duration::ZERO));
        assert_eq!(polls.get(), 2);
        let mut turns = 0;
        while !runtime.run_until_stalled(Duration::ZERO) {
            turns += 1;
        }
        assert!(turns <= 2 && polls.get() == 3, "{turns}");
        // A long poll.
        runtime.spawn(async { common::compute_until(Instant::now() + 5 * MILLISECOND) }).detach();
        let after = runtime.spawn(async {});
        assert!(!runtime.run_until_stalled(MILLISECOND));
        assert!(!after.is_finished());
        runtime
            .handle()
            .spawn(async { common::compute_until(Instant::now() + 5 * MILLISECOND) })
            .detach();
        runtime.handle().spawn(async {}).detach();
        assert!(!runtime.run_until_stalled(Duration::ZERO));
        calls.store(0, SeqCst);
        runtime.spawn(async {}).detach();
        assert_eq!(calls.load(SeqCst), 0, "the host knows that there is something");
        stall(&runtime);
        assert!(after.is_finished());
    });
}

#[test]
fn what_tasks_spawn_and_arm_in_a_turn_belongs_to_the_runtime() {
    common::alone("host::what_tasks_spawn_and_arm_in_a_turn_belongs_to_the_runtime", || {
        let (runtime, calls, _told) = hosted();
        let here = thread::current().id();
        let listener = Rc::new(RefCell::new(None));
        let keeps = listener.clone();
        let task = runtime.spawn(async move {
            assert_eq!(spawn(async { thread::current().id() }).await, here);
            let bound = TcpListener::bind("127.0.0.1:0").await.unwrap();
            *keeps.borrow_mut() = Some(bound);
            spawn(sleep(LONG)).detach();
            sleep(LONG).await;
        });
        stall(&runtime);
        let metrics = runtime.metrics();
        assert_eq!((metrics.timers, metrics.sources, metrics.live_tasks), (2, 1, 1));
        assert!(runtime.next_deadline().unwrap() > Instant::now() + LONG / 2);
        // What is armed is no work: a turn is over at once, and the host is not told.
        calls.store(0, SeqCst);
        for _ in 0..100 {
            assert!(runtime.run_until_stalled(LONG));
        }
        assert_eq!(calls.load(SeqCst), 0);
        drop(task);
        #[cfg(target_os = "linux")]
        assert_eq!(common::threads_and_switches().0, 0, "of no other runtime");
    });
}

#[test]
fn the_next_deadline_is_that_of_the_first_timer() {
    with(|_| {
        let (runtime, calls, told) = hosted();
        assert_eq!(runtime.next_deadline(), None);
        let start = Instant::now();
        let far = runtime.spawn(sleep(LONG));
        stall(&runtime);
        let near = runtime.spawn(sleep(LONG / 2));
        stall(&runtime);
        let deadline = runtime.next_deadline().unwrap();
        assert!(deadline >= start + LONG / 2 && deadline < start + LONG, "{:?}", deadline - start);
        drop((far, near));
        stall(&runtime);
        // A timer that has been moved to another thread, and is armed there.
        calls.store(0, SeqCst);
        told.try_iter().for_each(drop);
        let mut timer = paceline::Timer::after(LONG);
        let handle = runtime.handle().clone();
        let arms = thread::spawn(move || {
            let _guard = handle.enter();
            timer.set_after(20 * MILLISECOND);
            let waker = futures::task::noop_waker();
            assert!(common::poll_once(&mut timer, &waker).is_pending());
            timer
        });
        told.recv().unwrap();
        assert_eq!(calls.load(SeqCst), 1);
        let timer = arms.join().unwrap();
        stall(&runtime);
        let deadline = runtime.next_deadline().unwrap();
        assert!(deadline < start + LONG / 2);
        drop(timer);
        // Too early, once.
        thread::sleep(deadline.saturating_duration_since(Instant::now()) + MILLISECOND);
        stall(&runtime);
        assert_eq!(runtime.next_deadline(), None);
    });
}

/// As README has it.
#[test]
fn a_host_can_park_its_thread() {
    with(|_| {
        let runtime = local();
        let host = thread::current();
        runtime.on_ready(move || host.unpark());
        let task = runtime.spawn(async {
            sleep(5 * MILLISECOND).await;
            paceline::unblock(|| 6 * 7).await
        });
        loop {
            let is_stalled = runtime.run_until_stalled(2 * MILLISECOND);
            if task.is_finished() {
                break;
            }
            if is_stalled {
                match runtime.next_deadline() {
                    Some(deadline) => {
                        let left = deadline.saturating_duration_since(Instant::now());
                        thread::park_timeout(left)
                    }
                    None => thread::park(),
                }
            }
        }
        assert_eq!(runtime.block_on(task), 42);
    });
}

/// Timers that follow one another closely fire together: the host sleeps until they do.
#[test]
fn a_host_that_sleeps_until_the_next_deadline_needs_few_turns() {
    with(|_| {
        let (runtime, _, _told) = hosted();
        const TIMERS: u32 = 200;
        let start = Instant::now() + 5 * MILLISECOND;
        let tasks: Vec<_> = (0..TIMERS)
            .map(|number| {
                runtime.spawn(async move {
                    paceline::Timer::at(start + number * MILLISECOND / 10).await;
                })
            })
            .collect();
        let mut turns = 0;
        while !tasks.iter().all(|task| task.is_finished()) {
            assert!(runtime.run_until_stalled(LONG));
            turns += 1;
            if let Some(deadline) = runtime.next_deadline() {
                thread::sleep(deadline.saturating_duration_since(Instant::now()));
            }
        }
        assert!(turns <= TIMERS + 10, "{turns}");
    });
}

#[cfg(unix)]
mod with_descriptor {
    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, RawFd};

    use super::*;

    /// Which of them can be read from within that time.
    fn readable<const N: usize>(descriptors: [RawFd; N], limit: Option<Duration>) -> [bool; N] {
        let mut polled =
            descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // Up: not to be early.
        let limit = limit.map_or(-1, |limit| limit.as_micros().div_ceil(1000).min(60_000) as i32);
        // SAFETY: the pointer and the count are those of the array.
        let count = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, limit) };
        assert!(count >= 0, "{}", std::io::Error::last_os_error());
        polled.map(|polled| polled.revents & libc::POLLIN != 0)
    }

    /// A host's loop: sleeps until something is to be done, in `poll(2)`, until `is_over`.
    fn drive(runtime: &LocalRuntime, budget: Duration, is_over: impl Fn() -> bool) {
        let (mut alarm, alarms) = std::os::unix::net::UnixStream::pair().unwrap();
        alarm.set_nonblocking(true).unwrap();
        alarms.set_nonblocking(true).unwrap();
        runtime.on_ready(move || assert_eq!((&alarms).write(b"!").unwrap(), 1));
        let descriptor = runtime.descriptor().unwrap().as_raw_fd();
        while !is_over() {
            let mut limit = Some(Duration::ZERO);
            if runtime.run_until_stalled(budget) {
                let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                limit = runtime.next_deadline().map(until);
                if is_over() {
                    break;
                }
            }
            let [is_told, _] = readable([alarm.as_raw_fd(), descriptor], limit);
            if is_told {
                assert!(alarm.read(&mut [0; 16]).unwrap() <= 1, "once for each stall");
            }
        }
    }

    #[test]
    fn a_hosts_loop_drives_sockets_timers_wakes_and_spawns_from_threads() {
        for budget in [Duration::ZERO, MILLISECOND, LONG] {
            watched(&format!("with a budget of {budget:?}"), move || {
                let runtime = local();
                let handle = runtime.handle().clone();
                let all = runtime.spawn(async move {
                    for _ in 0..20 {
                        round_trip().await;
                        sleep(MILLISECOND).await;
                        let (sender, receiver) = oneshot::channel();
                        let handle = handle.clone();
                        let other = thread::spawn(move || {
                            handle.spawn(async move {
                                sleep(MILLISECOND).await;
                                sender.send(5).unwrap();
                            })
                        });
                        assert_eq!(receiver.await, Ok(5));
                        other.join().unwrap().await;
                        let (sender, receiver) = async_channel::bounded(1);
                        let sends = thread::spawn(move || sender.send_blocking(7).unwrap());
                        assert_eq!(receiver.recv().await, Ok(7));
                        sends.join().unwrap();
                    }
                });
                drive(&runtime, budget, || all.is_finished());
            });
        }
    }

    #[test]
    fn a_peer_elsewhere_is_served_by_the_descriptor() {
        with(|_| {
            let runtime = local();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (tell, told) = oneshot::channel();
            let clients = thread::spawn(move || {
                for _ in 0..50 {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream.write_all(b"hello").unwrap();
                    stream.read_exact(&mut [0; 5]).unwrap();
                }
                tell.send(()).unwrap();
            });
            let all = runtime.spawn(async move {
                let listener = TcpListener::try_from(listener).unwrap();
                let _server = spawn_local(serve(listener));
                told.await.unwrap();
            });
            drive(&runtime, LONG, || all.is_finished());
            clients.join().unwrap();
        });
    }

    #[test]
    fn the_descriptor_is_readable_when_a_socket_is_until_the_turn_that_sees_to_it() {
        with(|_| {
            let runtime = local();
            let descriptor = runtime.descriptor().unwrap().as_raw_fd();
            assert_eq!(readable([descriptor], Some(Duration::ZERO)), [false]);
            let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
            let total = Rc::new(Cell::new(0));
            let reads = total.clone();
            let _reader = runtime.spawn(async move {
                let mut near = paceline::net::unix::UnixStream::try_from(near).unwrap();
                let mut buffer = [0; 3];
                while let Ok(count @ 1..) = near.read(&mut buffer).await {
                    reads.set(reads.get() + count);
                }
            });
            stall(&runtime);
            for round in 1..=100 {
                assert_eq!(readable([descriptor], Some(Duration::ZERO)), [false], "{round}");
                far.write_all(b"hello").unwrap();
                assert_eq!(readable([descriptor], None), [true]);
                stall(&runtime);
                assert_eq!(total.get(), 5 * round);
            }
        });
    }

    /// What a sleep in the poller has left there: the host is woken by it once, and not again and again.
    #[test]
    fn a_turn_leaves_nothing_in_the_descriptor_that_is_not_a_sockets() {
        with(|_| {
            for has_timer in [false, true] {
                let runtime = local();
                // Sleeps until a moment that is still to come when it is woken otherwise.
                runtime.block_on(async {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let (sender, receiver) = oneshot::channel();
                    let sends = thread::spawn(move || sender.send(()).unwrap());
                    let timer = spawn_local(sleep(20 * MILLISECOND));
                    receiver.await.unwrap();
                    sends.join().unwrap();
                    drop((timer, listener));
                });
                let timer = has_timer.then(|| runtime.spawn(sleep(LONG)));
                // As who wakes a thread does that is about to wake up.
                let descriptor = runtime.descriptor().unwrap().as_raw_fd();
                stall(&runtime);
                readable([descriptor], Some(30 * MILLISECOND));
                stall(&runtime);
                assert_eq!(readable([descriptor], Some(Duration::ZERO)), [false]);
                drop(timer);
            }
        });
    }

    #[test]
    fn block_on_and_turns_take_turns() {
        with(|_| {
            let runtime = local();
            runtime.block_on(both());
            let ended = runtime.spawn(both());
            runtime.block_on(yield_now());
            drive(&runtime, MILLISECOND, || ended.is_finished());
            runtime.block_on(both());
            let ended = runtime.handle().spawn(sleep(MILLISECOND));
            drive(&runtime, MILLISECOND, || ended.is_finished());
        });
    }

    async fn both() {
        round_trip().await;
        sleep(MILLISECOND).await;
    }
}
