//! An echo server with a thread for each CPU, and no work that moves from one to another:
//! `cargo run --release --example thread_per_core 127.0.0.1:7000 4`.
//!
//! Each thread has a runtime of its own, and a listener of its own at the one address. The system spreads the
//! connections over the listeners (on Linux); each is served where it was accepted, by tasks that need
//! not be `Send`. So one thread may have more to do than others: that is the price. Ctrl-C stops it: it
//! accepts no more, lets the open connections end, and prints what each thread has counted.

#[cfg(unix)]
use unix::main;

#[cfg(not(unix))]
fn main() {
    eprintln!("thread_per_core: no two listeners can have one address on this platform");
}

#[cfg(unix)]
mod unix {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::env;
    use std::io;
    use std::net::SocketAddr;
    use std::process::{self, ExitCode};
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use async_channel::Receiver;
    use futures_lite::{future, io::copy};
    use paceline::net::{TcpListener, TcpStream};
    use paceline::time::{sleep, timeout};
    use paceline::{LocalRuntime, spawn_local};

    const USAGE: &str = "\
usage: thread_per_core [ADDRESS [COUNT]]
Sends back what it is sent, until Ctrl-C.
  ADDRESS  where to listen: IP:PORT, 127.0.0.1:7 if not given; port 0 for any that is free
  COUNT    how many threads: one for each CPU if not given
  --help   print this";

    /// How long the open connections may take to end, once it is to stop.
    const GRACE: Duration = Duration::from_secs(3);
    /// How long to wait when no connection can be accepted: most likely too many files are open.
    const BREATHER: Duration = Duration::from_millis(100);

    /// Closed when the server is to stop.
    type Stop = Receiver<Infallible>;

    pub(super) fn main() -> ExitCode {
        let args: Vec<_> = env::args().skip(1).collect();
        if args.iter().any(|arg| arg == "--help") {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        let Some((address, count)) = parse(&args) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        match run(address, count) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("thread_per_core: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn parse(args: &[String]) -> Option<(SocketAddr, usize)> {
        let address = args.first().map_or("127.0.0.1:7", |arg| arg).parse().ok()?;
        let count = match args.get(1) {
            Some(count) => count.parse().ok().filter(|&count| count > 0)?,
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        (args.len() <= 2).then_some((address, count))
    }

    fn run(mut address: SocketAddr, count: usize) -> io::Result<()> {
        let (running, stop) = async_channel::bounded::<Infallible>(1);
        let cpus = cpus();
        let mut threads = Vec::new();
        for index in 0..count {
            let cpu = cpus.get(index % cpus.len().max(1)).copied();
            let (stop, (tell, told)) = (stop.clone(), mpsc::channel());
            let thread = thread::Builder::new().name(format!("core-{index}"));
            threads.push(thread.spawn(move || work(cpu, address, &tell, &stop))?);
            match told.recv() {
                // With port 0, it is the first one's for all.
                Ok(chosen) => address = chosen,
                // It could not listen, and says why below.
                Err(_) => drop(running.close()),
            }
        }
        if !running.is_closed() {
            println!("thread_per_core: listening on {address}");
            // `close` tells everybody, and tells whether it was the first to do so.
            let pressed = move || {
                if !running.close() {
                    process::exit(130);
                }
            };
            ctrlc::set_handler(pressed).map_err(io::Error::other)?;
        }
        for (index, thread) in threads.into_iter().enumerate() {
            let Counts { cpu, connections, bytes } = thread.join().expect("it does not panic")?;
            let place = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
            println!(
                "thread_per_core: thread {index}{place}: connections: {connections}, bytes: {bytes}"
            );
        }
        Ok(())
    }

    /// What a thread has counted, and where it was.
    struct Counts {
        cpu: Option<usize>,
        connections: u64,
        bytes: u64,
    }

    /// The life of a thread.
    fn work(
        cpu: Option<usize>,
        address: SocketAddr,
        listens: &mpsc::Sender<SocketAddr>,
        stop: &Stop,
    ) -> io::Result<Counts> {
        // First: what is allocated from here on is near to its CPU.
        let cpu = cpu.filter(|&cpu| pin(cpu));
        LocalRuntime::new()?.block_on(async {
            let listener = TcpListener::bind_reuse_port(address).await?;
            // Somebody waits for it.
            let _ = listens.send(listener.local_addr()?);
            let (connections, bytes) = serve(listener, stop).await;
            Ok(Counts { cpu, connections, bytes })
        })
    }

    /// Serves until it is to stop. How many connections there were, and how many bytes.
    async fn serve(listener: TcpListener, stop: &Stop) -> (u64, u64) {
        // No atomics and no locks: all of them are of this thread.
        let (mut connections, bytes) = (0, Rc::new(Cell::new(0)));
        // Each connection holds a sender, so that the channel closes with the last.
        let (open, ended) = async_channel::bounded::<Infallible>(1);
        while let Some(stream) = accept(&listener, stop).await {
            connections += 1;
            let (bytes, open) = (bytes.clone(), open.clone());
            let connection = async move {
                match copy(&stream, &mut &stream).await {
                    Ok(count) => bytes.set(bytes.get() + count),
                    Err(error) => eprintln!("thread_per_core: {error}"),
                }
                drop(open);
            };
            spawn_local(connection).detach();
        }
        drop((listener, open));
        // Those that have not ended by then are cut off.
        let _ = timeout(GRACE, ended.recv()).await;
        (connections, bytes.get())
    }

    /// The next connection; None when it is to stop.
    async fn accept(listener: &TcpListener, stop: &Stop) -> Option<TcpStream> {
        let stopped = async {
            let Err(_closed) = stop.recv().await;
            None
        };
        let accepted = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => return Some(stream),
                    Err(error) => eprintln!("thread_per_core: cannot accept: {error}"),
                }
                sleep(BREATHER).await;
            }
        };
        future::or(stopped, accepted).await
    }

    /// The CPUs that this process may use, by number.
    #[cfg(target_os = "linux")]
    fn cpus() -> Vec<usize> {
        // SAFETY: all zeroes are an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a set of that size.
        unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
        let all = 0..libc::CPU_SETSIZE as usize;
        // SAFETY: the numbers are below the size of the set.
        all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    }

    /// Keeps this thread on one CPU. False if that cannot be.
    #[cfg(target_os = "linux")]
    fn pin(cpu: usize) -> bool {
        // SAFETY: all zeroes are an empty set; the number is one of `cpus`; the pointer is to a set of
        // that size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn cpus() -> Vec<usize> {
        Vec::new()
    }

    #[cfg(not(target_os = "linux"))]
    fn pin(_: usize) -> bool {
        false
    }
}
