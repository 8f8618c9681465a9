//! What is locked, one lock after the other.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use crate::clock::Deadline;
use crate::error::Error;
use crate::keeper::Keepers;
use crate::store::glob::Glob;
use crate::store::introduce;
use crate::store::listing::{Bookmark, Listed, Page, Wanted};

/// The locks that are held under the client's prefix, from [`Client::list`](crate::Client::list): an
/// iterator that asks the store for a page of some hundred at a time.
///
/// ```no_run
/// let client = leasehold::Client::open("redis://127.0.0.1")?;
/// for listed in client.list("stock:*") {
///     let listed = listed?;
///     println!("{:?} {:?}", String::from_utf8_lossy(&listed.name), listed.state.holder);
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// A lock that is held all the while is listed; of one that is taken or given meanwhile nobody can say.
/// On a Redis names come in no order, and one may come twice where keys are added or slots move
/// meanwhile; a key that only other libraries have used is not listed, nor a lock that was left taken
/// for longer than its fence is remembered. On a quorum a lock is listed as most members have it.
#[must_use = "it asks nobody before it is iterated over"]
pub struct Listing {
    keepers: Arc<Keepers>,
    wanted: Wanted,
    page: VecDeque<Listed>,
    /// `None` behind the last page.
    next: Option<Bookmark>,
}

impl Listing {
    pub(super) fn new(keepers: Arc<Keepers>, pattern: &[u8]) -> Listing {
        let wanted = Wanted { glob: Glob::new(pattern), is_all: false };
        Listing { keepers, wanted, page: VecDeque::new(), next: Some(Bookmark::default()) }
    }

    /// Also names that are free, for as long as the store remembers their fences: a day or so.
    pub fn all(mut self) -> Listing {
        self.wanted.is_all = true;
        self
    }

    /// What the next page has, which may be nothing: for a program that looks after other things, too.
    /// `None` behind the last one. An error is as one of the iterator.
    pub fn next_page(&mut self) -> Option<Result<Vec<Listed>, Error>> {
        if self.page.is_empty() {
            match self.turn(self.next.as_ref()?) {
                Ok((page, next)) => (self.page, self.next) = (page, next),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(take(&mut self.page).into()))
    }

    fn turn(&self, from: &Bookmark) -> Result<(VecDeque<Listed>, Option<Bookmark>), Error> {
        let core = self.keepers.here()?.core()?;
        let deadline = Deadline::after(core.config.io_timeout);
        core.with_store(|store| {
            let Page { mut listed, next } = store.list(&self.wanted, from, deadline)?;
            let mut states: Vec<_> = listed.iter_mut().map(|one| take(&mut one.state)).collect();
            introduce(store, &mut states, deadline);
            listed.iter_mut().zip(states).for_each(|(one, state)| one.state = state);
            Ok((listed.into(), next))
        })
    }
}

impl Iterator for Listing {
    /// An error is what kept the store from answering, by `io_timeout` for each page; the next call
    /// asks for the same page again.
    type Item = Result<Listed, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(listed) = self.page.pop_front() {
                return Some(Ok(listed));
            }
            match self.next_page()? {
                Ok(page) => self.page = page.into(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}
