//! A task's handle may go to other threads, its wakers too; its future stays at home.

use std::cell::Cell;
use std::future::{Future, pending};
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread::{self, ThreadId};

use futures::channel::oneshot;
use futures_lite::FutureExt;
use futures_lite::future::{block_on, yield_now};

use crate::common::{lend_waker, silent_panic, watched};
use crate::either::{tick_all, yields};
use crate::{Ex, ex};

/// How many homebodies have been dropped at home, and elsewhere.
#[derive(Clone, Default)]
pub struct Homes(Arc<[AtomicUsize; 2]>);

/// Notes where it is dropped.
pub struct Homebody {
    home: ThreadId,
    homes: Homes,
    _not_send: PhantomData<Rc<()>>,
}

impl Homes {
    /// One whose home is this thread.
    pub fn one(&self) -> Homebody {
        let home = thread::current().id();
        Homebody { home, homes: self.clone(), _not_send: PhantomData }
    }

    /// How many have been dropped, all at home.
    #[track_caller]
    pub fn dropped(&self) -> usize {
        let [at_home, elsewhere] = &*self.0;
        assert_eq!(elsewhere.load(SeqCst), 0, "dropped elsewhere");
        at_home.load(SeqCst)
    }

    #[track_caller]
    pub fn assert_dropped(&self, count: usize) {
        assert_eq!(self.dropped(), count);
    }
}

impl Drop for Homebody {
    fn drop(&mut self) {
        let is_elsewhere = thread::current().id() != self.home;
        self.homes.0[usize::from(is_elsewhere)].fetch_add(1, SeqCst);
    }
}

/// Holds one of `homes` while `future` lasts.
pub fn homely<F: Future>(homes: &Homes, future: F) -> impl Future<Output = F::Output> + use<F> {
    let one = homes.one();
    async move {
        let _one = one;
        future.await
    }
}

/// Runs until nothing is left.
async fn until_empty(local: &Ex<'_>) {
    while !local.is_empty() {
        yield_now().await;
    }
}

#[test]
fn foreign_threads_wake_futures_that_are_not_send() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        for count in [200, 500] {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..count).map(|_| oneshot::channel()).unzip();
            let tasks: Vec<_> =
                receivers.into_iter().map(|rx| local.spawn(homely(&homes, rx))).collect();
            let foreign = thread::spawn(move || {
                senders.into_iter().enumerate().for_each(|(i, tx)| tx.send(i).unwrap());
            });
            let outputs = block_on(local.run(futures::future::join_all(tasks)));
            foreign.join().unwrap();
            assert!(outputs.into_iter().map(Result::unwrap).eq(0..count));
        }
        homes.assert_dropped(700);
    });
}

/// What another thread does with a handle.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Await,
    Drop,
    Cancel,
    Detach,
    AwaitFallible,
}

impl Deed {
    const ALL: [Deed; 5] =
        [Deed::Await, Deed::Drop, Deed::Cancel, Deed::Detach, Deed::AwaitFallible];

    /// The output, where there is one.
    fn done(self, task: ex::Task<usize>) -> Option<usize> {
        match self {
            Deed::Await => Some(block_on(task)),
            Deed::Drop => {
                drop(task);
                None
            }
            Deed::Cancel => block_on(task.cancel()),
            Deed::Detach => {
                task.detach();
                None
            }
            Deed::AwaitFallible => block_on(task.fallible()),
        }
    }
}

#[test]
fn a_handle_is_used_on_another_thread_and_the_future_is_dropped_at_home() {
    for deed in Deed::ALL {
        watched(&format!("{deed:?}"), move || {
            let (homes, local) = (Homes::default(), Ex::new());
            for polls_before in 0..4 {
                let task = local.spawn(homely(&homes, async {
                    // Done in the second poll, so that of three there is one with the output.
                    yield_now().await;
                    7
                }));
                (0..polls_before).for_each(|_| _ = local.try_tick());
                let is_finished = task.is_finished();
                let foreign = thread::spawn(move || deed.done(task));
                block_on(local.run(async {
                    until_empty(&local).await;
                    while !foreign.is_finished() {
                        yield_now().await;
                    }
                }));
                let output = foreign.join().unwrap();
                match deed {
                    Deed::Await | Deed::AwaitFallible => assert_eq!(output, Some(7)),
                    Deed::Cancel if is_finished => assert_eq!(output, Some(7)),
                    Deed::Cancel => assert!(matches!(output, None | Some(7))),
                    Deed::Drop | Deed::Detach => {}
                }
                homes.assert_dropped(polls_before + 1);
            }
        });
    }
}

