//! Which names are counted together. There are as many groups as a program names, and one more:
//! names of locks are often made of what users type, and must not make series.

/// The label of the names that are in no group: shorter than any pattern, and none itself.
pub(super) const REST_LABEL: &str = "*";

/// A group of names, of the client that has made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Group(u8);

impl Group {
    /// That of the names which no pattern fits.
    pub(crate) const REST: Group = Group(u8::MAX);

    /// The pattern that fits best: the name itself, else the longest beginning of it.
    pub(crate) fn of(patterns: &[String], name: &[u8]) -> Group {
        let fitting = patterns.iter().zip(0..Group::REST.0).filter_map(|(pattern, number)| {
            let beginning = pattern.strip_suffix('*').map(str::as_bytes);
            let fits = match beginning {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern.as_bytes(),
            };
            fits.then_some((beginning.map_or(usize::MAX, <[u8]>::len), Group(number)))
        });
        fitting.max_by_key(|(length, _)| *length).map_or(Group::REST, |(_, group)| group)
    }

    /// What it is called, in a client with these patterns.
    pub(crate) fn label(self, patterns: &[String]) -> &str {
        patterns.get(self.index()).map_or(REST_LABEL, String::as_str)
    }

    /// Its place among the patterns; that of the rest is behind all of them.
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One for each group of a client, and one for the rest.
pub(crate) struct ByGroup<T> {
    groups: Box<[T]>,
    rest: T,
}

impl<T: Default> ByGroup<T> {
    pub(crate) fn new(groups: usize) -> ByGroup<T> {
        let groups = std::iter::repeat_with(T::default).take(groups).collect();
        ByGroup { groups, rest: T::default() }
    }
}

impl<T> ByGroup<T> {
    pub(crate) fn of(&self, group: Group) -> &T {
        self.groups.get(group.index()).unwrap_or(&self.rest)
    }

    pub(crate) fn of_mut(&mut self, group: Group) -> &mut T {
        self.groups.get_mut(group.index()).unwrap_or(&mut self.rest)
    }

    /// In the order of the patterns, and the rest last.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().chain([&self.rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_the_group_that_fits_it_best() {
        let patterns = ["stock:*", "stock:eu:*", "stock:eu:1", "stock:*"].map(str::to_owned);
        let group = |name: &str| match Group::of(&patterns, name.as_bytes()) {
            Group::REST => "the rest",
            group => &patterns[group.index()],
        };
        assert_eq!(group("stock:us:1"), "stock:*");
        assert_eq!(group("stock:"), "stock:*");
        assert_eq!(group("stock:eu:12"), "stock:eu:*");
        assert_eq!(group("stock:eu:1"), "stock:eu:1");
        for name in ["stock", "", "Stock:1", "stock:*x".trim_start_matches("stock:")] {
            assert_eq!(group(name), "the rest", "{name}");
        }
        assert_eq!(Group::of(&[], b"stock:1"), Group::REST);
    }
}
