//! tokio's I/O traits: paceline's streams in the hands of `tokio::io`, which is all that is used of it.
#![cfg(not(paceline_loom))]

mod common;

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{on_each, watched};
use futures_lite::future;
use paceline::net::{TcpListener, TcpStream};
#[cfg(unix)]
use paceline::{Async, net::unix::UnixStream};
use paceline::{spawn, unconstrained};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf, copy,
    copy_bidirectional, split,
};

const MIB: usize = 1 << 20;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

#[track_caller]
fn each<F>(body: F)
where
    F: AsyncFn() -> io::Result<()> + Send + Sync + 'static,
{
    on_each(move |runtime| runtime.block_on(body()).expect("no error"));
}

/// Two ends of a connection.
async fn tcp() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    Ok((near, listener.accept().await?.0))
}

#[cfg(unix)]
type Socket = Async<std::os::unix::net::UnixStream>;

#[cfg(unix)]
fn sockets() -> io::Result<(Socket, Socket)> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    Ok((Async::new(near)?, Async::new(far)?))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Polls once, and as one that never gives way.
fn poll_now<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    pin!(unconstrained(future)).poll(&mut Context::from_waker(Waker::noop()))
}

/// Reads what has arrived into memory that is not initialised; how much of that is afterwards.
async fn initialized_by_a_read(mut from: impl AsyncRead + Unpin, expected: &[u8]) -> usize {
    let mut memory = [MaybeUninit::uninit(); 256];
    let mut buffer = ReadBuf::uninit(&mut memory);
    buffer.put_slice(b"before ");
    std::future::poll_fn(|cx| Pin::new(&mut from).poll_read(cx, &mut buffer)).await.unwrap();
    assert_eq!(buffer.filled(), [b"before ", expected].concat());
    buffer.initialized().len()
}

/// Much at once in both directions, by two tasks at one end and by one at the other.
async fn echo((near, far): (impl Stream, impl Stream)) -> io::Result<()> {
    let sent = bytes(MIB);
    let echo = spawn(async move {
        let (mut read, mut write) = split(far);
        copy(&mut read, &mut write).await
    });
    let (mut read, mut write) = split(near);
    let all = sent.clone();
    let writer = spawn(async move { write.write_all(&all).await.map(|()| write) });
    let mut received = vec![0; MIB];
    read.read_exact(&mut received).await?;
    assert!(received == sent);
    drop((read, writer.await?));
    assert_eq!(echo.await?, MIB as u64);
    Ok(())
}

#[test]
fn what_is_sent_comes_back_through_copy_and_split() {
    each(async || {
        echo(tcp().await?).await?;
        #[cfg(unix)]
        {
            echo(UnixStream::pair()?).await?;
            echo(sockets()?).await?;
        }
        Ok(())
    });
}

async fn lines((mut near, far): (impl Stream, impl Stream)) -> io::Result<()> {
    let writer = spawn(async move {
        for i in 0..1_000 {
            near.write_all(format!("line {i}\n").as_bytes()).await?;
        }
        near.write_u16(0x0a0d).await?;
        near.flush().await
    });
    let mut far = BufReader::new(far);
    let mut line = String::new();
    for i in 0..1_000 {
        line.clear();
        far.read_line(&mut line).await?;
        assert_eq!(line, format!("line {i}\n"));
    }
    assert_eq!(far.read_u16().await?, 0x0a0d);
    writer.await
}

#[test]
fn a_buffered_reader_reads_lines() {
    each(async || {
        lines(tcp().await?).await?;
        #[cfg(unix)]
        {
            lines(UnixStream::pair()?).await?;
            lines(sockets()?).await?;
        }
        Ok(())
    });
}

/// A proxy between them: the question is complete when its end has come through, and the answer takes
/// the other direction, which is still open then.
async fn ask_by_proxy<S: Stream>(ends: [(S, S); 2]) -> io::Result<()> {
    let [(mut client, mut inner), (mut outer, mut server)] = ends;
    let proxy = spawn(async move { copy_bidirectional(&mut inner, &mut outer).await });
    let server = spawn(async move {
        let mut question = Vec::new();
        server.read_to_end(&mut question).await?;
        server.write_all(b"answer to ").await?;
        server.write_all(&question).await
    });
    client.write_all(b"a question").await?;
    client.shutdown().await?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await?;
    assert_eq!(answer, "answer to a question");
    server.await?;
    assert_eq!(proxy.await?, (10, 20));
    Ok(())
}

