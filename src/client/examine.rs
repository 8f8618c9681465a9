//! Examining a store: what it finds out by itself, and then one lock, acquired and released.

use super::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::examination::{Checkup, Examination, Subject, Value, kind};

impl Client {
    /// Looks whether the store is fit for locks: settings that let a held lock vanish, rights that are
    /// missing, servers that are slow, full or down, clocks. It changes nothing there, and then acquires
    /// and releases one lock, under a name of its own, unless the checkup is to be read-only or the
    /// servers are not ready for clients. It takes a second or two.
    ///
    /// ```no_run
    /// use leasehold::{Checkup, Client};
    ///
    /// let found = Client::open("redis://127.0.0.1")?.examine(&Checkup::default())?;
    /// for finding in &found.findings {
    ///     eprintln!("{}: {} ({})", finding.severity, finding.what, finding.advice);
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Whatever keeps it from reaching the store at all.
    pub fn examine(&self, checkup: &Checkup) -> Result<Examination, Error> {
        let keeper = self.keepers.here()?;
        let core = keeper.core()?;
        let mut found = Examination::default();
        let subject = Subject { config: &core.config, checkup };
        if core.store.examine(subject, &mut found)? && checkup.tries {
            self.try_lock(subject, &mut found);
        }
        Ok(found)
    }

    fn try_lock(&self, subject: Subject<'_>, found: &mut Examination) {
        let (checkup, began) = (subject.checkup, Moment::now());
        let lock = self.lock(&checkup.name).ttl(checkup.ttl);
        let tried = lock.try_acquire().and_then(|lease| match lease {
            Some(lease) => lease.release().map(|()| true),
            None => Ok(false),
        });
        match tried {
            Ok(true) => {
                let took = Moment::now().since(began);
                found.measured(self.store(), "acquire_and_release", Value::Span(took));
                found.weigh_lap(self.store(), took / 2, subject, "for half of a trial");
            }
            Ok(false) => {
                let name = checkup.name.escape_ascii();
                found.found(self.store(), kind!("lock-taken"), name);
            }
            Err(error) => found.found(self.store(), kind!("lock-failed"), error),
        }
    }
}
