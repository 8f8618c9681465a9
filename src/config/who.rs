//! What others see of a client when they look who has a lock.

use super::limits::MAX_LABEL;
use super::{Config, bad};
use crate::error::Error;
use crate::who::Introduction;

impl Config {
    /// Whether the client says in the store who it is (host, process, program, language, version,
    /// label and since when), so that others see who has a lock and who waits
    /// ([`Lock::inspect`](crate::Lock::inspect), `leasehold show`, the message of a wait that ran
    /// out). On by default. The keeper does it, beside all calls: once soon after the first lease or
    /// wait, and then once a minute while there are any. A client that may not do so goes on without.
    pub fn register(mut self, on: bool) -> Config {
        self.registers = on;
        self
    }

    /// Whether the log has a line, `unguarded`, where the store could lose grants when a server restarts
    /// or fails over, and nothing guards against that. On by default. The keeper finds out beside all
    /// calls, once soon after the first lease or wait; `leasehold doctor` says more.
    pub fn advise(mut self, on: bool) -> Config {
        self.advises = on;
        self
    }

    /// A word of the program's own, which others see beside its name: the tenant, the queue, the
    /// release. 100 bytes at most.
    ///
    /// ```
    /// let config = leasehold::Config::from_url("redis://10.0.0.7")?.label("billing");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Config {
        self.introduction.label = label.into();
        self
    }

    /// What the program is called, as others see it: by default as the file of its command.
    pub fn program(mut self, program: impl Into<String>) -> Config {
        self.introduction.program = program.into();
        self
    }

    /// What the program is written in, as others see it: `rust` by default. For bindings of other
    /// languages.
    pub fn language(mut self, language: impl Into<String>) -> Config {
        self.introduction.language = language.into();
        self
    }
}

impl Introduction {
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.label.len() {
            length if length > MAX_LABEL => {
                Err(bad(format!("the label has {length} bytes; {MAX_LABEL} is the most")))
            }
            _ if self.label.contains(char::is_control) => {
                Err(bad("the label has a line break or another control character"))
            }
            _ => Ok(()),
        }
    }
}
