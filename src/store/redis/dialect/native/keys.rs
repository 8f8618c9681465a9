//! The keys of a name.
//!
//! The lock's key is the name itself, so that any client that does SET NX PX and
//! compare-and-delete can share the lock. The side key lands in the same Cluster slot for every
//! name: with the name's own hash tag where it has one, else with the whole name as the tag, and
//! where a stray brace makes that impossible, with a number as the tag that falls into the slot.

use crate::fork::First;

const SLOTS: usize = 16384;

/// Writes both keys into the buffers.
pub(super) fn write(prefix: &[u8], name: &[u8], lock: &mut Vec<u8>, side: &mut Vec<u8>) {
    lock.clear();
    lock.extend_from_slice(prefix);
    lock.extend_from_slice(name);
    side.clear();
    side.extend_from_slice(b"leasehold:{");
    match hash_tag(lock) {
        Some(tag) => side.extend_from_slice(tag),
        None if !lock.contains(&b'}') => {
            // The tag is the whole of the name, and need not be repeated.
            side.extend_from_slice(lock);
            side.extend_from_slice(b"}");
            return;
        }
        None => side.extend_from_slice(number_in_slot(slot(lock)).as_bytes()),
    }
    side.extend_from_slice(b"}");
    side.extend_from_slice(lock);
}

/// What a Cluster hashes instead of the whole key: what stands between the first `{` and the next
/// `}`, if that is not empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[open..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[open..open + length])
}

fn slot(key: &[u8]) -> u16 {
    let hashed = hash_tag(key).unwrap_or(key);
    let crc = hashed.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS as u16
}

/// A number whose digits hash to a slot. All of them are found at once, when the first name asks
/// that needs one: some 160,000 hashes, a few milliseconds.
fn number_in_slot(slot_wanted: u16) -> String {
    static NUMBERS: First<Vec<u32>> = First::new();
    let numbers = NUMBERS.get(|| {
        let mut numbers = vec![u32::MAX; SLOTS];
        let mut missing = SLOTS;
        for number in 0.. {
            let place = &mut numbers[usize::from(slot(number.to_string().as_bytes()))];
            if *place == u32::MAX {
                *place = number;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        numbers
    });
    numbers[usize::from(slot_wanted)].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(name: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut lock, mut side) = (Vec::new(), Vec::new());
        write(b"", name, &mut lock, &mut side);
        (lock, side)
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn side_keys_read_well_for_everyday_names() {
        assert_eq!(keys(b"stock:1").1, b"leasehold:{stock:1}");
        assert_eq!(keys(b"{shop}:1").1, b"leasehold:{shop}{shop}:1");
    }

    proptest! {
        #[test]
        fn both_keys_of_any_name_are_in_one_slot(name in proptest::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(0u8), any::<u8>()], 1..20)) {
            let (lock, side) = keys(&name);
            prop_assert_eq!(slot(&lock), slot(&side));
        }

        #[test]
        fn no_two_names_share_a_side_key(
            one in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'a')], 1..7),
            two in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'a')], 1..7),
        ) {
            prop_assume!(one != two);
            prop_assert_ne!(keys(&one).1, keys(&two).1);
        }
    }
}
