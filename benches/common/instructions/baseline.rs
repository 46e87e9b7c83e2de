//! The committed counts, and what is made of a new one.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::process::Command;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.csv");
const COMPILER: &str = "# counted with ";

/// A count may exceed its baseline by so much: twice and more what a change elsewhere in the crate moves it
/// by, through what the compiler inlines.
pub const MOST_GROWTH: f64 = 0.05;

pub struct Baseline {
    pub compiler: String,
    pub counts: HashMap<String, f64>,
}

/// That of the toolchain in use.
pub fn compiler() -> io::Result<String> {
    let version = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8_lossy(&version.stdout).trim().to_owned())
}

impl Baseline {
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string(FILE)?;
        let compiler = text.lines().find_map(|line| line.strip_prefix(COMPILER));
        let compiler = compiler.unwrap_or("a compiler that is not named").to_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        let counts = lines.map(|line| {
            let (op, count) = line.split_once(',')?;
            Some((op.to_owned(), count.parse().ok()?))
        });
        let counts = counts.collect::<Option<_>>();
        let malformed = || io::Error::other(format!("{FILE} is malformed"));
        Ok(Baseline { compiler, counts: counts.ok_or_else(malformed)? })
    }

    pub fn write(counts: &[(&str, f64)]) -> io::Result<()> {
        let mut text = format!("{COMPILER}{}\nop,paceline\n", compiler()?);
        for (op, count) in counts {
            writeln!(text, "{op},{count:.1}").unwrap();
        }
        fs::write(FILE, text)
    }
}
