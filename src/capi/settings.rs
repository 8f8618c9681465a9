//! Settings that were refused.

use super::boundary::Failure;

/// Remembers which settings were refused. Many programs do not look at what a setter says; what
/// they have set up is then refused when it is used, instead of doing something else than they
/// asked for. Setting the same thing well makes up for it.
#[derive(Clone, Default)]
pub(super) struct Refusals(Vec<(&'static str, Failure)>);

impl Refusals {
    /// What became of setting something; `what` names the setting.
    pub(super) fn note<T>(
        &mut self,
        what: &'static str,
        set: impl FnOnce(&'static str) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.0.retain(|(refused, _)| *refused != what);
        set(what).inspect_err(|failure| self.0.push((what, failure.clone())))
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        self.0.first().map_or(Ok(()), |(_, failure)| Err(failure.clone()))
    }
}
