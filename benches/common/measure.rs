//! Time, CPU time and context switches of a stretch of work; histograms; medians.

use std::time::{Duration, Instant};

/// What one round of a workload took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub ops: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
    /// Voluntary context switches: waits that blocked.
    pub switches: u64,
    /// How often a worker went to sleep, where the runtime counts it.
    pub parks: Option<u64>,
    /// What the workload watches besides its throughput.
    pub watched: Option<Watched>,
}

/// Quantiles of durations, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub name: &'static str,
    pub p50: f64,
    pub p99: f64,
}

impl Sample {
    pub fn ns_per_op(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.ops as f64
    }

    pub fn cpu_ns_per_op(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.ops as f64
    }

    pub fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    pub fn switches_per_op(&self) -> f64 {
        self.switches as f64 / self.ops as f64
    }

    /// Not a number where the runtime does not count them.
    pub fn parks_per_op(&self) -> f64 {
        self.parks.map_or(f64::NAN, |parks| parks as f64 / self.ops as f64)
    }
}

/// Measures `work`, which did that many operations.
pub fn measured(ops: u64, work: impl FnOnce()) -> Sample {
    let (cpu, switches) = usage();
    let start = Instant::now();
    work();
    let elapsed = start.elapsed();
    let (cpu_after, switches_after) = usage();
    Sample {
        ops,
        elapsed,
        cpu: cpu_after.saturating_sub(cpu),
        switches: switches_after.saturating_sub(switches),
        parks: None,
        watched: None,
    }
}

/// Lets each of so many arms have its turn; each round begins with another one.
pub fn take_turns(arms: usize, round: usize, mut turn: impl FnMut(usize)) {
    (0..arms).for_each(|first| turn((round + first) % arms));
}

/// Lets each arm have a round, in turning order, again and again. The first time warms up, and counts if
/// there is no other. Gives the samples of each arm, and how many operations there were, warm-up and all.
pub fn interleaved<A>(
    arms: &mut [A],
    rounds: usize,
    mut round_of: impl FnMut(&mut A) -> Sample,
) -> (Vec<Vec<Sample>>, u64) {
    let mut samples = vec![Vec::new(); arms.len()];
    let mut operations = 0;
    for round in 0..=rounds {
        take_turns(arms.len(), round, |arm| {
            let sample = round_of(&mut arms[arm]);
            operations += sample.ops;
            if round > 0 || rounds == 0 {
                samples[arm].push(sample);
            }
        });
    }
    (samples, operations)
}

/// CPU time and voluntary context switches of this process so far.
#[cfg(unix)]
fn usage() -> (Duration, u64) {
    // SAFETY: `rusage` is plain data, and the call fills it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_nvcsw as u64)
}

#[cfg(not(unix))]
fn usage() -> (Duration, u64) {
    (Duration::ZERO, 0)
}

/// Durations in buckets of 1/16 of their power of two.
#[derive(Clone)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    pub fn new() -> Self {
        Histogram(vec![0; 64 * 16])
    }

    pub fn add(&mut self, duration: Duration) {
        let ns = (duration.as_nanos() as u64).max(16);
        let power = ns.ilog2();
        self.0[(power * 16 + (ns >> (power - 4)) as u32 - 16) as usize] += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// In nanoseconds; the lower end of the bucket.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let rank = (self.0.iter().sum::<u64>() as f64 * quantile) as u64;
        let mut below = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            below += count;
            if below > rank {
                let (power, part) = (bucket / 16, bucket % 16);
                return (2f64).powi(power as i32) * (1.0 + part as f64 / 16.0);
            }
        }
        0.0
    }

    pub fn watched(&self, name: &'static str) -> Watched {
        Watched { name, p50: self.quantile(0.5), p99: self.quantile(0.99) }
    }
}

/// Lower quartile, median, upper quartile.
pub fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Lower quartile, median and upper quartile of what was measured.
#[derive(Clone, Copy, Debug)]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Quartiles {
    /// Of the values that are numbers; none of the three is one where there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let known: Vec<_> = values.filter(|value| value.is_finite()).collect();
        let [low, median, high] =
            if known.is_empty() { [f64::NAN; 3] } else { quartiles(known.into_iter()) };
        Quartiles { low, median, high }
    }

    /// The distance of the quartiles.
    pub fn spread_percent(self) -> f64 {
        (self.high - self.low) / self.median * 100.0
    }
}
