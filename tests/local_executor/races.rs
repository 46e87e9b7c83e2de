//! Another thread's wakes, cancels and drops race what happens at home, ten thousand times each; the future
//! is dropped at home all the same.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use futures_lite::future::{block_on, yield_now};

use crate::Ex;
use crate::common::{on_drop, until, watched};
use crate::either::{linger, tick_all, yields};
use crate::home::{Homes, homely};

const ROUNDS: usize = 10_000;

/// Another thread, awake, that does what it is given, one after the other.
struct Foreigner {
    give: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    given: Cell<usize>,
    begun: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

impl Foreigner {
    fn with(body: impl FnOnce(&Foreigner)) {
        let (give, given) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let [begun, done] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (b, d) = (begun.clone(), done.clone());
        let foreigner = Foreigner { give, given: Cell::new(0), begun: b, done: d };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    for deed in given.try_iter() {
                        begun.fetch_add(1, SeqCst);
                        deed();
                        done.fetch_add(1, SeqCst);
                    }
                    thread::yield_now();
                }
            });
            let _end = on_drop(|| over.store(true, SeqCst));
            body(&foreigner);
        });
    }

    /// This thread goes on once that has begun, a little later each time.
    fn does(&self, deed: impl FnOnce() + Send + 'static) {
        let number = self.given.get();
        self.given.set(number + 1);
        self.give.send(Box::new(deed)).expect("it is there");
        until(|| self.begun.load(SeqCst) > number);
        linger(number % 128);
    }

    fn has_done_all(&self) -> bool {
        self.done.load(SeqCst) == self.given.get()
    }

    fn wait(&self) {
        until(|| self.has_done_all());
    }

    /// As [`Foreigner::wait`], while others run.
    async fn finish(&self) {
        while !self.has_done_all() {
            thread::yield_now();
            yield_now().await;
        }
    }
}

/// Waits for `told`; its waker goes to `lend`.
async fn waits_for(told: Arc<AtomicBool>, lend: mpsc::Sender<Waker>) -> usize {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        if told.load(SeqCst) {
            return Poll::Ready(());
        }
        // Nobody wants a second one.
        let _ = lend.send(cx.waker().clone());
        Poll::Pending
    })
    .await;
    polls
}

