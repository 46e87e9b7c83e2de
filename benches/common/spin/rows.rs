//! The rows of the table and its arms: which load goes on which runtime.

use std::time::Duration;

use paceline::Spin;

use crate::common::arms::{Arm, Paceline, Tokio};
use crate::common::measure::{Sample, quartiles};
use crate::common::net::Net;
use crate::common::workloads::outside::{self, Clients, Timed};
use crate::common::workloads::{Runner, io, pairs, workers};

/// How paceline's workers spin; and tokio, where it is compared.
pub const ARMS: [&str; 5] = ["off", "short", "long", ADAPTIVE, TOKIO];
/// Those that the adaptive one has to match.
pub const FIXED: [&str; 3] = ["off", "short", "long"];
pub const ADAPTIVE: &str = "adaptive";
pub const TOKIO: &str = Tokio::NAME;

fn spin(arm: &str) -> Spin {
    match arm {
        "off" => Spin::Off,
        "short" => Spin::Fixed(Duration::from_micros(10)),
        "long" => Spin::Fixed(Duration::from_micros(200)),
        _ => Spin::Adaptive,
    }
}

#[derive(Clone, Copy)]
enum Load {
    RemoteRoundTrip,
    RequestReply { clients: usize, gap: Duration },
    Bursts { run: usize, pause: Duration },
    Pair,
    Echo { connections: usize },
    Idle,
}

pub struct Row {
    pub name: String,
    load: Load,
}

pub const ROUND_TRIP: &str = "remote_round_trip";
pub const IDLE: &str = "idle";

/// In the order of the table.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![Row { name: ROUND_TRIP.into(), load: Load::RemoteRoundTrip }];
    for clients in [1, 4, 32] {
        for (name, gap_us) in [("0", 0), ("50us", 50), ("200us", 200), ("2ms", 2_000)] {
            let load = Load::RequestReply { clients, gap: Duration::from_micros(gap_us) };
            rows.push(Row { name: format!("request_reply_{clients}_{name}"), load });
        }
    }
    for run in [1, 16, 256] {
        for (name, pause_us) in [("100us", 100), ("1ms", 1_000)] {
            let load = Load::Bursts { run, pause: Duration::from_micros(pause_us) };
            rows.push(Row { name: format!("bursts_{run}_{name}"), load });
        }
    }
    rows.push(Row { name: "pair".into(), load: Load::Pair });
    for connections in [1, 64] {
        rows.push(Row { name: format!("echo_{connections}"), load: Load::Echo { connections } });
    }
    rows.push(Row { name: IDLE.into(), load: Load::Idle });
    rows
}

impl Row {
    pub fn has(&self, arm: &str) -> bool {
        let has_tokio = matches!(self.load, Load::RemoteRoundTrip | Load::RequestReply { .. });
        arm != TOKIO || has_tokio
    }

    /// The load on a runtime of its own, and paceline's handle.
    pub fn start(&self, arm: &str) -> (Timed, Option<paceline::Handle>) {
        if arm == TOKIO {
            return (set_up(self.load, Tokio::new(workers())), None);
        }
        let builder = paceline::Builder::new().worker_threads(workers()).spin(spin(arm));
        let paceline = Paceline::built(builder);
        let handle = paceline.handle().clone();
        (set_up(self.load, paceline), Some(handle))
    }
}

fn set_up<A: Net>(load: Load, arm: A) -> Timed {
    match load {
        Load::RemoteRoundTrip => Box::new(move |lasts| pairs::remote_round_trip_for(&arm, lasts)),
        Load::RequestReply { clients, gap } => {
            let mut clients = Clients::new(arm, clients, gap);
            Box::new(move |lasts| clients.call(lasts))
        }
        Load::Bursts { run, pause } => outside::bursts(arm, run, pause),
        Load::Pair => repeated(Box::new(move || pairs::pairs::<A, 1>(&arm))),
        Load::Echo { connections } => repeated(io::timed_echo_tcp(arm, connections)),
        Load::Idle => outside::rests(arm, 4),
    }
}

/// As many rounds as make up the time; quantiles are the medians of theirs.
fn repeated(mut round: Runner) -> Timed {
    Box::new(move |lasts| {
        let mut parts = vec![round()];
        while parts.iter().map(|part| part.elapsed).sum::<Duration>() < lasts {
            parts.push(round());
        }
        let median = |value: fn(&Sample) -> f64| quartiles(parts.iter().map(value))[1];
        let watched = parts[0].watched.map(|mut watched| {
            watched.p50 = median(|part| part.watched.unwrap().p50);
            watched.p99 = median(|part| part.watched.unwrap().p99);
            watched
        });
        Sample {
            ops: parts.iter().map(|part| part.ops).sum(),
            elapsed: parts.iter().map(|part| part.elapsed).sum(),
            cpu: parts.iter().map(|part| part.cpu).sum(),
            switches: parts.iter().map(|part| part.switches).sum(),
            parks: None,
            watched,
        }
    })
}
