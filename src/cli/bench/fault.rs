//! Why a measurement ended early, and the exit code that says it.

use std::io;

const USAGE: u8 = 64;
const STORE: u8 = 69;
/// As a shell reports a program that was interrupted.
const STOPPED: u8 = 130;

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) code: u8,
    text: String,
}

impl Fault {
    pub(super) fn store(text: impl Into<String>) -> Fault {
        Fault { code: STORE, text: text.into() }
    }

    pub(super) fn stopped() -> Fault {
        Fault { code: STOPPED, text: "stopped; what was put into the store is removed".to_owned() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::store(error.to_string())
    }
}

impl From<nix::Error> for Fault {
    fn from(error: nix::Error) -> Fault {
        io::Error::from(error).into()
    }
}

impl From<leasehold::Error> for Fault {
    fn from(error: leasehold::Error) -> Fault {
        let code = if error.kind() == leasehold::ErrorKind::BadArgument { USAGE } else { STORE };
        Fault { code, text: error.to_string() }
    }
}

#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::store(format!("SQLite: {error}"))
    }
}
