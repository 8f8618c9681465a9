//! Limits, defaults, and how a client is set up. Everything is checked once, before it is used.

mod span;
mod url;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, ErrorKind};

pub use span::parse_duration;

/// The shortest ttl: of less, the margin for drift would leave nothing to rely on.
const MIN_TTL: Duration = Duration::from_millis(3);
/// The longest ttl that any store takes.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The ttl of a lock that sets none.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long a lock waits that sets nothing else: longer than the default ttl, so that a crashed
/// holder does not time out its successor.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(60);
/// How long a living holder may keep a renewed lease that sets nothing else.
pub const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60 * 60);
/// Below this ttl there is no time to renew in.
pub const MIN_RENEWED_TTL: Duration = Duration::from_millis(100);
/// The longest name, in bytes.
pub const MAX_NAME: usize = 64 * 1024;
/// How long a store may take to answer one request.
pub const DEFAULT_IO_TIMEOUT: Duration = Duration::from_secs(1);
/// How many requests of one client may be under way at once.
pub const DEFAULT_POOL: u32 = 8;
/// How long [`Client::close`](crate::Client::close) goes on releasing leases.
pub const DEFAULT_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a lock that was handed to a waiter stays with one that does not answer for it.
pub const DEFAULT_CLAIM_WINDOW: Duration = Duration::from_secs(1);
/// How many turns the threads of a process take in a row before another process has its turn.
pub const DEFAULT_TURNS: u32 = 64;
/// For how long they do.
pub const DEFAULT_TURNS_WITHIN: Duration = Duration::from_millis(100);
/// The largest fence: 2^53 - 1, which every language's numbers hold exactly.
pub const MAX_FENCE: u64 = (1 << 53) - 1;

/// How much of a ttl is never relied on: the clocks of two machines drift apart.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// The environment variable that names the store where no URL is given.
pub const URL_VARIABLE: &str = "LEASEHOLD_URL";

const IO_TIMEOUT_RANGE: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_secs(60 * 60));
const POOL_RANGE: (u32, u32) = (1, 1024);
const CLAIM_WINDOW_RANGE: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(60));
const TURNS_RANGE: (u32, u32) = (1, 1024);
const MOST_TURNS_WITHIN: Duration = Duration::from_secs(60 * 60);

/// How a client is set up: a URL, and what a program would rather set in code.
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::{Client, Config};
///
/// let config = Config::from_url("redis://10.0.0.7/2")?.io_timeout(Duration::from_millis(300)).pool(16);
/// let client = Client::with_config(config)?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) store: StoreConfig,
    pub(crate) prefix: Vec<u8>,
    pub(crate) io_timeout: Duration,
    pub(crate) pool: u32,
    pub(crate) close_timeout: Duration,
    pub(crate) claim_window: Duration,
    pub(crate) turns: u32,
    pub(crate) turns_within: Duration,
}

/// Which store, and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StoreConfig {
    Redis(RedisConfig),
    Sqlite(PathBuf),
}

