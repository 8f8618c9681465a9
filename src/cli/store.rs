//! Which store a command talks to.

use leasehold::{Client, Config, Error};

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
    pub(crate) fn config(&self) -> Result<Config, Error> {
        let local = self.local.then_some("sqlite:");
        let config =
            self.store.as_deref().or(local).map_or_else(Config::from_env, Config::from_url)?;
        Ok(config.language("shell"))
    }

    pub(crate) fn open(&self) -> Result<Client, Error> {
        Client::with_config(self.config()?)
    }
}
