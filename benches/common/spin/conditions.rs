//! What surrounds the runtime while it is measured: how many CPUs there are, and who else wants them.
//! A process is in one condition only, since paceline asks for the number of CPUs once.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

pub struct Condition {
    pub name: &'static str,
    cpus: usize,
    has_hog: bool,
}

pub const CONDITIONS: [Condition; 3] = [
    Condition { name: "two-cpus", cpus: 2, has_hog: false },
    Condition { name: "one-cpu", cpus: 1, has_hog: false },
    Condition { name: "hog", cpus: 2, has_hog: true },
];

impl Condition {
    pub fn named(name: &str) -> Option<&'static Condition> {
        CONDITIONS.iter().find(|condition| condition.name == name)
    }

    pub fn has_one_cpu(&self) -> bool {
        self.cpus == 1
    }

    /// Whether this machine has it. Where processes cannot be pinned, all CPUs count as two.
    pub fn is_possible(&self) -> bool {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        cpus == self.cpus || (cpus > self.cpus && (cfg!(target_os = "linux") || self.cpus > 1))
    }

    /// Puts this process into the condition, as long as the value lives. No other thread may have been
    /// started: it would not be pinned.
    pub fn enter(&self) -> Option<Hog> {
        pin(self.cpus);
        self.has_hog.then(Hog::start)
    }
}

/// Leaves so many of its CPUs to this thread and to what it starts: the last ones, for the first ones
/// have more interrupts to serve.
#[cfg(target_os = "linux")]
fn pin(count: usize) {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of CPUs is plain data, for which all zeros is the empty set; the calls are told its
    // size, and the numbers are below what it holds.
    let done = unsafe {
        let (mut allowed, mut chosen) = std::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>();
        let known = libc::sched_getaffinity(0, size, &mut allowed) == 0;
        let all = (0..libc::CPU_SETSIZE as usize).rev();
        all.filter(|&cpu| libc::CPU_ISSET(cpu, &allowed))
            .take(count)
            .for_each(|cpu| libc::CPU_SET(cpu, &mut chosen));
        known && libc::sched_setaffinity(0, size, &chosen) == 0
    };
    assert!(done, "pinning to {count} CPUs: {}", std::io::Error::last_os_error());
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}

/// What makes a process of this binary a hog.
pub const HOG: &str = "--hog";

/// Another process that computes all the time, on whichever of the CPUs. It ends with this value, and
/// with this process, however that ends: then its standard input closes.
pub struct Hog(Child);

impl Hog {
    fn start() -> Self {
        let mut hog = Command::new(std::env::current_exe().unwrap())
            .arg(HOG)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process for the hog");
        let mut line = String::new();
        BufReader::new(hog.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), HOG, "the hog says that it computes");
        Hog(hog)
    }

    /// The hog's own process.
    pub fn main() {
        thread::Builder::new()
            .name("hog".into())
            .spawn(|| {
                let mut number = 0u64;
                loop {
                    number = std::hint::black_box(number.wrapping_add(1));
                }
            })
            .unwrap();
        println!("{HOG}");
        // Nobody writes: it ends when the other end is closed.
        let _ = std::io::stdin().read(&mut [0]);
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // An error is a hog that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
