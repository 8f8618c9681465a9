//! What stands where. Below the root, one node for each name that is taken, in one of some folders; in
//! it a node of its holder, and one for each waiter:
//!
//! ```text
//! /leasehold                         "1", which says that these nodes are as this program knows them
//! /leasehold/1f                      a folder, so that what is no longer used is found in small pieces
//! /leasehold/1f/stock:sku%2D17       a name
//! /leasehold/1f/.../l-TOKEN          its holder: the ttl in ms, and the fence where no number of the node is it
//! /leasehold/1f/.../w-TOKEN-MS-0012  a waiter: for how long it is handed the lock, and its number
//! /leasehold/c-CLIENT                what a client says of itself; it ends with the client's session
//! /leasehold/1f/CLIENT~record        the same for as many ms as it says, also when the client is gone
//! ```

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::token::{HEX, Token};

/// What the root says.
pub(super) const ROOT: &str = "1";
pub(super) const FOLDERS: u8 = 32;
/// Behind a name's node, of the note that says who has broken the lock.
pub(super) const NOTE: &str = "~broken";
/// Behind a client's number, in a folder, of the record that outlives its session.
pub(super) const LASTING: &str = "~record";
/// A longer one is cut, and has a hash at its end: a server takes no message of more than a megabyte.
const LONGEST: usize = 240;
/// No claim window is longer, whatever the node of a waiter says.
const LONGEST_SPAN: u64 = 60_000;

/// The folder of a key and its node there, without what stands before them. Bytes that no node's name
/// has, and some that would look odd, are `%` and two digits.
pub(super) fn place(key: &[u8]) -> (String, String) {
    let hash = Sha256::digest(key);
    let folder = folder(hash[0] % FOLDERS);
    let mut node = String::with_capacity(key.len());
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b':' | b'@' | b'+' | b',' => {
                node.push(char::from(*byte));
            }
            // A name of dots alone is another place.
            b'.' if !node.is_empty() => node.push('.'),
            byte => push(&mut node, format_args!("%{byte:02X}")),
        }
        if node.len() > LONGEST {
            node.truncate(LONGEST);
            node.push('~');
            hash.iter().for_each(|byte| push(&mut node, format_args!("{byte:02x}")));
            break;
        }
    }
    (folder, node)
}

/// The folder of this number, counted round.
pub(super) fn folder(number: u8) -> String {
    format!("{:02x}", number % FOLDERS)
}

/// The key of a node, or that it was cut; no key where the node is no name.
pub(super) fn key(node: &str) -> Option<Option<Vec<u8>>> {
    match node.contains('~') {
        true if node.ends_with(NOTE) || node.ends_with(LASTING) => None,
        true => Some(None),
        false => Some(Some(percent_encoding::percent_decode_str(node).collect())),
    }
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    // A String takes all that it is given.
    let _ = text.write_fmt(what);
}

pub(super) fn holder(name: &str, token: Token) -> String {
    format!("{name}/l-{}", token.hex(&mut [0; HEX]))
}

/// What a lasting record says, and for how long.
pub(super) fn read_lasting(data: &[u8]) -> Option<(Duration, &[u8])> {
    let space = data.iter().position(|byte| *byte == b' ')?;
    let ttl = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
    Some((Duration::from_millis(ttl), &data[space + 1..]))
}

/// What stands in the node of a name.
#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) holder: Option<Token>,
    /// In the order of their numbers.
    pub(super) waiters: Vec<Queued>,
    /// Something else that stands there as well: the node of the name cannot go.
    pub(super) foreign: Option<String>,
}

/// One that waits.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    /// ZooKeeper counts to 2^31 - 1: in a name that was never free by then, those that come later have no
    /// order. One that comes while the last numbers are still under way may be given one below zero.
    pub(super) number: i32,
    pub(super) node: String,
    pub(super) token: Token,
    /// For how many milliseconds it is handed the lock.
    pub(super) span: u64,
}

