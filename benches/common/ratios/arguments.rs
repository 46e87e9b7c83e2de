//! What the arguments ask for.

use std::path::PathBuf;
use std::time::Duration;

use paceline::Spin;

use super::allocator::Allocator;
use super::outcome::{PACELINE, SLOT_OFF};
use crate::common::settings::Settings;
use crate::common::workloads::{WORKLOADS, Workload};

pub const USAGE: &str = "\
cargo bench [-- [ACTION] [WORKLOAD...] [OPTION...]]

Without an action: measures, prints the tables, writes summary.csv, summary.json and ratios.svg.
  record [FILE]        the same, and keeps the figures as a baseline (paceline-bench/baseline.json)
  compare [FILE]       the same, and exits with 1 if a ratio to tokio is worse than in the baseline
  sweep                measures with every combination of knobs, and writes sweep.csv

A WORKLOAD is a name or how names begin; all without. A FILE has a `/` in it or ends in `.json`.
  --full               21 rounds or more, half an hour; without, what fits into about six minutes
  --rounds N           so many
  --arm NAME           paceline, tokio, smol, slot-off; again for more, all without
  --allocator NAME     system, mimalloc; both without
  --workers N          of every runtime; 2 without
  --timeslice TIME     of paceline, as 10us; its default without
  --spin HOW           of paceline: off, adaptive, or a time
  --slot on|off        for `sweep`, where it and the three above also take lists, as 1,2,8
  --test               runs everything once and checks that it does
  --count              runs the rounds in this process and prints how many operations they did
";

pub enum Action {
    Help,
    Run,
    Record(Option<PathBuf>),
    Compare(Option<PathBuf>),
    Sweep,
    /// What a process does that was made to measure.
    Measure,
    Count,
}

/// How long one process measures a workload.
#[derive(Clone, Copy)]
pub struct Extent {
    pub least: usize,
    pub most: usize,
    pub budget: Duration,
}

impl Extent {
    pub fn is_enough(&self, rounds: usize, elapsed: Duration) -> bool {
        rounds >= self.most || (rounds >= self.least && elapsed >= self.budget)
    }

    /// How many rounds it will be, if they go on as they began.
    pub fn foreseen(&self, rounds: usize, elapsed: Duration) -> usize {
        let pace = rounds as f64 / elapsed.as_secs_f64().max(1e-9);
        ((pace * self.budget.as_secs_f64()) as usize).clamp(self.least, self.most)
    }
}

/// How many processes measure a workload with an allocator, one after the other, and for how long.
#[derive(Clone, Copy)]
pub struct Profile {
    /// So that what differs from process to process, as where memory lies, differs here too.
    pub launches: usize,
    extent: Extent,
    /// For all processes together, but for start-up, warm-up and least rounds.
    total: Duration,
    /// Long workloads have fewer rounds, as their divisor says.
    divides: bool,
}

const QUICK: Profile = Profile {
    launches: 3,
    extent: Extent { least: 3, most: 30, budget: Duration::from_millis(1_000) },
    total: Duration::from_secs(240),
    divides: true,
};
const FULL: Profile = Profile {
    launches: 3,
    extent: Extent { least: 7, most: 60, budget: Duration::from_secs(4) },
    total: Duration::MAX,
    divides: false,
};

impl Profile {
    /// So many rounds in all, or some more, so that the processes have as many.
    fn numbered(rounds: usize) -> Self {
        let launches = rounds.clamp(1, QUICK.launches);
        Profile { launches, ..Profile::exactly(rounds.div_ceil(launches)) }
    }

    fn exactly(rounds: usize) -> Self {
        let extent = Extent { least: rounds, most: rounds, budget: Duration::ZERO };
        Profile { launches: 1, extent, total: Duration::MAX, divides: true }
    }

    /// One process for each.
    pub fn single(self) -> Self {
        Profile { launches: 1, ..self }
    }

