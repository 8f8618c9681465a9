//! What the author of a test reads whose test is mistaken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold::ErrorKind::{self, *};
use leasehold::testing::Memory;

/// Kinds that no store gives.
pub(crate) const CLIENTS: [ErrorKind; 7] =
    [Timeout, Interrupted, Lost, WouldDeadlock, Closed, Forked, BadArgument];

fn said<T>(control: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(control)).map(drop).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[test]
fn a_name_that_no_client_holds_is_told_with_those_that_are_held() {
    let memory = Memory::new();
    let url = memory.url();
    let none = format!("lose('orders:42'): no client holds this lock; locks held in {url}: none");
    assert_eq!(said(|| memory.lose("orders:42")), none);
    let _busy = [memory.busy("orders:24"), memory.busy("x")];
    let said = said(|| memory.assert_held("orders:42"));
    assert!(said.starts_with("assert_held('orders:42'): no client holds this lock; "), "{said}");
    assert!(said.ends_with(": 'orders:24', 'x'"), "{said}");
}

#[test]
fn a_lock_that_is_held_cannot_be_made_busy_and_is_not_free() {
    let memory = Memory::new();
    let lease = memory.client().lock("a").acquire().unwrap();
    assert!(said(|| memory.busy("a")).starts_with("busy('a'): this lock is held already; "));
    assert!(said(|| memory.assert_free("a")).starts_with("assert_free('a'): this lock is held; "));
    lease.release().unwrap();
    memory.assert_free("a");
}

#[test]
fn a_kind_that_no_store_gives_is_refused_with_what_to_do() {
    let memory = Memory::new();
    for kind in CLIENTS {
        let [next, all] = [said(|| memory.fail_next(kind)), said(|| drop(memory.failing(kind)))];
        assert!(next.starts_with(&format!("fail_next({kind:?}): no store gives this error; ")));
        assert!(all.starts_with(&format!("failing({kind:?}): no store gives this error; ")));
    }
    assert!(said(|| memory.fail_next(Timeout)).contains("busy()"));
    assert!(said(|| memory.fail_next(Lost)).contains("lose()"));
    memory.client().ping().unwrap();
}
