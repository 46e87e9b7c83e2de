//! Who has nothing to do does nothing: no thread of a runtime wakes up, or uses any CPU time, once it has
//! settled; whatever it has been through. Idle runtimes whose tasks only wait are in `ticker.rs`, with
//! sockets and timers in `reactor.rs`.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods)] // what is tested here is time

mod common;

use std::future::pending;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{
    Hog, alone, assert_all_sleep, cpu_time, hogs, listener, most_at_once, round_trips, runtime,
    serve_echo, settle, threads_and_switches, until,
};
use futures::channel::oneshot;
use futures::executor::block_on as block_foreign;
use futures::future::join_all;
use paceline::time::sleep;
use paceline::{Builder, Runtime, block_in_place, spawn, unblock};

const FAR: Duration = Duration::from_secs(3_600);
const A_WHILE: Duration = Duration::from_secs(3);

#[track_caller]
fn assert_sleeps() {
    assert_all_sleep(A_WHILE);
}

/// Tasks that wait for one another, for timers far away, and for sockets; the client's end of those.
fn populate(runtime: &Runtime) -> Vec<TcpStream> {
    (0..100).for_each(|_| runtime.spawn(pending::<()>()).detach());
    (1..100).for_each(|i| runtime.spawn(sleep(FAR * i)).detach());
    let address = serve_echo(runtime);
    let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    clients.iter().for_each(|client| round_trips(client, 3));
    clients
}

#[test]
fn of_a_runtime_that_was_dropped_nothing_is_left() {
    alone("of_a_runtime_that_was_dropped_nothing_is_left", || {
        for workers in [1, 4] {
            let runtime = runtime(workers);
            let _clients = populate(&runtime);
            let hogs = hogs(&runtime, workers, Hog::Waits);
            most_at_once(&runtime);
            hogs.release();
            drop(runtime);
        }
        // A joined thread may be listed until the kernel has reaped it.
        until(|| threads_and_switches() == (0, 0));
    });
}

#[test]
fn a_runtime_that_was_leaked_sleeps() {
    alone("a_runtime_that_was_leaked_sleeps", || {
        let runtime = runtime(4);
        let clients = populate(&runtime);
        most_at_once(&runtime);
        std::mem::forget(runtime);
        assert_sleeps();
        // It has not slept in.
        clients.iter().for_each(|client| round_trips(client, 3));
        assert_sleeps();
    });
}

#[test]
fn a_runtime_whose_last_handle_and_tasks_were_leaked_sleeps() {
    alone("a_runtime_whose_last_handle_and_tasks_were_leaked_sleeps", || {
        let runtime = runtime(2);
        let tasks: Vec<_> = (0..100).map(|_| runtime.spawn(sleep(FAR))).collect();
        runtime.block_on(async { spawn(async {}).await });
        std::mem::forget((runtime.handle().clone(), tasks, runtime));
        assert_sleeps();
    });
}

#[test]
fn a_runtime_sleeps_after_wedges() {
    alone("a_runtime_sleeps_after_wedges", || {
        for how in Hog::ALL {
            let (hook, reports) = listener();
            let runtime = Builder::new().worker_threads(4).on_wedge(hook).build().unwrap();
            let clients = populate(&runtime);
            let hogs = hogs(&runtime, 4, how);
            (0..4).for_each(|_| assert_eq!(reports.recv().map(|wedge| wedge.is_over), Ok(false)));
            most_at_once(&runtime);
            clients.iter().for_each(|client| round_trips(client, 3));
            hogs.release();
            (0..4).for_each(|_| assert_eq!(reports.recv().map(|wedge| wedge.is_over), Ok(true)));
            assert_sleeps();
            assert_eq!(runtime.metrics().spare_workers, 0);
            clients.iter().for_each(|client| round_trips(client, 3));
        }
    });
}

#[test]
fn a_runtime_sleeps_while_and_after_jobs_block() {
    alone("a_runtime_sleeps_while_and_after_jobs_block", || {
        let runtime = runtime(4);
        let _clients = populate(&runtime);
        let (end, ending) = mpsc::channel::<()>();
        let long = unblock(move || ending.recv().unwrap_err());
        runtime.block_on(async {
            let jobs = (0..50).map(|_| unblock(|| ()));
            join_all(jobs).await;
            block_in_place(|| ());
        });
        assert_sleeps();
        drop(end);
        runtime.block_on(long);
        assert_sleeps();
    });
}

#[test]
fn a_runtime_sleeps_beside_what_blocks_in_place() {
    alone("a_runtime_sleeps_beside_what_blocks_in_place", || {
        let runtime = runtime(2);
        let clients = populate(&runtime);
        let (end, ending) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let blocks = runtime.spawn(async move {
            block_in_place(|| {
                tell.send(()).unwrap();
                ending.recv().unwrap_err();
            });
        });
        told.recv().unwrap();
        clients.iter().for_each(|client| round_trips(client, 3));
        assert_sleeps();
        drop(end);
        block_foreign(blocks);
        assert_sleeps();
    });
}

/// Whoever is to be told of wedges and deadlocks costs nothing as long as there are none; and what was
/// told of once is not looked for again.
#[test]
fn hooks_do_not_keep_a_runtime_awake() {
    alone("hooks_do_not_keep_a_runtime_awake", || {
        let (hook, censuses) = listener();
        let runtime = Builder::new()
            .worker_threads(2)
            .on_wedge(|_| panic!("there is none"))
            .on_deadlock(hook)
            .build()
            .unwrap();
        let runtime = Arc::new(runtime);
        // Nobody waits for these tasks.
        (0..10).for_each(|_| runtime.spawn(pending::<()>()).detach());
        runtime.block_on(async { spawn(async {}).await });
        assert_sleeps();
        // Somebody waits for a timer.
        let far = runtime.spawn(sleep(FAR));
        let (release, gate) = oneshot::channel::<()>();
        let waits = runtime.clone();
        let main = thread::spawn(move || waits.block_on(gate));
        assert_sleeps();
        assert!(censuses.try_recv().is_err());
        // Now nothing can happen any more.
        drop(far);
        censuses.recv().unwrap();
        assert_sleeps();
        assert!(censuses.try_recv().is_err());
        release.send(()).unwrap();
        main.join().unwrap().unwrap();
        assert_sleeps();
    });
}

/// It looks after a wedge that nobody waits behind, but not in a hurry.
#[test]
fn a_lasting_wedge_costs_little() {
    alone("a_lasting_wedge_costs_little", || {
        let runtime = runtime(2);
        let _clients = populate(&runtime);
        let hogs = hogs(&runtime, 2, Hog::Waits);
        most_at_once(&runtime);
        thread::sleep(A_WHILE);
        let before = cpu_time();
        thread::sleep(A_WHILE);
        let used = cpu_time() - before;
        println!("{used:?} in {A_WHILE:?}");
        assert!(used < A_WHILE / 20, "{used:?} in {A_WHILE:?}");
        hogs.release();
        settle();
    });
}
