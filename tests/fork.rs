//! A process that was forked from one with a runtime: clear errors, no hang.
#![cfg(unix)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use paceline::{Async, Runtime, Timer};

/// Runs `body` in a forked child; true if it returned true there.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `body` on its only thread, which holds no lock, and exits.
    unsafe {
        match libc::fork() {
            0 => {
                let fine = catch_unwind(AssertUnwindSafe(body)).unwrap_or(false);
                libc::_exit(i32::from(!fine));
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

fn says_that_it_forked(body: impl FnOnce()) -> bool {
    let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("a runtime of the parent's");
    let message = panic.downcast_ref::<String>().cloned();
    message
        .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .is_some_and(|message| message.contains("forked") && message.contains("in the child"))
}

#[test]
fn a_runtime_in_a_forked_child_is_an_error_and_a_new_one_works() {
    common::alone("a_runtime_in_a_forked_child_is_an_error_and_a_new_one_works", || {
        let runtime = common::runtime(2);
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            paceline::spawn(paceline::time::sleep(Duration::from_millis(1))).await;
        });
        assert!(in_child(|| {
            let _guard = handle.enter();
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            let error = Async::new(socket).expect_err("a runtime of the parent's");
            error.to_string().contains("forked")
                && says_that_it_forked(|| handle.block_on(async {}))
                && says_that_it_forked(|| handle.spawn(async {}).detach())
        }));
        assert!(in_child(|| says_that_it_forked(|| {
            let _guard = handle.enter();
            futures::executor::block_on(Timer::after(Duration::from_millis(1)));
        })));
        // The poller is shared with the child, which must leave the parent's registrations alone.
        let _guard = handle.enter();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (near, far) = (Async::new(near).unwrap(), Async::new(far).unwrap());
        let mut near = Some(near);
        assert!(in_child(|| near.take().is_some()));
        let near = near.unwrap();
        runtime.block_on(async {
            let read = near.read_with(|mut near| std::io::Read::read(&mut near, &mut [0; 8]));
            let write = far.write_with(|mut far| std::io::Write::write(&mut far, b"ping"));
            let (read, written) = futures::future::join(read, write).await;
            assert_eq!((read.unwrap(), written.unwrap()), (4, 4));
        });
        drop((near, far, _guard));
        assert!(in_child(|| {
            let mine = Runtime::new().unwrap();
            mine.block_on(async {
                paceline::spawn(paceline::time::sleep(Duration::from_millis(1))).await;
            });
            drop(mine);
            drop(runtime);
            true
        }));
    });
}
