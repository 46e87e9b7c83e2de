//! Sockets. What all of these tests use is here; each file has one kind of behaviour.

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod limits;
mod names;
mod split;
mod tcp;
mod transfer;
mod udp;
#[cfg(unix)]
mod unix;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use paceline::net::{TcpListener, TcpStream};

/// As `common::on_each`, for a body that is a future.
#[track_caller]
fn each<F>(body: F)
where
    F: AsyncFn() -> io::Result<()> + Send + Sync + 'static,
{
    common::on_each(move |runtime| runtime.block_on(body()).expect("no error"));
}

async fn listen() -> io::Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0").await
}

/// Two ends of a connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = listen().await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    Ok((near, listener.accept().await?.0))
}

/// Whether `future` is ready at its first poll; it stays to be polled again.
async fn ready_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Counts the polls of `future`.
async fn counted<F: Future>(polls: &AtomicUsize, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        polls.fetch_add(1, SeqCst);
        future.as_mut().poll(cx)
    })
    .await
}

/// Lets other tasks run until it is true.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        paceline::yield_now().await;
    }
}
