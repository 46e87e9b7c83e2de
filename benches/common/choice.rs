//! What the arguments of a table choose.

/// Without `--rounds`.
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
    /// `--test` runs each once; `--count` adds the number of operations. Ends the process if they are
    /// something else, and says what.
    pub fn from_arguments(workloads: &[&str], arms: &[&str]) -> Self {
        Self::parsed(std::env::args().skip(1), workloads, arms).unwrap_or_else(|message| {
            eprintln!("{message}");
            std::process::exit(2)
        })
    }

    fn parsed(
        mut arguments: impl Iterator<Item = String>,
        workloads: &[&str],
        arms: &[&str],
    ) -> Result<Self, String> {
        let mut choice =
            Choice { rounds: ROUNDS, counts: false, workloads: Vec::new(), arms: Vec::new() };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--test" => choice.rounds = 0,
                "--count" => choice.counts = true,
                "--rounds" => {
                    let number = arguments.next().and_then(|n| n.parse().ok());
                    choice.rounds =
                        number.filter(|&n| n > 0).ok_or("--rounds wants a number above zero")?;
                }
                "--arm" => {
                    let name = arguments.next().unwrap_or_default();
                    if !arms.contains(&&*name) {
                        return Err(format!("no arm {name:?}; there are {}", arms.join(", ")));
                    }
                    choice.arms.push(name);
                }
                "--bench" => {}
                name if workloads.contains(&name) => choice.workloads.push(name.to_owned()),
                other => {
                    let known = workloads.join(", ");
                    return Err(format!("no workload or option {other:?}; workloads are {known}"));
                }
            }
        }
        Ok(choice)
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
