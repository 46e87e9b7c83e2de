//! A service that tells what goes wrong in it: `cargo run --release --example watchdog`.
//!
//! Its heart beats in a task that does nothing else. Another task, `report`, blocks its thread in the
//! middle of that, as code does that has never heard of async; there is one worker, and still the heart
//! goes on beating. In the end two tasks wait for each other, which is noticed as well. The exit code is
//! 1 then, as a supervisor of services would want it.

use std::fmt::Display;
use std::io::{self, Write};
use std::process;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join;
use paceline::time::{interval, sleep};
use paceline::{Builder, spawn_named};

const BEATS: u32 = 8;
const BEAT: Duration = Duration::from_millis(200);

fn main() -> io::Result<()> {
    let runtime = Builder::new()
        .worker_threads(1)
        .on_wedge(|wedge| say(wedge))
        .on_deadlock(|census| {
            say(census);
            process::exit(1);
        })
        .build()?;
    // A task itself, so that it need not wait for whatever else runs on this thread.
    let service = runtime.spawn_named("service", serve());
    runtime.block_on(service);
    Ok(())
}

async fn serve() {
    let heart = spawn_named("heart", beat());
    let report = spawn_named("report", report());
    join(heart, report).await;
    say(&"closing the accounts");
    let (to_cash, from_ledger) = oneshot::channel();
    let (to_ledger, from_cash) = oneshot::channel();
    let ledger = spawn_named("ledger", balance(from_cash, to_cash));
    let cash = spawn_named("cash", balance(from_ledger, to_ledger));
    join(ledger, cash).await;
}

async fn beat() {
    let mut ticks = interval(BEAT);
    for beat in 1..=BEATS {
        ticks.tick().await;
        say(&format!("beat {beat}"));
    }
}

/// `paceline::unblock(|| std::thread::sleep(..)).await` would be no wedge.
#[allow(clippy::disallowed_methods)] // the mistake that is shown
async fn report() {
    sleep(BEAT * 5 / 2).await;
    say(&"the report begins");
    std::thread::sleep(BEAT * 3);
    say(&"the report is ready");
}

/// Waits for the other's figure before it tells its own.
async fn balance(theirs: oneshot::Receiver<u32>, mine: oneshot::Sender<u32>) {
    let balanced = theirs.await == Ok(0) && mine.send(0).is_ok();
    assert!(balanced, "something is missing");
}

/// Not `println!`, which panics if the reader has gone.
fn say(text: &dyn Display) {
    let _ = writeln!(io::stdout(), "watchdog: {text}");
}
