//! Which names a store knows, page by page: for people who ask what is locked.

use super::glob::Glob;
use super::{Holder, LockState, Seen};

/// So many names a page looks at: few enough that no server is busy with it for a millisecond.
pub(crate) const PAGE: usize = 256;

/// One lock of a [`Listing`](crate::Listing).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// Its name, without the prefix of the URL.
    pub name: Vec<u8>,
    /// Who has it, and its last fence.
    pub state: LockState,
    /// How many processes stand in its queue, some of which may be gone; `None` where the store does
    /// not say.
    pub waiting: Option<u64>,
}

/// Which names are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) glob: Glob,
    /// Also those that are free, as far as the store remembers them.
    pub(crate) is_all: bool,
}

impl Wanted {
    pub(crate) fn has(&self, holder: Option<&Holder>) -> bool {
        self.is_all || holder.is_some()
    }

    /// Where a store that keeps names in order begins, and before which one it ends, if there is an
    /// end: both behind the client's prefix.
    #[allow(dead_code, reason = "for stores that are features")]
    pub(crate) fn range(&self, prefix: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let head = [prefix, &self.glob.head()].concat();
        let mut end = head.clone();
        while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
        let end = end.last_mut().map(|byte| *byte += 1).map(|()| end);
        (head, end)
    }
}

/// Where a listing goes on. What the numbers mean is the store's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bookmark {
    /// Of a quorum.
    pub(crate) member: usize,
    /// Members of a quorum that could not be asked to the end, a bit for each.
    pub(crate) skipped: u64,
    /// Of several servers.
    pub(crate) server: u32,
    pub(crate) cursor: u64,
    /// The last name that was looked at, where they have an order.
    pub(crate) name: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) listed: Vec<Listed>,
    /// `None` behind the last one.
    pub(crate) next: Option<Bookmark>,
}

impl Seen {
    /// A line of a listing. The key is the name with the client's prefix before it.
    pub(crate) fn listed(&self, key: &[u8], prefix: &[u8]) -> Listed {
        let name = key.strip_prefix(prefix).unwrap_or(key).to_vec();
        Listed { name, state: self.state(), waiting: self.waiting }
    }
}

impl Page {
    /// A page of rows in the order of their keys, each a whole key and what is seen of that name: those
    /// that are wanted are listed. The next page begins behind the last row; an empty one is the end.
    pub(crate) fn fill<E>(
        rows: impl IntoIterator<Item = Result<(Vec<u8>, Seen), E>>,
        wanted: &Wanted,
        prefix: &[u8],
    ) -> Result<Page, E> {
        let mut page = Page::default();
        for row in rows {
            let (key, seen) = row?;
            let listed = seen.listed(&key, prefix);
            if wanted.glob.matches(&listed.name) && wanted.has(listed.state.holder.as_ref()) {
                page.listed.push(listed);
            }
            page.next = Some(Bookmark { name: Some(key), ..Bookmark::default() });
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_before_what_no_name_of_the_pattern_can_be() {
        let range = |prefix: &[u8], pattern: &[u8]| {
            Wanted { glob: Glob::new(pattern), is_all: true }.range(prefix)
        };
        assert_eq!(range(b"", b"*"), (b"".to_vec(), None));
        assert_eq!(range(b"p:", b"a*"), (b"p:a".to_vec(), Some(b"p:b".to_vec())));
        assert_eq!(range(b"", b"a\xff*"), (b"a\xff".to_vec(), Some(b"b".to_vec())));
        assert_eq!(range(b"\xff", b"*"), (b"\xff".to_vec(), None));
    }
}
