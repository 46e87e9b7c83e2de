//! Settings: bad ones are refused by name, good ones can be read back.

use std::process::Command;
use std::time::Duration;

use paceline::{Builder, Handle, Runtime, Ticker};

fn refused(builder: Builder) -> String {
    let error = builder.build().map(drop).expect_err("to be refused");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    error.to_string()
}

#[test]
fn a_bad_setting_is_an_error_that_names_it_and_what_is_accepted() {
    for count in [0, 4_097, usize::MAX] {
        let message = refused(Builder::new().worker_threads(count));
        assert!(message.contains("worker_threads") && message.contains("1 to 4096"), "{message}");
        assert!(message.contains(&count.to_string()), "{message}");
    }
    let message = refused(Builder::new().thread_stack_size(10));
    assert!(message.contains("thread_stack_size") && message.contains("16384"), "{message}");
    let message = refused(Builder::new().thread_name("a\0b"));
    assert!(message.contains("thread_name"), "{message}");
    let message = refused(Builder::new().ticker(Ticker::Every(Duration::ZERO)));
    assert!(message.contains("ticker") && message.contains("Ticker::Off"), "{message}");
}

#[test]
fn the_settings_in_force_can_be_read_back() {
    let runtime = Builder::new()
        .worker_threads(3)
        .thread_name("mine")
        .thread_stack_size(1 << 20)
        .wake_slot(false)
        .timeslice(Duration::from_millis(1))
        .ticker(Ticker::Every(Duration::from_millis(7)))
        .build()
        .unwrap();
    let config = runtime.handle().config();
    assert_eq!(config.worker_threads(), 3);
    assert_eq!(config.thread_name(), "mine");
    assert_eq!(config.thread_stack_size(), Some(1 << 20));
    assert!(!config.wake_slot());
    assert_eq!(config.timeslice(), Duration::from_millis(1));
    assert_eq!(config.ticker(), Ticker::Every(Duration::from_millis(7)));
    assert!(matches!(config.spin(), paceline::Spin::Adaptive | paceline::Spin::Off));
    assert_eq!(config.wedge_after(), Duration::from_millis(50));
    let default = Runtime::new().unwrap();
    assert_eq!(default.handle().config().ticker(), Ticker::Adaptive);
    assert!(default.handle().config().wake_slot());
}

#[test]
fn threads_have_the_name_and_run_the_hooks() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, mpsc};
    let (started, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |counter: &Arc<AtomicUsize>| {
        let counter = counter.clone();
        move || {
            counter.fetch_add(1, SeqCst);
            panic!("a panic in a hook is contained");
        }
    };
    let runtime = Builder::new()
        .worker_threads(1)
        .thread_name("named")
        .on_thread_start(count(&started))
        .on_thread_stop(count(&stopped))
        .build()
        .unwrap();
    let (name, names) = mpsc::channel();
    let task = move || name.send(std::thread::current().name().map(str::to_owned)).unwrap();
    runtime.spawn(async move { task() }).detach();
    assert_eq!(names.recv().unwrap().as_deref(), Some("named"));
    drop(runtime);
    assert_eq!((started.load(SeqCst), stopped.load(SeqCst)), (1, 1));
}

/// Runs the test `child` of this file in a process with `PACELINE_WORKERS` set.
fn default_runtime_with(workers: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env("PACELINE_WORKERS", workers)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child() {
    paceline::block_on(async {
        println!("workers: {}", Handle::current().config().worker_threads());
    });
}

#[test]
fn the_environment_sets_the_default_runtimes_workers_or_says_what_is_wrong() {
    let (success, text) = default_runtime_with("3");
    assert!(success && text.contains("workers: 3"), "{text}");
    for bad in ["0", "many", "100000", ""] {
        let (success, text) = default_runtime_with(bad);
        assert!(!success && text.contains("PACELINE_WORKERS"), "{bad:?}: {text}");
        assert!(text.contains("1 to 4096"), "{bad:?}: {text}");
    }
}

/// A runtime whose threads cannot be started: no machine has that much memory for a stack.
#[cfg(target_os = "linux")]
fn without_threads() -> Runtime {
    Builder::new().worker_threads(1).thread_stack_size(1 << 60).build().unwrap()
}

fn panic_message(run: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    payload.downcast_ref::<String>().cloned().expect("a formatted message")
}

#[cfg(target_os = "linux")]
#[test]
fn a_spawn_that_can_start_no_thread_says_so() {
    let runtime = without_threads();
    let message = panic_message(|| drop(runtime.spawn(async {})));
    assert!(message.contains("could not start a worker thread"), "{message}");
    assert!(message.contains("thread_stack_size"), "{message}");
    // The thread in `block_on` is worker enough.
    assert_eq!(runtime.block_on(async { paceline::spawn(async { 1 }).await }), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_nested_block_on_that_can_start_no_thread_says_so_and_does_not_hang() {
    let runtime = without_threads();
    let error = runtime.block_on(async {
        let nested = paceline::spawn(async {
            // Nobody could run this while the only thread waits for it.
            let other = paceline::spawn(async { 1 });
            Handle::current().block_on(other)
        });
        nested.join().await.unwrap_err()
    });
    assert!(error.to_string().contains("`block_on` inside a task"), "{error}");
    assert_eq!(runtime.block_on(async { paceline::spawn(async { 2 }).await }), 2);
}