    /// For so many workloads, each as often as there are allocators or cells.
    pub fn shared_by(mut self, workloads: usize) -> Self {
        let processes = (workloads * self.launches).max(1);
        self.extent.budget = self.extent.budget.min(self.total / processes as u32);
        self
    }

    pub fn extent(&self, workload: &Workload) -> Extent {
        let divisor = if self.divides { workload.rounds_divisor } else { 1 };
        let divided = |rounds: usize| rounds.div_ceil(divisor);
        Extent {
            least: divided(self.extent.least),
            most: divided(self.extent.most),
            budget: self.extent.budget,
        }
    }
}

/// Values of knobs, as they were given, and are given to the processes that measure. None is the default.
#[derive(Clone, Default)]
pub struct Knobs {
    pub workers: Vec<String>,
    pub timeslice: Vec<String>,
    pub spin: Vec<String>,
    pub slot: Vec<String>,
}

pub struct Plan {
    pub action: Action,
    pub workloads: Vec<&'static Workload>,
    /// Whether they were chosen by name.
    pub is_named: bool,
    arms: Vec<String>,
    pub allocators: Vec<Allocator>,
    pub profile: Profile,
    pub test: bool,
    pub knobs: Knobs,
}

impl Plan {
    pub fn wants_arm(&self, name: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|arm| arm == name)
    }

    /// Those of the workload that are wanted.
    pub fn arms_of(&self, workload: &str) -> impl Iterator<Item = &'static str> {
        let workload = self.workloads.iter().find(|known| known.name == workload);
        let arms = workload.map_or(&[][..], |workload| workload.arms);
        arms.iter().map(|arm| arm.0).filter(|arm| self.wants_arm(arm))
    }
}

fn slot_arm(slot: &str) -> &'static str {
    if slot == "off" { SLOT_OFF } else { PACELINE }
}

impl Knobs {
    /// Those that are not lists.
    pub fn settings(&self) -> Settings {
        let first = |values: &[String]| values.first().cloned();
        Settings {
            workers: first(&self.workers).and_then(|n| workers(&n)).unwrap_or(2),
            timeslice: first(&self.timeslice).and_then(|time| self::time(&time)),
            spin: first(&self.spin).and_then(|how| spin(&how)),
            ticker: None,
        }
    }

    /// What to give to a process that is to have these.
    pub fn arguments(&self) -> Vec<String> {
        let named = [
            ("--workers", &self.workers),
            ("--timeslice", &self.timeslice),
            ("--spin", &self.spin),
        ];
        let given = named.iter().filter(|(_, values)| !values.is_empty());
        given.flat_map(|(name, values)| [name.to_string(), values.join(",")]).collect()
    }

    /// The arms that the slot's values stand for.
    pub fn slot_arms(&self) -> Vec<&'static str> {
        self.slot.iter().map(|slot| slot_arm(slot)).collect()
    }

    pub fn are_default(&self) -> bool {
        self.arguments().is_empty() && self.slot.is_empty()
    }
}

fn workers(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count| (1..=1_024).contains(count))
}

/// `500ns`, `10us`, `2ms`, or `0`.
fn time(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000)];
    let (number, ns) = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    Some(Duration::from_nanos(number.parse::<u32>().ok()? as u64 * ns))
}

fn spin(text: &str) -> Option<Spin> {
    match text {
        "off" => Some(Spin::Off),
        "adaptive" => Some(Spin::Adaptive),
        _ => time(text).filter(|time| *time <= Duration::from_millis(10)).map(Spin::Fixed),
    }
}

/// What is being read.
struct Reader<I> {
    arguments: I,
    plan: Plan,
    rounds: Option<usize>,
    names: Vec<String>,
    file: Option<PathBuf>,
}

