//! Which store a command talks to.

use leasehold::{Client, Config};

use crate::exit::{Failure, USAGE};

const ALONE: &str = "a store in memory belongs to one process, and this command is another one: name a store \
     that both can reach, such as redis://host or sqlite:/path/to/file";

/// The option that every subcommand has.
#[derive(clap::Args)]
pub(crate) struct Store {
    /// The store; else $LEASEHOLD_URL, else that of /etc/leasehold.conf
    ///
    /// Every user of this machine can read a command line. Put a URL with a
    /// password into the variable LEASEHOLD_URL.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    store: Option<String>,
    /// Keep the locks in a private file, for your user on this machine only
    ///
    /// Without a URL this is the default, and standard error says so.
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
