//! Settings that C makes one by one, and those that were refused.

use super::boundary::Failure;

/// Many programs do not look at the status of a setter. A setting that was refused is therefore
/// refused again when the settings are used, until it is set well: nothing is done otherwise than
/// the program asked for.
pub(super) struct Settings<T> {
    settings: T,
    refused: Vec<(&'static str, Failure)>,
}

impl<T: Clone> Settings<T> {
    pub(super) fn new(settings: T) -> Settings<T> {
        Settings { settings, refused: Vec::new() }
    }

    /// Changes the setting that `what` names.
    pub(super) fn set(
        &mut self,
        what: &'static str,
        set: impl FnOnce(&'static str, T) -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        self.refused.retain(|(refused, _)| *refused != what);
        match set(what, self.settings.clone()) {
            Ok(settings) => self.settings = settings,
            Err(failure) => {
                self.refused.push((what, failure.clone()));
                return Err(failure);
            }
        }
        Ok(())
    }

    pub(super) fn read(&self) -> Result<T, Failure> {
        match self.refused.first() {
            None => Ok(self.settings.clone()),
            Some((_, failure)) => Err(failure.clone()),
        }
    }

    /// The settings that were not refused.
    pub(super) fn accepted(&self) -> &T {
        &self.settings
    }
}
