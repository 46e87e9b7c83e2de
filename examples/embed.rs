//! paceline inside of a program with an event loop of its own: `cargo run --example embed`.
//!
//! The loop, of a window system or a game say, is the host. It sleeps in one place until there is something
//! for it or for paceline, and gives paceline a turn when it comes round. Here that place is a
//! `polling::Poller`; what it waits for of its own is a UDP socket. It ends by itself, with the exit code 0 if
//! all has happened that should.

#![allow(clippy::disallowed_methods)] // the host's threads are its own

#[cfg(unix)]
use unix::main;

#[cfg(not(unix))]
fn main() {
    eprintln!("embed: there is no descriptor for a runtime's sockets on this platform");
}

#[cfg(unix)]
mod unix {
    use std::cell::Cell;
    use std::io::{self, Read, Write};
    use std::net::UdpSocket;
    use std::process::ExitCode;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    use futures_lite::io::copy;
    use paceline::net::TcpListener;
    use paceline::{Handle, LocalRuntime, spawn_local};
    use polling::{Event, Events, Poller};

    /// How long a turn may keep the host from its own work: a part of a frame.
    const BUDGET: Duration = Duration::from_millis(2);
    const ROUNDS: usize = 5;

    /// The keys of what the host's poller waits for.
    const OWN: usize = 0;
    const RUNTIME: usize = 1;

    pub(super) fn main() -> ExitCode {
        match run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("embed: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run() -> io::Result<()> {
        let poller = Arc::new(Poller::new()?);
        let own = UdpSocket::bind("127.0.0.1:0")?;
        own.set_nonblocking(true)?;

        let runtime = LocalRuntime::new()?;
        // Called on whichever thread has something for the runtime: it ends the host's sleep.
        let told = Arc::new(AtomicBool::new(false));
        runtime.on_ready({
            let (poller, told) = (poller.clone(), told.clone());
            move || {
                told.store(true, SeqCst);
                poller.notify().expect("the poller works");
            }
        });
        let descriptor = runtime.descriptor()?;
        // SAFETY: both are taken out below, before they are closed.
        unsafe {
            poller.add(&own, Event::readable(OWN))?;
            poller.add(&descriptor, Event::readable(RUNTIME))?;
        }

        let work = runtime.spawn(work(runtime.handle().clone(), own.local_addr()?));
        let (mut events, mut messages) = (Events::new(), 0);
        while !(work.is_finished() && messages == ROUNDS) {
            // Not to sleep at all, if the budget was over first.
            let mut limit = Some(Duration::ZERO);
            if runtime.run_until_stalled(BUDGET) {
                let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                limit = runtime.next_deadline().map(left);
            }
            if work.is_finished() && messages == ROUNDS {
                break;
            }
            events.clear();
            poller.wait(&mut events, limit)?;
            if told.swap(false, SeqCst) {
                println!("embed: woken by the callback");
            } else if events.is_empty() {
                println!("embed: woken by the deadline");
            }
            for event in events.iter() {
                // The poller reports each once, until it is asked again.
                if event.key == RUNTIME {
                    println!("embed: woken by the runtime's descriptor");
                    poller.modify(descriptor, Event::readable(RUNTIME))?;
                } else {
                    println!("embed: woken by a message of its own");
                    while own.recv(&mut [0; 16]).is_ok() {
                        messages += 1;
                    }
                    poller.modify(&own, Event::readable(OWN))?;
                }
            }
        }
        poller.delete(&own)?;
        poller.delete(descriptor)?;
        let result = runtime.block_on(work)?;
        println!("embed: {result}");
        if result == expected() { Ok(()) } else { Err(io::Error::other("that is wrong")) }
    }

    fn expected() -> String {
        format!("echoed {}, computed {}", 5 * ROUNDS, (0..ROUNDS).sum::<usize>())
    }

    /// What a program would do with paceline: local tasks, sockets, timers, and threads that hand in work.
    async fn work(handle: Handle, host: std::net::SocketAddr) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // Not `Send`: nobody else has it.
        let echoed = Rc::new(Cell::new(0));
        let server = spawn_local({
            let echoed = echoed.clone();
            async move {
                let (stream, _) = listener.accept().await?;
                echoed.set(copy(&stream, &mut &stream).await?);
                io::Result::Ok(())
            }
        });
        let (sender, results) = async_channel::unbounded();
        let threads = thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            let mut client = std::net::TcpStream::connect(address)?;
            for number in 0..ROUNDS {
                client.write_all(b"hello")?;
                client.read_exact(&mut [0; 5])?;
                let sender = sender.clone();
                // It runs on the host's thread, in a turn.
                handle.spawn(async move { sender.send(number).await }).detach();
                socket.send_to(b"for the host", host)?;
                thread::sleep(Duration::from_millis(7));
            }
            io::Result::Ok(())
        });
        for _ in 0..ROUNDS {
            paceline::time::sleep(Duration::from_millis(5)).await;
        }
        server.await?;
        let mut computed = 0;
        while let Ok(number) = results.recv().await {
            computed += number;
        }
        threads.join().expect("it does not panic")?;
        Ok(format!("echoed {}, computed {computed}", echoed.get()))
    }
}
