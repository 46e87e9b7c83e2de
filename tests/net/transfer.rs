//! Much data, slow peers, waits that are given up.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use paceline::net::TcpStream;
use paceline::spawn;
use paceline::time::timeout;

use crate::common::{on_each, runtime, watched};
use crate::{counted, each, pair, ready_now, until};

const MIB: usize = 1 << 20;
/// A prime: what is lost, doubled or out of place does not go unseen.
const PERIOD: usize = 65_521;

/// Repeats after [`PERIOD`] bytes; `len` of it, from any position, without a seam.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Self {
        Pattern((0..2 * PERIOD).map(|i| ((i % PERIOD) * 31 / 7) as u8).collect())
    }

    fn at(&self, position: usize, most: usize) -> &[u8] {
        let start = position % PERIOD;
        &self.0[start..start + most.min(PERIOD)]
    }
}

async fn send(mut to: impl AsyncWrite + Unpin, total: usize) -> io::Result<()> {
    let (pattern, mut sent) = (Pattern::new(), 0);
    while sent < total {
        sent += to.write(pattern.at(sent, total - sent)).await?;
    }
    to.close().await
}

/// Until the end.
async fn receive(mut from: impl AsyncRead + Unpin) -> io::Result<usize> {
    let (pattern, mut received, mut buffer) = (Pattern::new(), 0, vec![0; 50_000]);
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(received);
        }
        assert!(buffer[..count] == *pattern.at(received, count), "not what was sent");
        received += count;
    }
}

/// What one side does: two tasks on one stream.
async fn both_ways(stream: TcpStream, total: usize) -> io::Result<()> {
    let stream = Arc::new(stream);
    let (writer, reader) = (stream.clone(), stream);
    let writer = spawn(async move { send(&*writer, total).await });
    let reader = spawn(async move { receive(&*reader).await });
    writer.await?;
    assert_eq!(reader.await?, total);
    Ok(())
}

#[test]
fn a_stream_is_read_and_written_by_two_tasks_at_once() {
    each(async || {
        let (near, far) = pair().await?;
        let near = spawn(both_ways(near, 64 * MIB));
        both_ways(far, 64 * MIB).await?;
        near.await
    });
}

#[test]
fn many_streams_at_once() {
    each(async || {
        let mut sides = Vec::new();
        for _ in 0..20 {
            let (near, far) = pair().await?;
            sides.push(spawn(both_ways(near, MIB)));
            sides.push(spawn(both_ways(far, MIB)));
        }
        for side in sides {
            side.await?;
        }
        Ok(())
    });
}

#[cfg(unix)]
#[test]
fn halves_of_a_unix_stream_carry_much_as_well() {
    each(async || {
        let (near, far) = paceline::net::unix::UnixStream::pair()?;
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        let senders = [near_write, far_write].map(|half| spawn(send(half, 16 * MIB)));
        for half in [near_read, far_read] {
            assert_eq!(receive(half).await?, 16 * MIB);
        }
        for sender in senders {
            sender.await?;
        }
        Ok(())
    });
}

/// Writes until nothing more fits. Returns how much did.
async fn fill(mut stream: &TcpStream) -> io::Result<usize> {
    let (pattern, mut filled) = (Pattern::new(), 0);
    loop {
        let mut write = stream.write(pattern.at(filled, PERIOD));
        match ready_now(&mut write).await {
            // The slice may be spent: that is no full buffer.
            None => match timeout(Duration::from_millis(50), write).await {
                Ok(count) => filled += count?,
                Err(_) => return Ok(filled),
            },
            Some(count) => filled += count?,
        }
    }
}

#[test]
fn a_writer_waits_for_a_slow_peer_and_goes_on() {
    each(async || {
        let (near, mut far) = pair().await?;
        let near = Arc::new(near);
        let filled = fill(&near).await?;
        let polls = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (near, polls) = (near.clone(), polls.clone());
            spawn(async move { counted(&polls, near.writable()).await })
        };
        until(|| polls.load(SeqCst) > 0).await;
        assert!(!writer.is_finished(), "the buffers are full");
        let (pattern, mut read, mut buffer) = (Pattern::new(), 0, vec![0; 50_000]);
        while read < filled {
            let count = far.read(&mut buffer).await?;
            assert!(buffer[..count] == *pattern.at(read, count), "not what was sent");
            read += count;
        }
        writer.await?;
        // And it is true.
        (&*near).write_all(b"more").await?;
        far.read_exact(&mut [0; 4]).await
    });
}

