//! Settings that C makes one by one, and those that were refused.

use super::failure::{Failure, LEASEHOLD_ERR_SEALED};

/// What a good one is added to does not make good another one that was refused.
pub(super) const ADDED: &str = "metrics group";

/// Many programs do not look at the status of a setter. A setting that was refused is therefore
/// refused again when the settings are used, until it is set well: nothing else is done instead.
#[derive(Clone)]
pub(super) struct Settings<T> {
    /// Those that were not refused.
    pub(super) accepted: T,
    refused: Vec<(&'static str, Failure)>,
    /// From now on every setter is refused.
    pub(super) sealed: bool,
}

impl<T: Clone> Settings<T> {
    pub(super) fn new(settings: T) -> Settings<T> {
        Settings { accepted: settings, refused: Vec::new(), sealed: false }
    }

    /// Changes the setting that `what` names.
    pub(super) fn set(
        &mut self,
        what: &'static str,
        set: impl FnOnce(&'static str, T) -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        if self.sealed {
            return Err(Failure::new(LEASEHOLD_ERR_SEALED, ""));
        }
        self.refused.retain(|(refused, _)| *refused != what || what == ADDED);
        self.accepted = set(what, self.accepted.clone())
            .inspect_err(|failure| self.refused.push((what, failure.clone())))?;
        Ok(())
    }

    pub(super) fn read(&self) -> Result<T, Failure> {
        match self.refused.last() {
            None => Ok(self.accepted.clone()),
            Some((_, failure)) => Err(failure.clone()),
        }
    }
}
