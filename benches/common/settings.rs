//! The knobs of a run: what every runtime in it is made with.

use std::sync::OnceLock;
use std::time::Duration;

pub struct Settings {
    pub workers: usize,
    /// paceline's default without.
    pub timeslice: Option<Duration>,
    pub spin: Option<paceline::Spin>,
    pub ticker: Option<paceline::Ticker>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Those of [`set`], or two workers and what each runtime takes by default.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(|| Settings { workers: 2, timeslice: None, spin: None, ticker: None })
}

/// Before the first runtime is made.
pub fn set(settings: Settings) {
    assert!(SETTINGS.set(settings).is_ok(), "the settings are in use");
}

impl Settings {
    pub fn builder(&self) -> paceline::Builder {
        let mut builder = paceline::Builder::new();
        if let Some(timeslice) = self.timeslice {
            builder = builder.timeslice(timeslice);
        }
        if let Some(spin) = self.spin {
            builder = builder.spin(spin);
        }
        if let Some(ticker) = self.ticker {
            builder = builder.ticker(ticker);
        }
        builder
    }
}
