//! Channels: of async-channel, of futures, of async-broadcast.

use async_broadcast::RecvError;
use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use paceline::{spawn, yield_now};

use crate::common::on_each;
use crate::{each, in_tasks};

const SENDERS: usize = 8;
const MESSAGES: usize = 100;

#[test]
fn async_channels_carry_messages_between_tasks_and_threads() {
    on_each(|runtime| {
        let (sender, receiver) = async_channel::bounded(4);
        let tasks: Vec<_> = (0..SENDERS)
            .map(|_| {
                let sender = sender.clone();
                runtime.spawn(async move {
                    for i in 0..MESSAGES {
                        sender.send(i).await.unwrap();
                    }
                })
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        while let Ok(i) = receiver.recv_blocking() {
            sum += i;
        }
        assert_eq!(sum, SENDERS * 4_950);
        tasks.into_iter().for_each(|task| runtime.block_on(task));
    });
}

/// Each message is taken by one of those that wait, until the channel is closed.
#[test]
fn many_receivers_of_an_async_channel_share_its_messages() {
    each(async || {
        let (sender, receiver) = async_channel::bounded(1);
        let receivers = in_tasks(SENDERS, |_| {
            let receiver = receiver.clone();
            async move { receiver.collect::<Vec<usize>>().await }
        });
        let send = async {
            for i in 0..SENDERS * MESSAGES {
                sender.send(i).await.unwrap();
            }
            sender.close();
        };
        let (received, ()) = futures::join!(receivers, send);
        let mut all = received.concat();
        all.sort_unstable();
        assert_eq!(all, (0..SENDERS * MESSAGES).collect::<Vec<_>>());
    });
}

/// An actor: requests come by `mpsc`, each with a `oneshot` for its answer.
#[test]
fn channels_of_futures_carry_requests_and_answers() {
    each(async || {
        let (requests, mut inbox) = mpsc::channel::<(usize, oneshot::Sender<usize>)>(0);
        let actor = spawn(async move {
            let mut total = 0;
            while let Some((amount, answer)) = inbox.next().await {
                total += amount;
                // Who has gone wants no answer.
                let _ = answer.send(total);
            }
            total
        });
        let clients = in_tasks(SENDERS, |client| {
            let mut requests = requests.clone();
            async move {
                let mut last = 0;
                for i in 0..MESSAGES {
                    let (answer, answered) = oneshot::channel();
                    requests.send((1, answer)).await.unwrap();
                    if i % 10 == client {
                        continue; // without its answer
                    }
                    let total = answered.await.unwrap();
                    assert!(total > last, "{total} after {last}");
                    last = total;
                }
            }
        });
        clients.await;
        drop(requests);
        assert_eq!(actor.await, SENDERS * MESSAGES);
    });
}

#[test]
fn a_oneshot_tells_when_its_other_end_is_cancelled() {
    each(async || {
        let (sender, receiver) = oneshot::channel::<()>();
        let task = spawn(async move {
            let _sender = sender;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        drop(task);
        receiver.await.expect_err("nothing is sent");

        let (mut sender, receiver) = oneshot::channel::<()>();
        let waits = spawn(receiver);
        drop(waits);
        sender.cancellation().await;
    });
}

#[test]
fn every_receiver_of_a_broadcast_gets_every_message_in_order() {
    each(async || {
        let (sender, receiver) = async_broadcast::broadcast(4);
        let receivers = in_tasks(SENDERS, |_| {
            let mut receiver = receiver.new_receiver();
            async move {
                let mut all = Vec::new();
                loop {
                    match receiver.recv().await {
                        Ok(i) => all.push(i),
                        Err(RecvError::Closed) => return all,
                        Err(lost) => panic!("{lost}"),
                    }
                }
            }
        });
        drop(receiver);
        let send = async move {
            for i in 0..MESSAGES {
                sender.broadcast(i).await.unwrap();
            }
        };
        let (received, ()) = futures::join!(receivers, send);
        assert!(received.iter().all(|all| *all == (0..MESSAGES).collect::<Vec<_>>()));
    });
}
