//! The keys of a name.
//!
//! The side key and the queue land in the slot of the lock for every name: with the name's own hash
//! tag where it has one, else with the whole name as the tag, and where a stray brace makes that
//! impossible, with a number as the tag that falls into the slot.

use once_cell::race::OnceBox;

use crate::token::ClientId;

pub(in crate::store::redis) const SLOTS: u16 = 16384;
/// Up to this one, there is a number in each slot.
const LAST_NUMBER: u32 = 109_757;

/// The keys of one name, each in parts: the lock's, the side key, the queue, and who broke it.
pub(in crate::store::redis) fn with_keys<T>(
    prefix: &[u8],
    name: &[u8],
    with: impl FnOnce([[&[u8]; 4]; 4]) -> T,
) -> T {
    let number;
    let lock = &*[prefix, name].concat();
    let (tag, rest) = match hash_tag(lock) {
        Some(tag) => (tag, lock),
        None if !lock.contains(&b'}') => (lock, &[][..]),
        None => {
            number = number_in_slot(slot(lock));
            (number.as_bytes(), lock)
        }
    };
    let beside = |begin| [begin, tag, b"}", rest];
    with([
        [lock, b"", b"", b""],
        beside(SIDE),
        beside(b"leasehold:queue:{"),
        beside(b"leasehold:broken:{"),
    ])
}

/// What every side key begins with, and no other key of ours.
pub(super) const SIDE: &[u8] = b"leasehold:{";

/// The lock, with its prefix, that a side key stands beside; `None` if it is none.
pub(in crate::store::redis) fn lock_beside(side: &[u8]) -> Option<&[u8]> {
    let tagged = side.strip_prefix(SIDE)?;
    let end = tagged.iter().position(|byte| *byte == b'}')?;
    let (tag, lock) = (&tagged[..end], &tagged[end + 1..]);
    Some(if lock.is_empty() { tag } else { lock })
}

/// What a Cluster hashes instead of the whole key: what stands between the first `{` and the next
/// `}`, if that is not empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[open..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[open..open + length])
}

/// The key under which a server notes its run.
pub(in crate::store::redis) const MARKER: &str = "leasehold:marker";

/// Where a client says who it is, of whichever prefix its locks are.
pub(super) fn client_key(client: ClientId) -> String {
    format!("leasehold:client:{client}")
}

/// The marker's key; in a Cluster that of a slot, so that a script may read it.
pub(super) fn write_marker(marker: &mut Vec<u8>, slot: Option<u16>) {
    marker.clear();
    marker.extend_from_slice(MARKER.as_bytes());
    if let Some(slot) = slot {
        marker.extend_from_slice(format!(":{{{}}}", number_in_slot(slot)).as_bytes());
    }
}

#[cfg(feature = "examine")]
pub(in crate::store::redis) fn marker_of(slot: Option<u16>) -> Vec<u8> {
    let mut marker = Vec::new();
    write_marker(&mut marker, slot);
    marker
}

pub(in crate::store::redis) fn slot(key: &[u8]) -> u16 {
    let hashed = hash_tag(key).unwrap_or(key);
    let crc = hashed.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

pub(in crate::store::redis) fn slot_behind(prefix: &[u8], name: &[u8]) -> u16 {
    match prefix {
        [] => slot(name),
        prefix => slot(&[prefix, name].concat()),
    }
}

/// The smallest number whose digits hash to a slot. All of them are found at once, when the first
/// name asks that needs one: in a few milliseconds.
pub(in crate::store::redis) fn number_in_slot(slot_wanted: u16) -> String {
    static NUMBERS: OnceBox<Vec<u32>> = OnceBox::new();
    let numbers = NUMBERS.get_or_init(|| {
        let mut numbers = vec![0; usize::from(SLOTS)];
        for number in (0..=LAST_NUMBER).rev() {
            numbers[usize::from(slot(number.to_string().as_bytes()))] = number;
        }
        Box::new(numbers)
    });
    numbers[usize::from(slot_wanted)].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(name: &[u8]) -> [Vec<u8>; 4] {
        with_keys(b"", name, |keys| keys.map(|key| key.concat()))
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn keys_read_well_for_everyday_names() {
        let [_, side, queue, broken] = keys(b"stock:1");
        assert_eq!(side, b"leasehold:{stock:1}");
        assert_eq!(queue, b"leasehold:queue:{stock:1}");
        assert_eq!(broken, b"leasehold:broken:{stock:1}");
        let [_, side, queue, _] = keys(b"{shop}:1");
        assert_eq!(side, b"leasehold:{shop}{shop}:1");
        assert_eq!(queue, b"leasehold:queue:{shop}{shop}:1");
    }

    #[test]
    fn a_prefix_is_a_part_of_the_name() {
        let [lock, side, ..] = with_keys(b"blue:", b"n", |keys| keys.map(|key| key.concat()));
        assert_eq!((&lock[..], &side[..]), (&b"blue:n"[..], &b"leasehold:{blue:n}"[..]));
    }

    #[test]
    fn every_slot_has_a_marker_of_its_own_in_it() {
        let mut marker = Vec::new();
        for of in 0..SLOTS {
            write_marker(&mut marker, Some(of));
            assert_eq!(slot(&marker), of);
        }
        write_marker(&mut marker, None);
        assert_eq!(marker, b"leasehold:marker");
    }

    proptest! {
        #[test]
        fn all_keys_of_any_name_are_in_one_slot(name in proptest::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(0u8), any::<u8>()], 1..20)) {
            let [lock, side, queue, broken] = keys(&name).map(|key| slot(&key));
            prop_assert_eq!([lock; 3], [side, queue, broken]);
        }

        #[test]
        fn no_two_names_share_what_stands_beside_them(
            one in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'a')], 1..7),
            two in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'a')], 1..7),
        ) {
            prop_assume!(one != two);
            let ([_, side, queue, _], [_, other_side, other_queue, _]) = (keys(&one), keys(&two));
            prop_assert!(side != other_side && queue != other_queue);
            prop_assert!(side != other_queue && queue != other_side);
        }

        #[test]
        fn a_side_key_tells_which_lock_it_stands_beside(
            name in proptest::collection::vec(
                prop_oneof![Just(b'{'), Just(b'}'), Just(b'a'), any::<u8>()], 1..9),
        ) {
            let [lock, side, queue, broken] = keys(&name);
            prop_assert_eq!(lock_beside(&side), Some(&*lock));
            prop_assert_eq!([lock_beside(&queue), lock_beside(&broken)], [None, None]);
        }
    }
}
