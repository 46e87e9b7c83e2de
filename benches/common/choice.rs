//! What the arguments of a table choose.

/// Rounds of the short profile, which `cargo bench` runs.
const ROUNDS: usize = 21;

/// What to run.
pub struct Choice {
    /// After the one that warms up, which counts if there is no other.
    pub rounds: usize,
    /// Also prints how many operations all rounds did, warm-up and all.
    pub counts: bool,
    /// Names; all when empty.
    workloads: Vec<String>,
    arms: Vec<String>,
}

impl Choice {
    /// Names of workloads (all without), `--arm NAME` (again for more; all without), `--rounds N`;
    /// `--test` runs each once; `--count` adds the number of operations.
    pub fn from_arguments(workloads: &[&str], arms: &[&str]) -> Self {
        let mut choice =
            Choice { rounds: ROUNDS, counts: false, workloads: Vec::new(), arms: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--test" => choice.rounds = 0,
                "--count" => choice.counts = true,
                "--rounds" => {
                    let number = arguments.next().and_then(|n| n.parse().ok());
                    choice.rounds =
                        number.filter(|&n| n > 0).expect("--rounds wants a number above zero");
                }
                "--arm" => {
                    let name = arguments.next().unwrap_or_default();
                    assert!(arms.contains(&&*name), "no arm {name:?}; there are {arms:?}");
                    choice.arms.push(name);
                }
                "--bench" => {}
                name if workloads.contains(&name) => choice.workloads.push(name.to_owned()),
                other => panic!("no workload {other:?}; there are {workloads:?}"),
            }
        }
        choice
    }

    pub fn wants_workload(&self, name: &str) -> bool {
        is_wanted(&self.workloads, name)
    }

    pub fn wants_arm(&self, name: &str) -> bool {
        is_wanted(&self.arms, name)
    }
}

fn is_wanted(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|wanted| wanted == name)
}