/// The error says what is wrong and what would be right.
pub fn parsed(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let plan = Plan {
        action: Action::Run,
        workloads: Vec::new(),
        is_named: false,
        arms: Vec::new(),
        allocators: Vec::new(),
        profile: QUICK,
        test: false,
        knobs: Knobs::default(),
    };
    let (rounds, names, file) = (None, Vec::new(), None);
    let mut reader = Reader { arguments, plan, rounds, names, file };
    while let Some(argument) = reader.arguments.next() {
        reader.take(argument)?;
    }
    reader.finish()
}

impl<I: Iterator<Item = String>> Reader<I> {
    fn take(&mut self, argument: String) -> Result<(), String> {
        let plan = &mut self.plan;
        match argument.as_str() {
            // From cargo.
            "--bench" => {}
            "-h" | "--help" => plan.action = Action::Help,
            "record" => plan.action = Action::Record(None),
            "compare" => plan.action = Action::Compare(None),
            "sweep" => plan.action = Action::Sweep,
            "measure" => plan.action = Action::Measure,
            "--count" => plan.action = Action::Count,
            "--test" => plan.test = true,
            "--full" => plan.profile = FULL,
            "--rounds" => {
                let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
                self.rounds = Some(self.value("--rounds", "a number above zero", number)?);
            }
            "--extent" => {
                self.plan.profile.extent = self.value("--extent", "LEAST,MOST,MS", extent)?
            }
            "--arm" => {
                let names = arms();
                let known = |text: &str| names.contains(&text).then(|| text.to_owned());
                let arm = self.value("--arm", &format!("one of {}", names.join(", ")), known)?;
                self.plan.arms.push(arm);
            }
            "--allocator" => {
                let named =
                    |text: &str| Allocator::named(text).filter(|_| cfg!(unix) || text == "system");
                let allocator = self.value("--allocator", "system or mimalloc", named)?;
                self.plan.allocators.push(allocator);
            }
            "--workers" => {
                let what = "numbers from 1 to 1024";
                self.plan.knobs.workers =
                    self.list("--workers", what, |text| workers(text).is_some())?;
            }
            "--timeslice" => {
                let what = "times as 500ns, 10us or 1ms";
                self.plan.knobs.timeslice =
                    self.list("--timeslice", what, |text| time(text).is_some())?;
            }
            "--spin" => {
                let what = "off, adaptive, or times up to 10ms";
                self.plan.knobs.spin = self.list("--spin", what, |text| spin(text).is_some())?;
            }
            "--slot" => {
                self.plan.knobs.slot = self
                    .list("--slot", "on, off, or on,off", |text| ["on", "off"].contains(&text))?;
            }
            other if other.starts_with('-') => {
                return Err(format!("there is no option {other:?}\n\n{USAGE}"));
            }
            file if file.contains('/') || file.ends_with(".json") => self.file = Some(file.into()),
            _ => self.names.push(argument),
        }
        Ok(())
    }

    /// The argument that follows the option.
    fn value<T>(
        &mut self,
        option: &str,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let text = self.arguments.next();
        let text = text.ok_or_else(|| format!("{option} wants {what} after it"))?;
        read(&text).ok_or_else(|| format!("{option} wants {what}, not {text:?}"))
    }

