//! Wakes that race the end of a task or of its executor, ten thousand times each.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use futures_lite::future::block_on;

use super::{Ex, linger, tick_all};
use crate::common::{Census, lend_waker, until, watched};

const ROUNDS: usize = 10_000;

/// Threads that each call a waker when a round begins.
struct Wakers {
    /// One per thread.
    places: Vec<Mutex<Option<Waker>>>,
    round: AtomicUsize,
    done: AtomicUsize,
}

impl Wakers {
    /// Lets `body` have rounds with so many threads.
    fn with(threads: usize, body: impl FnOnce(&Wakers)) {
        let wakers = Wakers {
            places: (0..threads).map(|_| Mutex::new(None)).collect(),
            round: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        };
        thread::scope(|scope| {
            for place in &wakers.places {
                let wakers = &wakers;
                scope.spawn(move || wakers.serve(place));
            }
            let _end = crate::common::on_drop(|| wakers.round.store(usize::MAX, SeqCst));
            body(&wakers);
        });
    }

    fn serve(&self, place: &Mutex<Option<Waker>>) {
        for round in 1.. {
            until(|| self.round.load(SeqCst) >= round);
            if self.round.load(SeqCst) == usize::MAX {
                return;
            }
            let waker = place.lock().unwrap().take();
            if let Some(waker) = waker {
                let clone = waker.clone();
                waker.wake_by_ref();
                waker.wake();
                clone.wake();
            }
            self.done.fetch_add(1, SeqCst);
        }
    }

    /// All of them call a waker while this thread does `meanwhile`, which begins a little later each time.
    fn round(&self, waker: &Waker, number: usize, meanwhile: impl FnOnce()) {
        let begun = self.round.load(SeqCst);
        for place in &self.places {
            *place.lock().unwrap() = Some(waker.clone());
        }
        self.round.store(begun + 1, SeqCst);
        linger(number % 512);
        meanwhile();
        until(|| self.done.load(SeqCst) == (begun + 1) * self.places.len());
    }
}

/// A task that waits, and its waker.
fn waiting(ex: &Ex<'_>, census: &Census) -> Waker {
    let ((lend, lent), one) = (mpsc::channel(), census.one());
    let task = async move {
        let _one = one;
        lend_waker(lend).await;
    };
    ex.spawn(task).detach();
    tick_all(ex);
    lent.recv().unwrap()
}

#[test]
fn wakes_from_four_threads_race_the_executors_end() {
    watched("", || {
        Wakers::with(4, |wakers| {
            let census = Census::new();
            for round in 0..ROUNDS {
                let ex = Ex::new();
                let waker = waiting(&ex, &census);
                wakers.round(&waker, round, || drop(ex));
                assert_eq!(census.dead(), census.born());
            }
        });
    });
}

#[test]
fn the_executors_end_drops_a_future_although_wakes_race_it() {
    watched("", || {
        Wakers::with(2, |wakers| {
            let census = Census::new();
            for round in 0..ROUNDS {
                let ex = Ex::new();
                let waker = waiting(&ex, &census);
                let mut dead = 0;
                wakers.round(&waker, round, || {
                    drop(ex);
                    dead = census.dead();
                });
                assert_eq!(dead, round + 1, "by the time the drop returns");
            }
        });
    });
}

/// Pending until told otherwise, with its waker for whoever tells.
fn waits_for(
    told: &Arc<AtomicBool>,
    lend: mpsc::Sender<Waker>,
) -> impl Future<Output = usize> + Send + use<> {
    let told = told.clone();
    let mut polls = 0;
    poll_fn(move |cx| {
        polls += 1;
        if told.load(SeqCst) {
            return Poll::Ready(polls);
        }
        if polls == 1 {
            lend.send(cx.waker().clone()).unwrap();
        }
        Poll::Pending
    })
}

#[test]
fn wakes_race_a_tasks_completion_and_none_is_lost() {
    watched("", || {
        Wakers::with(2, |wakers| {
            let ex = Ex::new();
            for round in 0..ROUNDS {
                let (told, (lend, lent)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
                let task = ex.spawn(waits_for(&told, lend));
                tick_all(&ex);
                let waker = lent.recv().unwrap();
                let mut polls = 0;
                told.store(round % 2 == 0, SeqCst);
                wakers.round(&waker, round, || {
                    told.store(true, SeqCst);
                    if round % 2 == 1 {
                        waker.wake_by_ref();
                    }
                    polls = block_on(ex.run(task));
                });
                // Six wakes and our own.
                assert!((2..=8).contains(&polls), "{polls} polls");
            }
            tick_all(&ex);
            assert!(ex.is_empty());
        });
    });
}

#[test]
fn wakes_race_a_cancel_and_the_future_is_dropped() {
    watched("", || {
        Wakers::with(2, |wakers| {
            let (ex, census) = (Ex::new(), Census::new());
            for round in 0..ROUNDS {
                let (told, (lend, lent)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
                let (one, waits) = (census.one(), waits_for(&told, lend));
                let task = ex.spawn(async move {
                    let _one = one;
                    waits.await
                });
                tick_all(&ex);
                let waker = lent.recv().unwrap();
                wakers.round(&waker, round, || match round % 3 {
                    0 => drop(task),
                    1 => assert_eq!(block_on(ex.run(task.cancel())), None),
                    _ => {
                        told.store(true, SeqCst);
                        let output = block_on(ex.run(task.cancel()));
                        assert!(output.is_none_or(|polls| polls >= 2));
                    }
                });
                tick_all(&ex);
                assert_eq!(census.dead(), round + 1);
            }
            assert!(ex.is_empty());
        });
    });
}