impl Inside {
    pub(super) fn read(children: &[&str]) -> Inside {
        let token = |text: &str| text.parse::<Token>().ok();
        let holder = children.iter().find_map(|child| token(child.strip_prefix("l-")?));
        let queued = |child: &&str| {
            let mut words = child.strip_prefix("w-")?.splitn(3, '-');
            let (token, span): (_, u64) = (token(words.next()?)?, words.next()?.parse().ok()?);
            let (number, span) = (words.next()?.parse().ok()?, span.min(LONGEST_SPAN));
            Some(Queued { number, node: (*child).to_owned(), token, span })
        };
        let mut waiters: Vec<Queued> = children.iter().filter_map(queued).collect();
        // They are near one another, on whichever side of the end of the numbers.
        let near = waiters.first().map_or(0, |some| some.number);
        waiters.sort_by_cached_key(|it| (it.number.wrapping_sub(near), it.node.clone()));
        let is_holder = |child: &str| child.strip_prefix("l-").and_then(token) == holder;
        let mut others = children.iter().filter(|child| queued(child).is_none());
        let foreign = others.find(|child| holder.is_none() || !is_holder(child));
        let foreign = foreign.map(|child| (*child).to_owned());
        Inside { holder, waiters, foreign }
    }

    /// Where a token waits.
    pub(super) fn of(&self, token: Token) -> impl Iterator<Item = &Queued> {
        self.waiters.iter().filter(move |queued| queued.token == token)
    }

    /// The first one that waits for another token.
    pub(super) fn heir(&self, but: impl Into<Option<Token>>) -> Option<&Queued> {
        let but = but.into();
        self.waiters.iter().find(|queued| Some(queued.token) != but)
    }
}

impl Queued {
    pub(super) fn path(&self, name: &str) -> String {
        format!("{name}/{}", self.node)
    }
}

/// The beginning of a waiter's node; its number is behind it.
pub(super) fn waiter(name: &str, token: Token, span: u64) -> String {
    format!("{name}/w-{}-{span}-", token.hex(&mut [0; HEX]))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_name_is_a_node_of_its_own_that_zookeeper_takes(
            one in proptest::collection::vec(0u8..=255, 1..400),
            other in proptest::collection::vec(0u8..=255, 1..400),
        ) {
            let (_, node) = place(&one);
            let is_plain = |c: char| c.is_ascii_graphic() && c != '/';
            proptest::prop_assert!(node.chars().all(is_plain) && node.len() < 320, "{node}");
            proptest::prop_assert!(!node.is_empty() && node != "." && node != "..");
            proptest::prop_assert_eq!(place(&other) == place(&one), other == one);
        }
    }

    #[test]
    fn waiters_stand_in_the_order_of_their_numbers() {
        let [a, b] = ["1", "2"].map(|digit| digit.repeat(32));
        let [late, early] = [format!("w-{a}-900-0000000010"), format!("w-{b}-50-0000000009")];
        let held = format!("l-{a}");
        let inside = Inside::read(&["odd", &late, "w-x-y-z", &held, &early]);
        assert_eq!(inside.waiters.iter().map(|it| it.number).collect::<Vec<_>>(), [9, 10]);
        assert_eq!(inside.holder, a.parse().ok());
        assert!(inside.foreign.is_some() && Inside::read(&[&held, &early]).foreign.is_none());
        let endless = Inside::read(&[&format!("w-{a}-{}-0000000010", u64::MAX)]);
        assert_eq!(endless.waiters[0].span, LONGEST_SPAN);
        assert_eq!(inside.heir(b.parse::<Token>().unwrap()).map(|heir| heir.span), Some(900));
        let nodes = [i32::MIN + 1, i32::MAX, i32::MIN].map(|at| format!("w-{a}-900-{at:010}"));
        let inside = Inside::read(&nodes.each_ref().map(String::as_str));
        let numbers: Vec<_> = inside.waiters.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [i32::MAX, i32::MIN, i32::MIN + 1]);
    }
}