    fn list(
        &mut self,
        option: &str,
        what: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, String> {
        self.value(option, what, |text| {
            let values: Vec<String> = text.split(',').map(str::to_owned).collect();
            values.iter().all(|value| is_right(value)).then_some(values)
        })
    }

    fn finish(mut self) -> Result<Plan, String> {
        let plan = &mut self.plan;
        plan.is_named = !self.names.is_empty();
        plan.workloads =
            if plan.is_named { named(&self.names)? } else { WORKLOADS.iter().collect() };
        if plan.allocators.is_empty() {
            plan.allocators = Allocator::ALL[..if cfg!(unix) { 2 } else { 1 }].to_vec();
        }
        if let Some(rounds) = self.rounds {
            plan.profile = match plan.action {
                Action::Count | Action::Sweep => Profile::exactly(rounds),
                _ => Profile::numbered(rounds),
            };
        }
        if plan.test {
            plan.profile = Profile::exactly(0);
        }
        match (&mut plan.action, self.file) {
            (Action::Record(place) | Action::Compare(place), file) => *place = file,
            (_, None) => {}
            (_, Some(file)) => {
                let file = file.display();
                return Err(format!("{file} is for `record {file}` or `compare {file}`"));
            }
        }
        plan.knobs.check(matches!(plan.action, Action::Sweep))?;
        Ok(self.plan)
    }
}

impl Knobs {
    fn check(&self, may_be_lists: bool) -> Result<(), String> {
        if may_be_lists {
            return Ok(());
        }
        if !self.slot.is_empty() {
            return Err(
                "--slot is for `sweep`; elsewhere --arm paceline and --arm slot-off choose".into(),
            );
        }
        let all = [&self.workers, &self.timeslice, &self.spin];
        match all.iter().find(|values| values.len() > 1) {
            Some(values) => {
                Err(format!("{} are several values, which are for `sweep`", values.join(",")))
            }
            None => Ok(()),
        }
    }
}

fn extent(text: &str) -> Option<Extent> {
    let numbers: Vec<usize> =
        text.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let &[least, most, ms] = numbers.as_slice() else { return None };
    Some(Extent { least, most, budget: Duration::from_millis(ms as u64) })
}

/// Every one that a workload has.
fn arms() -> Vec<&'static str> {
    let mut names = Vec::new();
    for (name, _) in WORKLOADS.iter().flat_map(|workload| workload.arms) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// The workload of that name, or else those whose names begin so.
fn named(names: &[String]) -> Result<Vec<&'static Workload>, String> {
    let mut found: Vec<&'static Workload> = Vec::new();
    for name in names {
        let exact = WORKLOADS.iter().find(|workload| workload.name == name);
        let begins =
            || WORKLOADS.iter().filter(|workload| workload.name.starts_with(&**name)).collect();
        let own: Vec<_> = exact.map_or_else(begins, |workload| vec![workload]);
        if own.is_empty() {
            let known: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            return Err(format!(
                "no workload's name begins with {name:?}; there are {}",
                known.join(", ")
            ));
        }
        found.extend(own);
    }
    Ok(found)
}

/// Arguments mean what they should, and errors are told.
pub fn check() {
    let read = |text: &str| parsed(text.split_whitespace().map(str::to_owned));
    let plan = read("--bench yield_1 pair --rounds 7").expect("right arguments");
    let names: Vec<_> = plan.workloads.iter().map(|workload| workload.name).collect();
    assert_eq!(names, ["yield_1", "pair"]);
    assert_eq!((plan.profile.launches, plan.profile.extent(plan.workloads[0]).most), (3, 3));
    let plan = read("sweep --workers 1,2 --spin off,10us --slot off").expect("right arguments");
    assert_eq!(plan.knobs.slot_arms(), [SLOT_OFF]);
    assert!(matches!(
        read("compare ./before.json"),
        Ok(Plan { action: Action::Compare(Some(_)), .. })
    ));
    let wrong = [
        ("--rounds", "--rounds wants a number above zero after it"),
        ("--rounds 0", "--rounds wants a number above zero, not \"0\""),
        ("--workers 1,2", "1,2 are several values, which are for `sweep`"),
        ("a/b", "a/b is for `record a/b` or `compare a/b`"),
    ];
    for (arguments, message) in wrong {
        assert_eq!(read(arguments).err().as_deref(), Some(message));
    }
    assert!(read("--arm tokyo").err().is_some_and(|message| message.contains("tokio, ")));
    assert!(read("payr").err().is_some_and(|message| message.contains("pair")));
    let extent = Extent { least: 3, most: 30, budget: Duration::from_secs(1) };
    assert!(
        !extent.is_enough(2, Duration::from_secs(9)) && extent.is_enough(3, Duration::from_secs(1))
    );
    assert_eq!(extent.foreseen(5, Duration::from_millis(500)), 10);
}