#[test]
fn a_future_that_waits_is_dropped_at_home_when_its_handle_is_elsewhere() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        let spawn = || local.spawn(homely(&homes, pending::<usize>()));
        let [dropped, cancelled, panicking] = [(); 3].map(|()| spawn());
        tick_all(&local);
        let never_polled = spawn();
        thread::spawn(move || drop((dropped, never_polled))).join().unwrap();
        homes.assert_dropped(0);
        let cancel = thread::spawn(move || block_on(cancelled.cancel()));
        // A handle that is dropped by a panic.
        let panics = thread::spawn(move || {
            let _task = panicking;
            silent_panic()
        });
        let _: Box<_> = panics.join().unwrap_err();
        block_on(local.run(until_empty(&local)));
        assert_eq!(cancel.join().unwrap(), None);
        homes.assert_dropped(4);
    });
}

#[test]
fn futures_are_dropped_at_home_by_the_executors_end_and_awaiters_elsewhere_are_told() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        let tasks: Vec<_> =
            (0..10).map(|_| local.spawn(homely(&homes, pending::<usize>()))).collect();
        let finished = local.spawn(homely(&homes, async { 3 }));
        tick_all(&local);
        let (begun, is_begun) = mpsc::channel();
        let foreign = thread::spawn(move || {
            let (mut told, mut tasks) = (0, tasks);
            for (i, task) in tasks.drain(..).enumerate() {
                if i == 5 {
                    begun.send(()).unwrap();
                }
                match i % 5 {
                    // Five are given up before, the others when the executor may be gone.
                    _ if i < 5 => drop(task),
                    0 => told += usize::from(block_on(task.cancel()).is_none()),
                    1 | 2 => told += usize::from(block_on(task.fallible()).is_none()),
                    _ => {
                        let awaited = AssertUnwindSafe(task).catch_unwind();
                        told += usize::from(block_on(awaited).is_err());
                    }
                }
            }
            (told, block_on(finished))
        });
        is_begun.recv().unwrap();
        drop(local);
        homes.assert_dropped(11);
        assert_eq!(foreign.join().unwrap(), (5, 3));
    });
}

/// The memory of a task goes with the last of its wakers, wherever that is.
#[test]
fn wakers_elsewhere_outlive_the_executor_and_drop_nothing_of_it() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        let (lend, lent) = mpsc::channel::<Waker>();
        for _ in 0..10 {
            local.spawn(homely(&homes, lend_waker(lend.clone()))).detach();
        }
        tick_all(&local);
        let wakers: Vec<_> = lent.try_iter().collect();
        drop(local);
        homes.assert_dropped(10);
        let foreign = thread::spawn(move || {
            wakers.iter().for_each(Waker::wake_by_ref);
            wakers.into_iter().for_each(Waker::wake);
        });
        foreign.join().unwrap();
        homes.assert_dropped(10);
    });
}

/// An output that is dropped where its handle is.
#[test]
fn an_output_goes_where_its_handle_is() {
    struct Traveller(mpsc::Sender<ThreadId>);
    impl Drop for Traveller {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    watched("", || {
        let local = Ex::new();
        let (tell, told) = mpsc::channel();
        let [awaited, dropped] = [(); 2].map(|()| {
            let tell = tell.clone();
            local.spawn(async move { Traveller(tell) })
        });
        tick_all(&local);
        let foreign = thread::spawn(move || {
            drop(dropped);
            drop(block_on(awaited));
        });
        let id = foreign.thread().id();
        foreign.join().unwrap();
        assert!(told.try_iter().eq([id, id]));
    });
}

#[test]
fn a_task_of_another_threads_executor_is_awaited_in_a_task_of_this_ones() {
    watched("", || {
        let (hand_over, handed_over) = mpsc::channel();
        let home = thread::spawn(move || {
            let (local, count) = (Ex::new(), Rc::new(Cell::new(0)));
            for _ in 0..100 {
                let count = count.clone();
                let task = local.spawn(async move {
                    yields(2).await;
                    count.set(count.get() + 1);
                    count.get()
                });
                hand_over.send(task).unwrap();
            }
            drop(hand_over);
            block_on(local.run(until_empty(&local)));
            count.get()
        });
        let here = Ex::new();
        let sum = here.spawn(async move {
            let mut sum = 0;
            for task in handed_over {
                sum += task.await;
            }
            sum
        });
        assert_eq!(block_on(here.run(sum)), 5_050);
        assert_eq!(home.join().unwrap(), 100);
    });
}

#[test]
fn a_panic_at_home_reaches_an_awaiter_elsewhere() {
    watched("", || {
        let (homes, local) = (Homes::default(), Ex::new());
        let task = local.spawn(homely(&homes, async {
            yields(1).await;
            silent_panic()
        }));
        let foreign = thread::spawn(move || -> thread::Result<usize> {
            block_on(AssertUnwindSafe(task).catch_unwind())
        });
        block_on(local.run(until_empty(&local)));
        assert_eq!(*foreign.join().unwrap().unwrap_err().downcast::<&str>().unwrap(), "silent");
        homes.assert_dropped(1);
    });
}
