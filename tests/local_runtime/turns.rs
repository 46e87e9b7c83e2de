//! Fairness: a task that wakes itself for ever keeps nobody from its turn.

use super::*;

/// A task that is to be polled again at once, for ever, and counts its polls.
fn hog(polls: &Arc<AtomicUsize>) -> impl Future<Output = ()> + Send + use<> {
    let polls = polls.clone();
    std::future::poll_fn(move |cx| {
        polls.fetch_add(1, SeqCst);
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
}

/// Everybody else, one after the other, in order: timers, sockets, local and other tasks, threads.
async fn all_the_others(polls: &AtomicUsize) {
    for _ in 0..5 {
        sleep(MILLISECOND).await;
        round_trip().await;
        spawn_local(yield_now()).await;
        spawn(yield_now()).await;
        let (sender, receiver) = oneshot::channel();
        let sends = thread::spawn(move || sender.send(()).unwrap());
        receiver.await.unwrap();
        sends.join().unwrap();
        let before = polls.load(SeqCst);
        while polls.load(SeqCst) < before + 100 {
            yield_now().await;
        }
    }
}

#[test]
fn a_local_hog_keeps_nobody_from_its_turn() {
    with(|runtime| {
        let polls = Arc::default();
        runtime.spawn(hog(&polls)).detach();
        runtime.block_on(all_the_others(&polls));
        runtime.block_on(runtime.spawn(async move { all_the_others(&polls).await }));
    });
}

#[test]
fn a_hog_that_is_send_keeps_nobody_from_its_turn() {
    with(|runtime| {
        let polls = Arc::default();
        runtime.handle().spawn(hog(&polls)).detach();
        runtime.block_on(all_the_others(&polls));
        runtime.block_on(runtime.spawn(async move { all_the_others(&polls).await }));
    });
}

#[test]
fn hogs_of_both_kinds_and_a_main_future_that_is_one_go_on_side_by_side() {
    with(|runtime| {
        let [local, send] = [Arc::default(), Arc::default()];
        runtime.spawn(hog(&local)).detach();
        runtime.handle().spawn(hog(&send)).detach();
        let others = runtime.spawn({
            let local = local.clone();
            async move { all_the_others(&local).await }
        });
        let mut others = std::pin::pin!(others);
        let main = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            others.as_mut().poll(cx)
        });
        runtime.block_on(main);
        assert!(local.load(SeqCst) > 100 && send.load(SeqCst) > 100);
    });
}

/// Two tasks that wake one another by the slot.
#[test]
fn two_local_tasks_that_talk_keep_nobody_from_its_turn() {
    with(|runtime| {
        let polls = Arc::<AtomicUsize>::default();
        let (ping, pings) = async_channel::bounded(1);
        let (pong, pongs) = async_channel::bounded(1);
        let counts = polls.clone();
        runtime
            .spawn(async move {
                loop {
                    counts.fetch_add(1, SeqCst);
                    ping.send(()).await.unwrap();
                    pongs.recv().await.unwrap();
                }
            })
            .detach();
        runtime
            .spawn(async move {
                loop {
                    pings.recv().await.unwrap();
                    pong.send(()).await.unwrap();
                }
            })
            .detach();
        runtime.block_on(all_the_others(&polls));
    });
}

#[test]
fn in_a_hosts_turns_hogs_keep_nobody_from_its_turn() {
    for budget in [Duration::ZERO, MILLISECOND, Duration::from_secs(3600)] {
        watched(&format!("with a budget of {budget:?}"), move || {
            let runtime = local();
            let polls = Arc::default();
            let stop = Arc::<AtomicBool>::default();
            // Those end, so that a long turn does.
            runtime.spawn(common::self_waker(stop.clone())).detach();
            runtime.handle().spawn(common::self_waker(stop.clone())).detach();
            let both = runtime.spawn(async move {
                let ticks = spawn_local(hog(&polls));
                all_the_others(&polls).await;
                ticks.cancel().await;
                stop.store(true, SeqCst);
            });
            while !both.is_finished() {
                runtime.run_until_stalled(budget);
            }
        });
    }
}
