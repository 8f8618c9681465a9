//! Which store a command talks to.

use leasehold::{Client, Config};

use crate::exit::{Failure, USAGE};

const ALONE: &str = "a store in memory is of one process, and this command is a process of its own: name a \
     store that others reach, such as redis://host or sqlite:/path/to/file";

/// The option that every subcommand has.
#[derive(clap::Args)]
pub(crate) struct Store {
    /// The store; else $LEASEHOLD_URL, else that of /etc/leasehold.conf
    ///
    /// Everybody on this machine can read a command line: a URL with a password
    /// belongs into the variable LEASEHOLD_URL.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    store: Option<String>,
    /// Keep the locks in a file of your own, for you on this machine only
    ///
    /// So it is where no URL is found, too; then it is said on standard error.
    #[arg(long, conflicts_with = "store", verbatim_doc_comment)]
    local: bool,
}

impl Store {
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let local = self.local.then_some("sqlite:");
        let config =
            self.store.as_deref().or(local).map_or_else(Config::from_env, Config::from_url)?;
        if config.display_store().starts_with("memory:") {
            return Err(Failure { code: USAGE, message: ALONE.to_owned() });
        }
        Ok(config.language("shell"))
    }

    pub(crate) fn open(&self) -> Result<Client, Failure> {
        Ok(Client::with_config(self.config()?)?)
    }
}
