#![allow(clippy::disallowed_methods)]
mod common;
use common::*;
use futures::executor::block_on as block_foreign;
use paceline::yield_now;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
#[test]
fn repro() {
    for _ in 0..200 {
        let runtime = runtime(1);
        let runs = Arc::new(AtomicUsize::new(0));
        let at = Arc::new(AtomicUsize::new(0));
        let (h, a) = (runtime.handle().clone(), at.clone());
        let done = Arc::new(AtomicUsize::new(0));
        let d = done.clone();
        let w = std::thread::spawn(move || {
            for i in 0..50 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                if d.load(SeqCst) == 1 {
                    return;
                }
                if i > 40 {
                    eprintln!("at {} {:#?}", a.load(SeqCst), h.metrics());
                }
            }
            if d.load(SeqCst) == 0 {
                for t in std::fs::read_dir("/proc/self/task").unwrap() {
                    let t = t.unwrap().path();
                    let r = |n: &str| std::fs::read_to_string(t.join(n)).unwrap_or_default();
                    eprintln!("{} {} {}", r("comm").trim(), r("wchan"), r("stat"));
                }
                if std::env::var_os("HANG").is_some() {
                    loop {
                        std::thread::park();
                    }
                }
                std::process::exit(1);
            }
        });
        let mut tasks = Vec::new();
        for round in 0..20 {
            at.store(round * 10, SeqCst);
            let hogs = hogs(&runtime, 1, Hog::ALL[round % 2]);
            at.store(round * 10 + 1, SeqCst);
            for _ in 0..100 {
                let runs = runs.clone();
                tasks.push(runtime.spawn(async move {
                    for _ in 0..10 {
                        yield_now().await;
                    }
                    runs.fetch_add(1, SeqCst);
                }));
            }
            if round % 3 == 0 {
                at.store(round * 10 + 2, SeqCst);
                tasks.drain(..).for_each(block_foreign);
            }
            at.store(round * 10 + 3, SeqCst);
            hogs.release();
        }
        at.store(2000, SeqCst);
        tasks.into_iter().for_each(block_foreign);
        assert_eq!(runs.load(SeqCst), 2_000);
        at.store(3000, SeqCst);
        until(|| runtime.metrics().live_tasks == 0);
        done.store(1, SeqCst);
        w.join().unwrap();
    }
}