/// One Redis server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisConfig {
    pub(crate) address: Address,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Files that TLS needs; without any, the system's certificate authorities are trusted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TlsConfig {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// A password. It has no Debug and no Display that could write it anywhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The password itself, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl Config {
    /// Reads a URL.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `redis://[user[:password]@]host[:port][/database]` | one Redis over TCP |
    /// | `rediss://...` | the same over TLS (feature `tls`); `ca=`, `cert=` and `key=` name PEM files |
    /// | `unix:///path/to/socket` | one Redis on a unix socket; `user=`, `password=`, `db=` |
    /// | `sqlite:///path/to/file`, `sqlite:file` | an SQLite file (feature `sqlite`) |
    /// | `sqlite:` | the embedded store, one per user |
    ///
    /// Any of them takes `?prefix=`, `io_timeout=`, `pool=`, `close_timeout=`, `claim_window=`,
    /// `turns=` and `turns_within=`, as in `redis://cache?io_timeout=300ms&pool=16`. A user's name, a password or a parameter may hold
    /// any character, written as `%` and two hex digits.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`]: the URL is malformed, or has a key that is not known.
    pub fn from_url(url: &str) -> Result<Config, Error> {
        url::parse(url)
    }

    /// Does as the shell does: takes the URL from `LEASEHOLD_URL`, or else the embedded store.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`]: the variable holds no URL that can be read, or there is no
    /// place for an embedded store.
    pub fn from_env() -> Result<Config, Error> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Config::from_url(&url),
            Ok(_) | Err(std::env::VarError::NotPresent) => Config::from_url("sqlite:"),
            Err(_) => Err(Error::new(
                ErrorKind::BadArgument,
                format!("the variable {URL_VARIABLE} is not text"),
            )),
        }
    }

    pub(crate) fn new(store: StoreConfig) -> Config {
        Config {
            store,
            prefix: Vec::new(),
            io_timeout: DEFAULT_IO_TIMEOUT,
            pool: DEFAULT_POOL,
            close_timeout: DEFAULT_CLOSE_TIMEOUT,
            claim_window: DEFAULT_CLAIM_WINDOW,
            turns: DEFAULT_TURNS,
            turns_within: DEFAULT_TURNS_WITHIN,
        }
    }

    /// What is put before every name in the store; nothing by default.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Config {
        self.prefix = prefix.into();
        self
    }

    /// How long the store may take to answer one request, connecting included; 1 s by default,
    /// from 1 ms to 1 h.
    pub fn io_timeout(mut self, timeout: Duration) -> Config {
        self.io_timeout = timeout;
        self
    }

    /// How many requests may be under way at once; 8 by default, from 1 to 1024. Two more
    /// connections are kept for renewals and releases.
    pub fn pool(mut self, connections: u32) -> Config {
        self.pool = connections;
        self
    }

    /// How long closing goes on releasing leases; 1 s by default.
    pub fn close_timeout(mut self, timeout: Duration) -> Config {
        self.close_timeout = timeout;
        self
    }

    /// How long a lock that was handed to a waiter stays with it before it must have answered: what
    /// a waiter that died just then costs the ones behind it. 1 s by default, from 50 ms to 60 s.
    /// It should be several round trips, and longer than threads here may be held up.
    pub fn claim_window(mut self, window: Duration) -> Config {
        self.claim_window = window;
        self
    }

    /// How many turns on a lock the threads of this process take in a row, without asking the
    /// store, while others wait elsewhere; 64 by default, from 1 to 1024. 1 asks for every turn.
    pub fn turns(mut self, most: u32) -> Config {
        self.turns = most;
        self
    }

    /// For how long they go on doing so; 100 ms by default, 1 h at most.
    pub fn turns_within(mut self, span: Duration) -> Config {
        self.turns_within = span;
        self
    }

    /// The store as people may see it: no user, no password.
    pub fn display_store(&self) -> String {
        match &self.store {
            StoreConfig::Sqlite(path) => format!("sqlite:{}", path.display()),
            StoreConfig::Redis(redis) => {
                let scheme = if redis.tls.is_some() { "rediss" } else { "redis" };
                match &redis.address {
                    Address::Unix(path) => format!("unix:{}", path.display()),
                    Address::Tcp { host, port } if host.contains(':') => {
                        format!("{scheme}://[{host}]:{port}/{}", redis.database)
                    }
                    Address::Tcp { host, port } => {
                        format!("{scheme}://{host}:{port}/{}", redis.database)
                    }
                }
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let (least, most) = IO_TIMEOUT_RANGE;
        if self.io_timeout < least || self.io_timeout > most {
            return Err(bad(format!(
                "io_timeout is {:?}; it goes from 1ms to 1h",
                self.io_timeout
            )));
        }
        let (least, most) = POOL_RANGE;
        if self.pool < least || self.pool > most {
            return Err(bad(format!("pool is {}; it goes from {least} to {most}", self.pool)));
        }
        if self.prefix.len() > MAX_NAME {
            return Err(bad(format!("the prefix is longer than {MAX_NAME} bytes")));
        }
        let (least, most) = CLAIM_WINDOW_RANGE;
        if self.claim_window < least || self.claim_window > most {
            return Err(bad(format!(
                "claim_window is {:?}; it goes from 50ms to 60s",
                self.claim_window
            )));
        }
        let (least, most) = TURNS_RANGE;
        if self.turns < least || self.turns > most {
            return Err(bad(format!("turns is {}; it goes from {least} to {most}", self.turns)));
        }
        if self.turns_within > MOST_TURNS_WITHIN {
            return Err(bad(format!("turns_within is {:?}; 1h is the most", self.turns_within)));
        }
        if self.close_timeout > IO_TIMEOUT_RANGE.1 {
            return Err(bad(format!("close_timeout is {:?}; 1h is the most", self.close_timeout)));
        }
        Ok(())
    }
}

/// Hides the credentials.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("store", &self.display_store())
            .field("io_timeout", &self.io_timeout)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Where the embedded store lives: `$XDG_STATE_HOME/leasehold/locks.db`, one per user.
fn embedded_path() -> Result<PathBuf, Error> {
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    // The XDG rules: a relative path there is invalid and ignored.
    let state = set("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| Path::new(&home).join(".local/state"));
    state.or_else(home).map(|state| state.join("leasehold/locks.db")).ok_or_else(|| {
        bad("the embedded store needs XDG_STATE_HOME or HOME; set one, or give a URL".to_owned())
    })
}

/// A ttl that every store can keep and that leaves its holder something to rely on.
pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Error> {
    if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Err(bad(format!("the ttl is {ttl:?}; it goes from 3ms to 24h")));
    }
    Ok(())
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name.len() {
        0 => Err(bad("the name is empty".to_owned())),
        length if length > MAX_NAME => {
            Err(bad(format!("the name has {length} bytes; {MAX_NAME} is the most")))
        }
        _ => Ok(()),
    }
}

fn bad(detail: String) -> Error {
    Error::new(ErrorKind::BadArgument, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_must_leave_validity() {
        for good in [3, 100, 30_000, 86_400_000] {
            check_ttl(Duration::from_millis(good)).unwrap();
        }
        for bad in [Duration::ZERO, Duration::from_micros(2999), MAX_TTL + MIN_TTL] {
            assert!(check_ttl(bad).unwrap_err().to_string().contains("3ms to 24h"));
        }
        // Stores count whole milliseconds, and nobody relies on the rest.
        assert!(MIN_TTL > drift(MIN_TTL));
        let less = MIN_TTL - Duration::from_millis(1);
        assert!(less <= drift(less));
    }

    #[test]
    fn names_hold_any_bytes_up_to_the_limit() {
        check_name(b"a{b}\0\xff").unwrap();
        check_name(&vec![b'x'; MAX_NAME]).unwrap();
        assert!(check_name(b"").is_err());
        assert!(check_name(&vec![b'x'; MAX_NAME + 1]).is_err());
    }

    #[test]
    fn c12_a_config_shows_no_password() {
        let config = Config::from_url("redis://bob:hunter2@host/3").unwrap();
        let said = format!("{config:?} {}", config.display_store());
        assert!(!said.contains("hunter2") && !said.contains("bob"), "{said}");
    }
}