#[test]
fn a_half_close_passes_through_copy_bidirectional() {
    each(async || {
        ask_by_proxy([tcp().await?, tcp().await?]).await?;
        #[cfg(unix)]
        ask_by_proxy([UnixStream::pair()?, UnixStream::pair()?]).await?;
        Ok(())
    });
}

async fn three_at_once(
    mut to: impl AsyncWrite + Unpin,
    mut from: impl AsyncRead + Unpin,
) -> io::Result<bool> {
    let buffers = [b"one, ".as_slice(), b"", b"two, ", b"three"].map(IoSlice::new);
    assert_eq!(to.write_vectored(&buffers).await?, 15);
    let mut all = [0; 15];
    from.read_exact(&mut all).await?;
    assert_eq!(&all, b"one, two, three");
    Ok(to.is_write_vectored())
}

#[test]
fn several_buffers_are_written_in_one_call() {
    each(async || {
        let (mut near, mut far) = tcp().await?;
        assert!(three_at_once(&mut near, &far).await?);
        assert!(three_at_once(&far, &near).await?);
        assert!(three_at_once(near.split().1, far.split().0).await?);
        let ((_, write), (read, _)) = (near.into_split(), far.into_split());
        assert!(three_at_once(write, read).await?);
        #[cfg(unix)]
        {
            let (near, far) = UnixStream::pair()?;
            assert!(three_at_once(near, far).await?);
            // Of any other type it is not known if it is any better than one by one.
            let (near, far) = sockets()?;
            assert!(!three_at_once(&near, &far).await?);
            assert!(!three_at_once(near, far).await?);
        }
        Ok(())
    });
}

#[test]
fn streams_read_into_memory_that_is_not_initialised_and_others_have_it_filled() {
    each(async || {
        let (mut near, mut far) = tcp().await?;
        let read = b"before hello".len();
        near.write_all(b"hello").await?;
        assert_eq!(initialized_by_a_read(&far, b"hello").await, read);
        near.write_all(b"hello").await?;
        assert_eq!(initialized_by_a_read(&mut far, b"hello").await, read);
        near.write_all(b"hello").await?;
        assert_eq!(initialized_by_a_read(far.split().0, b"hello").await, read);
        near.write_all(b"hello").await?;
        assert_eq!(initialized_by_a_read(far.into_split().0, b"hello").await, read);
        #[cfg(unix)]
        {
            let (mut near, far) = sockets()?;
            near.write_all(b"hello").await?;
            assert_eq!(initialized_by_a_read(&far, b"hello").await, 256);
            near.write_all(b"hello").await?;
            assert_eq!(initialized_by_a_read(far, b"hello").await, 256);
        }
        Ok(())
    });
}

async fn grow((mut near, mut far): (impl Stream, impl Stream)) -> io::Result<()> {
    let sent = bytes(300_000);
    let all = sent.clone();
    let writer = spawn(async move { near.write_all(&all).await });
    let mut received = Vec::new();
    let mut count = usize::MAX;
    while count > 0 {
        // It makes room for 64 bytes, and more as it grows.
        count = far.read_buf(&mut received).await?;
    }
    assert!(received == sent);
    writer.await
}

#[test]
fn read_buf_fills_a_buffer_that_grows_up_to_the_end() {
    each(async || {
        grow(tcp().await?).await?;
        #[cfg(unix)]
        {
            grow(UnixStream::pair()?).await?;
            grow(sockets()?).await?;
        }
        Ok(())
    });
}

#[test]
fn after_the_end_every_read_tells_of_it() {
    each(async || {
        let (mut near, mut far) = tcp().await?;
        near.write_all(b"end").await?;
        AsyncWriteExt::shutdown(&mut near).await?;
        let short = far.read_exact(&mut [0; 4]).await.expect_err("there are three bytes");
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
        for _ in 0..3 {
            assert_eq!(far.read(&mut [0; 4]).await?, 0);
        }
        let broken = near.write_all(b"more").await.expect_err("it is shut down");
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
        // The other direction is as open as it was.
        far.write_all(b"answer").await?;
        near.read_exact(&mut [0; 6]).await?;
        Ok(())
    });
}

