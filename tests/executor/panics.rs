//! Panics while threads run the executor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use futures_lite::FutureExt;
use futures_lite::future::block_on;

use crate::common::{silent_panic, watched};
use crate::either::{assert_works, yields};
use crate::{Drive, Ex, driven};

#[test]
fn ten_thousand_panics_cost_no_thread() {
    for how in Drive::ALL {
        watched(&format!("by {how:?}"), move || {
            let ex = Ex::new();
            driven(&ex, how, 3, || {
                let tasks: Vec<_> = (0..10_000)
                    .map(|i| {
                        ex.spawn(async move {
                            yields(i % 2).await;
                            silent_panic()
                        })
                    })
                    .collect();
                for task in tasks {
                    let result: thread::Result<()> =
                        block_on(AssertUnwindSafe(task).catch_unwind());
                    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "silent");
                }
                assert!(ex.is_empty());
            });
            assert_works(&ex);
        });
    }
}

#[test]
fn runs_whose_futures_panic_strand_nothing() {
    watched("", || {
        let ex = Ex::new();
        let tasks: Vec<_> = (0..2_000).map(|_| ex.spawn(yields(20))).collect();
        thread::scope(|scope| {
            for times in 0..3 {
                let ex = &ex;
                scope.spawn(move || {
                    for _ in 0..20 {
                        let run = AssertUnwindSafe(|| {
                            block_on(ex.run(async move {
                                yields(times).await;
                                silent_panic()
                            }))
                        });
                        let _: Box<_> = catch_unwind(run).unwrap_err();
                    }
                });
            }
        });
        driven(&ex, Drive::Run, 1, || tasks.into_iter().for_each(block_on));
        assert!(ex.is_empty());
    });
}
