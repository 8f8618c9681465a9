//! The bits of handles, and the table that they lead to.

use std::hash::{BuildHasher, BuildHasherDefault};

use crate::capi::boundary::leasehold_error;
use crate::capi::failure::{Failure, LEASEHOLD_ERR_HANDLE};
use crate::capi::lock::leasehold_lock;
use crate::capi::table::*;

fn opened() -> *mut leasehold_error {
    open(leasehold_error::new(Failure::new(LEASEHOLD_ERR_HANDLE, ""))).ok().unwrap()
}

#[test]
fn c11_a_handle_is_no_aligned_pointer_and_never_comes_back() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let handle = opened();
        assert!(handle.addr() & 1 == 1);
        assert!(seen.insert(handle), "{handle:?} was there before");
        assert!(get(handle).is_ok());
        assert!(take(handle).is_ok());
        assert!(get(handle).is_err());
        assert!(take(handle).is_err());
    }
}

#[test]
fn c11_every_changed_bit_makes_a_handle_wrong() {
    let handle = opened();
    let object = get(handle).ok().unwrap();
    for bit in 0..usize::BITS {
        let changed = handle.map_addr(|bits| bits ^ 1 << bit);
        // A test beside this one may have that handle.
        let is_ours = |other| std::sync::Arc::ptr_eq(&object, &other);
        assert!(!get(changed).is_ok_and(is_ours), "bit {bit}");
        assert!(get::<leasehold_lock>(changed.cast()).is_err(), "bit {bit}, as another type");
    }
    assert!(get::<leasehold_lock>(handle.cast()).is_err());
    assert!(take::<leasehold_lock>(handle.cast()).is_err());
    assert!(take(handle).is_ok());
}

#[test]
fn c11_what_a_call_uses_outlives_its_handle() {
    let handle = opened();
    let object = get(handle).ok().unwrap();
    drop(take(handle));
    assert_eq!(std::sync::Arc::strong_count(&object), 1);
}

#[test]
fn handles_are_found_in_different_places_however_far_apart_their_numbers_are() {
    let hashes = BuildHasherDefault::<Spread>::default();
    for stride in (0..32).map(|shift| 1_u64 << shift) {
        let places: std::collections::HashSet<u64> =
            (1..=64).map(|n| hashes.hash_one(handle_of(n * stride)) & 127).collect();
        assert!(places.len() >= 24, "{} places of 128 at a stride of {stride}", places.len());
    }
}