#[test]
fn the_end_of_an_owned_half_is_told_when_it_is_shut_down_or_dropped() {
    each(async || {
        let (near, far) = tcp().await?;
        let ((mut near_read, mut near_write), (mut far_read, far_write)) =
            (near.into_split(), far.into_split());
        near_write.shutdown().await?;
        assert_eq!(far_read.read(&mut [0]).await?, 0);
        drop(far_write);
        assert_eq!(near_read.read(&mut [0]).await?, 0);
        Ok(())
    });
}

#[test]
fn a_reset_by_the_peer_is_an_error_of_what_waits_and_of_what_follows() {
    each(async || {
        let (near, mut far) = tcp().await?;
        let waiting = spawn(async move {
            let error = far.read(&mut [0]).await.expect_err("a reset");
            (error.kind(), far)
        });
        near.set_linger(Some(Duration::ZERO))?;
        drop(near);
        let (kind, mut far) = waiting.await;
        assert_eq!(kind, ErrorKind::ConnectionReset);
        // It was told once.
        assert_eq!(far.read(&mut [0]).await?, 0);
        assert_eq!(far.write(b"?").await.expect_err("no peer").kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[test]
fn a_shutdown_by_another_task_ends_a_read_that_waits() {
    each(async || {
        let (near, _far) = tcp().await?;
        let read = async { (&near).read(&mut [0]).await };
        let shutdown = async { near.shutdown(Shutdown::Read) };
        let (count, done) = future::zip(read, shutdown).await;
        done?;
        assert_eq!(count?, 0);
        Ok(())
    });
}

/// Of reads that are dropped while they wait, none has taken anything.
async fn give_up_reads((mut near, mut far): (impl Stream, impl Stream)) -> io::Result<()> {
    let mut buffer = [0; 8];
    for i in 0..100 {
        assert!(poll_now(pin!(far.read(&mut buffer))).is_pending());
        assert!(poll_now(pin!(far.read_buf(&mut Vec::new()))).is_pending());
        near.write_u64(i).await?;
        assert_eq!(far.read_u64().await?, i);
    }
    Ok(())
}

#[test]
fn a_read_that_is_given_up_has_read_nothing() {
    each(async || {
        give_up_reads(tcp().await?).await?;
        #[cfg(unix)]
        {
            give_up_reads(UnixStream::pair()?).await?;
            give_up_reads(sockets()?).await?;
        }
        Ok(())
    });
}

/// A read that loses against a timer, again and again, beside a peer that writes.
#[test]
fn reads_that_are_given_up_at_any_time_lose_no_bytes() {
    each(async || {
        let (mut near, mut far) = tcp().await?;
        let sent = bytes(20_000);
        let all = sent.clone();
        let writer = spawn(async move {
            for part in all.chunks(100) {
                near.write_all(part).await?;
                paceline::yield_now().await;
            }
            io::Result::Ok(())
        });
        let mut received = Vec::new();
        loop {
            let read = far.read_buf(&mut received);
            let given_up = paceline::time::timeout(Duration::from_micros(20), read).await;
            if given_up.map_or(Ok(1), |count| count)? == 0 {
                break;
            }
        }
        assert!(received == sent);
        writer.await
    });
}

/// A reader that lies about how much it has read.
#[cfg(unix)]
struct Liar(std::os::unix::net::UnixStream);

#[cfg(unix)]
impl std::os::fd::AsFd for Liar {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(unix)]
impl io::Read for Liar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(buffer.len() + 1)
    }
}

#[cfg(unix)]
#[test]
#[should_panic(expected = "filled must not become larger than initialized")]
fn a_reader_is_not_believed_that_it_has_read_more_than_fits() {
    watched("", || {
        paceline::block_on(async {
            let (liar, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut liar = Async::new(Liar(liar)).unwrap();
            let _ = liar.read(&mut [0; 4]).await;
        });
    });
}

/// What an application without tokio gets with the feature.
#[test]
fn the_feature_takes_the_traits_of_tokio_and_no_part_of_its_runtime() {
    let arguments = "tree --offline --locked --edges normal --features tokio-io --prefix depth";
    let output = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let tree = String::from_utf8(output.stdout).expect("text");
    let below_tokio: Vec<_> = tree
        .lines()
        .skip_while(|line| !line.starts_with("1tokio "))
        .skip(1)
        .take_while(|line| !line.starts_with('1'))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(below_tokio, ["2pin-project-lite"], "{tree}");
}
