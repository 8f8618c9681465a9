//! Where the server and those who work with it run.

use super::super::bare::{Address, Bare};
use super::super::pin::{Cores, Server};
use super::super::watch::Watch;
use super::plan::Row;
use crate::exit::Failure;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Where {
    /// Wherever the kernel puts them, as programs do.
    Free,
    /// The server on a core of its own, and nobody else there.
    Apart,
}

/// Cores for all of them; without any, nobody is moved.
pub(super) struct Places {
    wanted: Where,
    found: Option<Found>,
}

struct Found {
    server: Server,
    cores: Cores,
    other: usize,
}

impl Places {
    pub(super) fn choose(
        wanted: Where,
        address: &Address,
        bare: &mut Bare,
        watch: &Watch,
    ) -> Result<Places, Failure> {
        let cores = Cores::choose()?;
        let found = Server::behind(address, bare).zip(cores.other).map(|(server, other)| Found {
            server,
            cores,
            other,
        });
        if found.is_none() {
            watch.note("the server cannot be moved to another core: it is measured where it runs");
        }
        Ok(Places { wanted, found })
    }

    /// For round trips between two cores.
    pub(super) fn look(&self) -> nix::Result<()> {
        let Some(Found { server, cores, other }) = &self.found else { return Ok(()) };
        server.pin(*other)?;
        cores.pin_self()
    }

    /// For starting the processes of a row, which run where this one does.
    pub(super) fn start(&self, row: &Row) -> nix::Result<()> {
        let Some(Found { cores, .. }) = &self.found else { return Ok(()) };
        match self.wanted {
            // Between threads of one process no core has to be woken unless they have two.
            _ if row.is_inside() => cores.pin_self(),
            Where::Free => cores.let_self_go(),
            Where::Apart => cores.pin_beside(),
        }
    }

    /// For letting them work.
    pub(super) fn work(&self, row: &Row) -> nix::Result<()> {
        let Some(Found { server, cores, other }) = &self.found else { return Ok(()) };
        if self.wanted == Where::Free && !row.is_inside() {
            server.let_go();
            cores.let_self_go()
        } else {
            server.pin(*other)?;
            cores.pin_beside()
        }
    }
}