#[test]
fn a_read_given_up_loses_nothing() {
    each(async || {
        let (mut near, mut far) = pair().await?;
        let total = 4 * MIB;
        let sender = spawn(async move {
            let (pattern, mut sent) = (Pattern::new(), 0);
            while sent < total {
                // Never more than the reader gives up on.
                sent += far.write(pattern.at(sent, 3_000.min(total - sent))).await?;
                paceline::yield_now().await;
            }
            io::Result::Ok(far)
        });
        let (pattern, mut received) = (Pattern::new(), 0);
        let mut buffer = vec![0; 2_000];
        while received < total {
            let read = timeout(Duration::from_micros(10), near.read(&mut buffer)).await;
            let Ok(count) = read else { continue };
            let count = count?;
            assert!(buffer[..count] == *pattern.at(received, count), "not what was sent");
            received += count;
        }
        drop(sender.await?);
        assert_eq!(near.read(&mut buffer).await?, 0);
        // Once for certain: nothing can come.
        let (mut near, _far) = pair().await?;
        assert!(timeout(Duration::from_millis(1), near.read(&mut buffer)).await.is_err());
        Ok(())
    });
}

#[test]
fn a_read_given_up_leaves_the_others_waiting() {
    each(async || {
        let (near, mut far) = pair().await?;
        let mut first = Box::pin(near.readable());
        let mut second = Box::pin(near.readable());
        let mut buffer = [0; 8];
        assert_eq!(ready_now(&mut Box::pin((&near).read(&mut buffer))).await.map(drop), None);
        for wait in [&mut first, &mut second] {
            assert!(ready_now(wait).await.is_none());
        }
        drop(first);
        far.write_all(b"!").await?;
        second.await
    });
}

#[test]
fn a_stream_that_is_always_ready_does_not_hold_its_worker() {
    each(async || {
        let (mut near, far) = pair().await?;
        let flood = spawn(async move { send(far, 256 * MIB).await.map(drop) });
        let received = Arc::new(AtomicUsize::new(0));
        let reader = {
            let received = received.clone();
            spawn(async move {
                let mut buffer = vec![0; 1_000];
                loop {
                    received.fetch_add(near.read(&mut buffer).await.expect("no error"), SeqCst);
                }
            })
        };
        until(|| received.load(SeqCst) > MIB).await;
        let before = received.load(SeqCst);
        for _ in 0..10 {
            spawn(async {}).await;
        }
        assert!(received.load(SeqCst) < before + 128 * MIB, "others had their turn long ago");
        drop((reader, flood));
        Ok(())
    });
}

/// tokio#4730, tokio#8010
#[test]
fn data_arrive_while_all_workers_but_one_are_blocked() {
    watched("with one worker of four", || {
        let (runtime, (started, starts)) = (runtime(4), mpsc::channel());
        let ends: Vec<_> = (0..3)
            .map(|_| {
                let (started, (end, ended)) = (started.clone(), mpsc::channel::<()>());
                let block = async move {
                    started.send(()).expect("it is waited for");
                    let _ = ended.recv();
                };
                runtime.spawn(block).detach();
                end
            })
            .collect();
        // Else the thread below could be one of those that they block.
        starts.iter().take(3).for_each(drop);
        runtime.block_on(ping_pong(1_000)).expect("no error");
        drop(ends);
    });
}

#[test]
fn data_arrive_among_a_hundred_tasks_that_wake_themselves() {
    on_each(|runtime| {
        let spinners: Vec<_> = (0..100)
            .map(|_| {
                runtime.spawn(poll_fn::<(), _>(|cx| {
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }))
            })
            .collect();
        runtime.block_on(runtime.spawn(ping_pong(200))).expect("no error");
        drop(spinners);
    });
}

async fn ping_pong(rounds: usize) -> io::Result<()> {
    let (mut near, mut far) = pair().await?;
    let echo = spawn(async move {
        let mut buffer = [0; 4];
        while far.read(&mut buffer).await? == 4 {
            far.write_all(&buffer).await?;
        }
        io::Result::Ok(())
    });
    for round in 0..rounds as u32 {
        near.write_all(&round.to_ne_bytes()).await?;
        let mut buffer = [0; 4];
        near.read_exact(&mut buffer).await?;
        assert_eq!(buffer, round.to_ne_bytes());
    }
    near.close().await?;
    echo.await
}
