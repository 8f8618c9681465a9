//! Giving back and extending when replies are lost or late.

use std::time::Duration;

use kit::*;
use leasehold::ErrorKind;

use crate::far::{Far, SLACK, Said, on_each_server, take};
use crate::stores::{ms, secs};

const LIMIT: Duration = Duration::from_secs(10);

on_each_server! {
    c6_a_release_whose_reply_was_lost_is_sent_again_and_is_released,
    c6_a_release_that_was_cut_on_its_way_is_sent_again,
    c5_a_lost_reply_to_the_release_of_what_was_never_known_to_be_valid_is_unknown,
    c6_a_release_that_does_not_get_through_is_unknown_by_the_deadline_and_done_later,
    c5_a_give_that_arrives_late_never_removes_the_lock_of_another,
    c6_a_release_after_a_longer_extension_is_owed_for_as_long_as_that_lasts,
    c6_an_extension_that_is_not_confirmed_leaves_the_lease_as_valid_as_it_was,
    c3_an_extension_that_lands_late_never_shortens_a_later_one,
    c3_a_short_extension_never_ends_a_longer_validity_even_if_its_reply_is_late,
    c5_what_is_left_of_a_let_go_lease_is_its_ttl_whatever_becomes_of_replies,
}

fn c6_a_release_whose_reply_was_lost_is_sent_again_and_is_released(far: &mut Far) {
    for end in [End::Fin, End::Reset] {
        let client = far.warm("");
        let lease = take(&client, LIMIT);
        far.set_only(Said::Give, Mode::LoseReply(end));
        lease.release().unwrap();
        assert_eq!(far.proxy.mode(), Mode::Pass, "the reply was lost");
        assert_eq!(far.holder("lock"), None);
        assert_eq!(client.counters().unknown, 1);
    }
}

fn c6_a_release_that_was_cut_on_its_way_is_sent_again(far: &mut Far) {
    let client = far.warm("");
    let lease = take(&client, LIMIT);
    far.set_only(Said::Give, Mode::CutRequest(60));
    lease.release().unwrap();
    assert_eq!(client.counters().unknown, 1);
    assert_eq!(far.holder("lock"), None);
}

fn c5_a_lost_reply_to_the_release_of_what_was_never_known_to_be_valid_is_unknown(far: &mut Far) {
    let client = far.warm("");
    let (token, fence) = take(&client, LIMIT).detach().unwrap();
    let lease = client.lock("lock").ttl(LIMIT).attach(token, fence).unwrap();
    far.set_only(Said::Give, Mode::LoseReply(End::Fin));
    match lease.release() {
        Ok(()) => assert!(far.may_lose_a_request_for_a_reply()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unknown),
    }
    assert_eq!(far.holder("lock"), None);
}

fn c6_a_release_that_does_not_get_through_is_unknown_by_the_deadline_and_done_later(far: &mut Far) {
    let client = far.warm("io_timeout=300ms");
    let events = client.events().unwrap();
    let lease = take(&client, secs(60));
    far.set_only(Said::Give, Mode::Silent);
    let watch = Stopwatch::start();
    let error = lease.release().unwrap_err();
    watch.assert_at_most(ms(300), SLACK);
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(far.holder("lock").is_some());
    far.proxy.set(Mode::Pass);
    eventually(LIMIT, || far.holder("lock").is_none());
    assert_eq!(events.try_next().unwrap(), None, "a release is no loss");
}

fn c5_a_give_that_arrives_late_never_removes_the_lock_of_another(far: &mut Far) {
    let client = far.warm("io_timeout=200ms");
    let lease = take(&client, ms(1000));
    let fence = lease.fence();
    far.set_only(Said::Give, Mode::HoldRequests);
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Unknown);
    assert!(far.proxy.held() > 0);
    eventually(LIMIT, || far.holder("lock").is_none());
    let theirs = take(&far.near, LIMIT);
    assert!(theirs.fence() > fence);
    far.deliver();
    far.assert_holds(&theirs);
    theirs.release().unwrap();
}

fn c6_a_release_after_a_longer_extension_is_owed_for_as_long_as_that_lasts(far: &mut Far) {
    let client = far.warm("io_timeout=400ms");
    let lease = take(&client, ms(500));
    lease.extend_for(secs(60)).unwrap();
    far.proxy.set(Mode::Silent);
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Unknown);
    // Well past the lock's own ttl.
    std::thread::sleep(ms(1000));
    assert!(far.holder("lock").is_some());
    far.proxy.set(Mode::Pass);
    eventually(LIMIT, || far.holder("lock").is_none());
}

fn c6_an_extension_that_is_not_confirmed_leaves_the_lease_as_valid_as_it_was(far: &mut Far) {
    let client = far.warm("io_timeout=500ms");
    let lease = take(&client, LIMIT);
    let before = lease.remaining();
    for mode in [Mode::SwallowReplies, Mode::Silent] {
        // A new connection has questions of its own.
        far.proxy.set(Mode::Pass);
        client.ping().unwrap();
        far.set_only(Said::Extend, mode);
        let watch = Stopwatch::start();
        let error = lease.extend_for(LIMIT * 6).unwrap_err();
        watch.assert_at_most(ms(500), SLACK);
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(lease.is_valid() && lease.remaining() < before);
    }
    far.proxy.set(Mode::Pass);
    lease.extend_for(LIMIT * 6).unwrap();
    assert!(lease.remaining() > LIMIT * 5);
    // A lost reply costs a second try and nothing else.
    far.set_only(Said::Extend, Mode::LoseReply(End::Reset));
    lease.extend().unwrap();
    assert_eq!(far.proxy.mode(), Mode::Pass, "the reply was lost");
}

fn c3_an_extension_that_lands_late_never_shortens_a_later_one(far: &mut Far) {
    let client = far.warm("io_timeout=200ms");
    let lease = take(&client, LIMIT);
    far.set_only(Said::Time(4321), Mode::HoldRequests);
    assert_eq!(lease.extend_for(ms(4321)).unwrap_err().kind(), ErrorKind::Unknown);
    lease.extend_for(secs(60)).unwrap();
    assert!(far.proxy.held() > 0);
    far.deliver();
    assert!(far.ttl_left("lock") > secs(50));
    assert!(lease.remaining() > secs(50));
}

fn c3_a_short_extension_never_ends_a_longer_validity_even_if_its_reply_is_late(far: &mut Far) {
    let client = far.warm("");
    let lease = take(&client, LIMIT * 3);
    far.proxy.set(Mode::DelayReplies(ms(100)));
    lease.extend_for(ms(20)).unwrap();
    assert!(lease.remaining() > LIMIT);
    assert_eq!(client.counters().lost, 0);
    assert!(far.ttl_left("lock") > LIMIT);
}

fn c5_what_is_left_of_a_let_go_lease_is_its_ttl_whatever_becomes_of_replies(far: &mut Far) {
    let client = far.warm("");
    let lease = take(&client, LIMIT);
    far.set_only(Said::Extend, Mode::LoseReply(End::Fin));
    lease.let_expire_in(ms(1500)).unwrap();
    assert_eq!(far.proxy.mode(), Mode::Pass, "the reply was lost");
    assert!(far.ttl_left("lock") <= ms(1500));
    eventually(LIMIT, || far.holder("lock").is_none());
}
