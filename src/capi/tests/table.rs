//! The bits of handles, and slots that are used again.

use crate::capi::boundary::Failure;
use crate::capi::error::{ErrorObject, leasehold_error};
use crate::capi::lock::LockObject;
use crate::capi::status::LEASEHOLD_ERR_HANDLE;
use crate::capi::table::*;

fn opened() -> *mut leasehold_error {
    open(ErrorObject::new(Failure::new(LEASEHOLD_ERR_HANDLE, ""))).ok().unwrap()
}

#[test]
fn c11_a_handle_is_no_aligned_pointer_and_never_comes_back() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let handle = opened();
        assert!(handle.addr() & 1 == 1);
        assert!(seen.insert(handle), "{handle:?} was there before");
        assert!(get::<ErrorObject>(handle).is_ok());
        assert!(take::<ErrorObject>(handle).is_ok());
        assert!(get::<ErrorObject>(handle).is_err());
        assert!(take::<ErrorObject>(handle).is_err());
    }
}

#[test]
fn c11_every_changed_bit_makes_a_handle_wrong() {
    let handle = opened();
    let object = get::<ErrorObject>(handle).ok().unwrap();
    for bit in 0..usize::BITS {
        let changed = handle.map_addr(|bits| bits ^ 1 << bit);
        // A test beside this one may have that handle.
        let is_ours = |other| std::sync::Arc::ptr_eq(&object, &other);
        assert!(!get::<ErrorObject>(changed).is_ok_and(is_ours), "bit {bit}");
        assert!(get::<LockObject>(changed.cast()).is_err(), "bit {bit}, as another type");
    }
    assert!(get::<LockObject>(handle.cast()).is_err());
    assert!(take::<LockObject>(handle.cast()).is_err());
    assert!(take::<ErrorObject>(handle).is_ok());
}

#[test]
fn c11_what_a_call_uses_outlives_its_handle() {
    let handle = opened();
    let object = get::<ErrorObject>(handle).ok().unwrap();
    drop(take::<ErrorObject>(handle));
    assert_eq!(std::sync::Arc::strong_count(&object), 1);
}