#[test]
fn foreign_wakes_race_completion_and_none_is_lost() {
    watched("", || {
        Foreigner::with(|foreigner| {
            let (homes, local) = (Homes::default(), Ex::new());
            for round in 0..ROUNDS {
                let (told, (lend, lent)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
                let task = local.spawn(homely(&homes, waits_for(told.clone(), lend)));
                if round % 2 == 0 {
                    tick_all(&local);
                }
                foreigner.does(move || {
                    // Without it yet, the task will look.
                    let waker = lent.try_recv().ok();
                    told.store(true, SeqCst);
                    waker.iter().for_each(Waker::wake_by_ref);
                    // It may have come meanwhile, with the waker.
                    lent.try_iter().for_each(Waker::wake);
                    waker.into_iter().for_each(Waker::wake);
                    // What comes still later is woken when this ends.
                    lent.into_iter().for_each(Waker::wake);
                });
                let polls = block_on(local.run(task));
                assert!((1..=2).contains(&polls), "{polls} polls");
                foreigner.wait();
                homes.assert_dropped(round + 1);
            }
            tick_all(&local);
            assert!(local.is_empty());
        });
    });
}

#[test]
fn foreign_wakes_race_a_cancel_at_home() {
    watched("", || {
        Foreigner::with(|foreigner| {
            let (homes, local) = (Homes::default(), Ex::new());
            for round in 0..ROUNDS {
                let (told, (lend, lent)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
                let task = local.spawn(homely(&homes, waits_for(told.clone(), lend)));
                tick_all(&local);
                let waker = lent.recv().unwrap();
                foreigner.does(move || {
                    told.store(round % 4 == 0, SeqCst);
                    waker.wake_by_ref();
                    waker.wake();
                });
                match round % 2 {
                    0 => {
                        let output = block_on(local.run(task.cancel()));
                        assert!(output.is_none_or(|polls| polls >= 2));
                    }
                    _ => drop(task),
                }
                foreigner.wait();
                tick_all(&local);
                homes.assert_dropped(round + 1);
            }
            assert!(local.is_empty());
        });
    });
}

#[test]
fn foreign_cancels_race_completion() {
    watched("", || {
        Foreigner::with(|foreigner| {
            let (homes, local, completed) = (Homes::default(), Ex::new(), Rc::new(Cell::new(0)));
            let outputs = Arc::new(AtomicUsize::new(0));
            for round in 0..ROUNDS {
                let (completed, outputs) = (completed.clone(), outputs.clone());
                let task = local.spawn(homely(&homes, async move {
                    yields(round % 4).await;
                    completed.set(completed.get() + 1);
                }));
                foreigner.does(move || match round % 3 {
                    0 => _ = outputs.fetch_add(block_on(task.cancel()).map_or(0, |()| 1), SeqCst),
                    1 => drop(task),
                    _ => drop(block_on(task.fallible().cancel())),
                });
                block_on(local.run(foreigner.finish()));
                tick_all(&local);
                homes.assert_dropped(round + 1);
                assert!(local.is_empty());
            }
            assert!(outputs.load(SeqCst) <= completed.get());
        });
    });
}

/// Elsewhere, a wake or a cancel that races the end may keep a future for ever, but drops none.
#[test]
fn foreign_wakes_and_cancels_race_the_executors_end() {
    const TASKS: usize = 9;
    watched("", || {
        Foreigner::with(|foreigner| {
            let homes = Homes::default();
            for round in 0..ROUNDS {
                let (local, (lend, lent)) = (Ex::new(), mpsc::channel());
                let mut tasks: Vec<_> = (0..TASKS)
                    .map(|_| local.spawn(homely(&homes, waits_for(Arc::default(), lend.clone()))))
                    .collect();
                tick_all(&local);
                let wakers: Vec<_> = lent.try_iter().take(TASKS - 1).collect();
                let waits = tasks.pop().expect("the last one");
                foreigner.does(move || {
                    wakers[..4].iter().for_each(Waker::wake_by_ref);
                    match round % 4 {
                        0 => drop(waits),
                        1 => assert_eq!(block_on(waits.fallible()), None),
                        2 => assert_eq!(block_on(waits.cancel()), None),
                        _ => waits.detach(),
                    }
                    wakers.into_iter().for_each(Waker::wake);
                });
                drop(local);
                homes.assert_dropped(TASKS * (round + 1));
                foreigner.wait();
            }
        });
    });
}

#[test]
fn a_foreign_thread_keeps_waking_while_everything_is_done() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        let over = AtomicBool::new(false);
        let (lend, lent) = mpsc::channel::<Waker>();
        thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let mut wakers = Vec::new();
                while !over.load(SeqCst) {
                    wakers.extend(lent.try_iter());
                    if wakers.len() > 200 {
                        wakers.drain(..100);
                    }
                    wakers.iter().for_each(Waker::wake_by_ref);
                }
            });
            block_on(local.run(async {
                for round in 0..2_000 {
                    let lend = lend.clone();
                    let mut left = round % 7;
                    let task = local.spawn(homely(
                        &homes,
                        poll_fn(move |cx| {
                            // Nobody wants it once all is over.
                            let _ = lend.send(cx.waker().clone());
                            if left == 0 {
                                return Poll::Ready(());
                            }
                            left -= 1;
                            Poll::Pending
                        }),
                    ));
                    match round % 3 {
                        0 => task.await,
                        1 => drop(task.cancel().await),
                        _ => task.detach(),
                    }
                }
                while !local.is_empty() {
                    yield_now().await;
                }
                over.store(true, SeqCst);
            }));
        });
        drop(local);
        homes.assert_dropped(2_000);
    });
}
