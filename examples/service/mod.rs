//! What the network examples share: their command line, how they stop, how they accept, what they
//! say. Knows no protocol.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{self, ExitCode};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_lite::future;
use paceline::Handle;
use paceline::net::{TcpListener, TcpStream};
use paceline::time::{sleep, timeout};

/// How long the open connections may take to end, once the service is to stop.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait when no connection can be accepted: most likely too many files are open, and
/// some will be closed.
const BREATHER: Duration = Duration::from_millis(100);

/// One of the examples.
pub struct Service {
    pub name: &'static str,
    pub usage: &'static str,
}

/// Tells any number of tasks that the service is to stop.
#[derive(Clone)]
pub struct Stop(Receiver<Infallible>);

/// The connections that are open: each holds a sender, so that the channel closes with the last.
pub struct Connections(Sender<Infallible>, Receiver<Infallible>);

impl Service {
    /// Runs `main` with the addresses of the command line; the missing ones are taken from
    /// `defaults`. The exit code is 0 after Ctrl-C, 1 if `main` has a complaint, 2 if the command
    /// line is wrong.
    pub fn run<M, const N: usize>(
        &self,
        defaults: [Option<&str>; N],
        main: impl FnOnce([String; N], Stop) -> M,
    ) -> ExitCode
    where
        M: Future<Output = Result<(), String>>,
    {
        let Service { name, usage } = self;
        let addresses = match addresses(env::args_os().skip(1), defaults) {
            Ok(Some(addresses)) => addresses,
            Ok(None) => {
                say(usage);
                return ExitCode::SUCCESS;
            }
            Err(complaint) => {
                eprintln!("{name}: {complaint}\n{usage}");
                return ExitCode::from(2);
            }
        };
        match paceline::block_on(main(addresses, Stop::on_ctrl_c())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(complaint) => {
                eprintln!("{name}: {complaint}");
                ExitCode::FAILURE
            }
        }
    }

    /// Listens, and says where: with port 0, the system chooses one.
    pub async fn listen(&self, address: &str) -> Result<TcpListener, String> {
        let listen = async {
            let listener = TcpListener::bind(address).await?;
            self.say(&format!("listening on {}", listener.local_addr()?));
            Ok(listener)
        };
        // It says what could not be done, and where.
        listen.await.map_err(|error: io::Error| error.to_string())
    }

    /// The next connection; None when the service is to stop.
    pub async fn accept(
        &self,
        listener: &TcpListener,
        stop: &Stop,
    ) -> Option<(TcpStream, SocketAddr)> {
        let stopped = async {
            stop.requested().await;
            None
        };
        let accepted = async {
            loop {
                match listener.accept().await {
                    Ok(accepted) => return Some(accepted),
                    // Those that are open go on.
                    Err(error) => eprintln!("{}: cannot accept: {error}", self.name),
                }
                sleep(BREATHER).await;
            }
        };
        future::or(stopped, accepted).await
    }

    /// Waits until the open connections have ended, but not for ever.
    pub async fn finish(&self, open: usize, ended: impl Future) {
        match open {
            0 => self.say("stopping"),
            _ => self.say(&format!("stopping; open connections: {open}, with {GRACE:?} to end")),
        }
        if timeout(GRACE, ended).await.is_err() {
            self.say("some have not ended and are cut off");
        }
    }

    /// The last words: what the service has counted, and what paceline has.
    pub fn report(&self, counters: &str) {
        let metrics = Handle::current().metrics();
        let total = metrics.total();
        self.say(counters);
        self.say(&format!(
            "polls: {}, from the wake slot: {}, stolen: {}, parks: {}, threads started: {}",
            total.polls, total.slot_hits, total.stolen, total.parks, metrics.threads
        ));
    }

    fn say(&self, text: &str) {
        say(&format!("{}: {text}", self.name));
    }
}

impl Stop {
    /// Ctrl-C stops the service; pressed again, it ends the process at once.
    fn on_ctrl_c() -> Stop {
        let (running, stop) = async_channel::bounded(1);
        // `close` tells everybody, and tells whether it was the first to do so.
        let pressed = move || {
            if !running.close() {
                process::exit(130);
            }
        };
        ctrlc::set_handler(pressed).expect("nothing else handles it");
        Stop(stop)
    }

    /// Waits until the service is to stop.
    pub async fn requested(&self) {
        let Err(_closed) = self.0.recv().await;
    }
}

#[allow(dead_code)] // hyper-util counts those of `http`
impl Connections {
    pub fn new() -> Self {
        let (sender, receiver) = async_channel::bounded(1);
        Connections(sender, receiver)
    }

    /// One more, which is open until what this returns is dropped.
    pub fn open(&self) -> Sender<Infallible> {
        self.0.clone()
    }

    pub fn count(&self) -> usize {
        self.0.sender_count() - 1
    }

    /// Waits until none is open.
    pub async fn ended(self) {
        drop(self.0);
        let Err(_closed) = self.1.recv().await;
    }
}

/// None if the user asks for help.
fn addresses<const N: usize>(
    args: impl Iterator<Item = OsString>,
    defaults: [Option<&str>; N],
) -> Result<Option<[String; N]>, String> {
    let mut addresses = defaults.map(|default| default.map(str::to_owned));
    let mut places = addresses.iter_mut();
    for arg in args {
        let arg = arg.to_string_lossy().into_owned();
        if arg == "--help" {
            return Ok(None);
        }
        if arg.starts_with('-') {
            return Err(format!("unknown option {arg}"));
        }
        let port = arg.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(format!("an address is HOST:PORT, and {arg} is not"));
        }
        let place = places.next().ok_or_else(|| format!("what is {arg} for?"))?;
        *place = Some(arg);
    }
    if addresses.contains(&None) {
        return Err("an address is missing".to_owned());
    }
    Ok(Some(addresses.map(Option::unwrap_or_default)))
}

/// Not `println!`, which panics if the reader has gone.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}
