//! Where figures come from: the machine and the versions, but not the time.

use std::process::Command;

/// The versions that this binary was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Of a package.
fn version(name: &str) -> &'static str {
    let mut lines = LOCK.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    version.map_or("?", |version| version.trim_end_matches('"'))
}

/// What the command prints, in one line.
fn said(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or("?".into(), |text| String::from_utf8_lossy(&text).trim().into())
}

pub struct Environment {
    pub cores: usize,
    pub system: String,
    pub rustc: String,
    /// Names and versions of what is compared.
    pub runtimes: String,
}

impl Environment {
    pub fn here() -> Self {
        let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
        let runtimes = [
            ("paceline", env!("CARGO_PKG_VERSION")),
            ("tokio", version("tokio")),
            ("async-executor", version("async-executor")),
            ("mimalloc", version("mimalloc")),
        ];
        Environment {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: if cfg!(unix) { said("uname", &["-srm"]) } else { std::env::consts::OS.into() },
            rustc: said(&rustc, &["-V"]).split(" (").next().unwrap_or("?").into(),
            runtimes: runtimes.map(|(name, version)| format!("{name} {version}")).join(", "),
        }
    }

    pub fn line(&self) -> String {
        let Environment { cores, system, rustc, runtimes } = self;
        format!("{cores} cores, {system}, {rustc}, {runtimes}")
    }
}
