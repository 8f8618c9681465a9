//! Which store a command talks to.

use leasehold::{Client, Error};

/// The option that every subcommand has.
#[derive(clap::Args)]
pub(crate) struct Store {
    /// The store; $LEASEHOLD_URL otherwise, else a file of your own
    ///
    /// Everybody on this machine can read a command line: a URL with a password
    /// belongs into the variable LEASEHOLD_URL.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    store: Option<String>,
}

impl Store {
    pub(crate) fn open(&self) -> Result<Client, Error> {
        self.store.as_deref().map_or_else(Client::from_env, Client::open)
    }
}
