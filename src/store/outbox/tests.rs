use super::*;
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Failure, Place};

const ONE: ConnectionId = ConnectionId(ServerId(0), 1);
const TWO: ConnectionId = ConnectionId(ServerId(0), 2);
const TTL: Duration = Duration::from_secs(60);

fn token(nth: u128) -> Token {
    format!("{nth:032x}").parse().unwrap()
}

fn owed(name: &str, nth: u128, fence: u64) -> Owed {
    let identity = Identity { name: name.as_bytes().into(), token: token(nth), fence, ttl: TTL };
    Owed { identity, until: Moment::now().plus(TTL) }
}

fn said(reply: Reply) -> Outcome {
    Ok(Answer { reply, sent: Moment::now(), server: 0, by: ServerId::default(), again: None })
}

fn failed(kind: ErrorKind, sent: Option<Moment>) -> Outcome {
    Err(Failure { error: Error::bare(kind), sent })
}

fn lost() -> Outcome {
    failed(ErrorKind::NoAnswer, Some(Moment::now()))
}

/// A release that was written on the first connection.
fn dropped(outbox: &Outbox, name: &str, nth: u128) -> u64 {
    outbox.written(owed(name, nth, 1), Concern::Release, ONE)
}

/// The gives that go in front of a take of this name.
fn in_front(outbox: &Outbox, name: &str, on: ConnectionId) -> Vec<GiveCopy> {
    let (name, ttl, place) = (name.as_bytes(), TTL, Place::Try);
    let take = Request::Take { name, token: token(99), ttl, place, block: 1 };
    outbox.in_front([take], None, Some(on))
}

fn late(outbox: &Outbox) -> Vec<bool> {
    outbox.take_late().iter().map(|late| late.is_unknown).collect()
}

#[test]
fn a_take_repeats_the_gives_of_its_name_unless_they_are_before_it_anyway() {
    let outbox = Outbox::default();
    let give = dropped(&outbox, "a", 1);
    outbox.owe(owed("a", 2, 0), Concern::Doubt, Moment::now());
    outbox.owe(owed("b", 3, 0), Concern::Doubt, Moment::now());
    let same: Vec<_> = in_front(&outbox, "a", ONE).iter().map(|one| one.identity.token).collect();
    assert_eq!(same, [token(2)]);
    let other = in_front(&outbox, "a", TWO);
    assert_eq!(other.len(), 2);
    assert!(in_front(&outbox, "a", TWO).is_empty(), "they are on this one now");
    assert_eq!(outbox.in_front([], Some(b"b"), Some(ONE)).len(), 1, "for a look, too");
    // What is answered, though nothing was proved by it, stands in front of no other take.
    let doubt = other.iter().find(|one| one.id != give).unwrap().id;
    outbox.answered(doubt, Some(ONE), &said(Reply::NotMine));
    outbox.answered(doubt, Some(TWO), &said(Reply::NotMine));
    assert!(in_front(&outbox, "a", ConnectionId(ServerId(0), 3)).iter().all(|one| one.id == give));
}

#[test]
fn of_several_copies_any_may_have_done_it() {
    for first in [said(Reply::NotMine), lost(), failed(ErrorKind::Unavailable, None)] {
        let outbox = Outbox::default();
        let give = dropped(&outbox, "a", 1);
        assert_eq!(in_front(&outbox, "a", TWO).len(), 1);
        outbox.answered(give, Some(ONE), &first);
        outbox.answered(give, Some(TWO), &said(Reply::Given));
        assert!(late(&outbox).is_empty() && outbox.is_empty());
        // The other way round, nobody asks any more.
        let give = dropped(&outbox, "a", 2);
        assert_eq!(in_front(&outbox, "a", TWO).len(), 1);
        outbox.answered(give, Some(TWO), &said(Reply::Given));
        outbox.answered(give, Some(ONE), &first);
        assert!(late(&outbox).is_empty() && outbox.is_empty());
    }
}

#[test]
fn a_copy_that_was_not_done_counts_though_the_keeper_has_sent_another() {
    let (outbox, not_done) = (Outbox::default(), failed(ErrorKind::Unavailable, None));
    let give = dropped(&outbox, "a", 1);
    outbox.answered(give, Some(ONE), &not_done);
    assert_eq!(outbox.take_due(Moment::now(), 10).len(), 1);
    assert_eq!(in_front(&outbox, "a", TWO).len(), 1);
    outbox.answered(give, Some(TWO), &not_done);
    assert!(outbox.has_give_not_done(b"a"), "the take behind it is to be repeated");
    assert_eq!(in_front(&outbox, "a", TWO).len(), 1);
    // Once a copy was answered, none stands in front of a take, and none would be repeated for it.
    outbox.answered(give, None, &said(Reply::NotMine));
    outbox.answered(give, Some(TWO), &not_done);
    assert!(!outbox.has_give_not_done(b"a"));
}

#[test]
fn a_release_that_came_too_late_is_told_once_and_one_that_was_lost_is_sent_again() {
    let outbox = Outbox::default();
    let give = dropped(&outbox, "a", 1);
    outbox.answered(give, Some(ONE), &said(Reply::NotMine));
    assert_eq!(late(&outbox), [false]);
    assert!(outbox.is_empty());
    let give = dropped(&outbox, "a", 2);
    outbox.answered(give, Some(ONE), &lost());
    assert_eq!(late(&outbox), [true]);
    let again = outbox.take_due(Moment::now(), 10);
    assert_eq!(again.len(), 1);
    outbox.tried(&again, &[said(Reply::NotMine)]);
    assert!(late(&outbox).is_empty());
    assert_eq!(outbox.count_gives(), 1, "the first one may still be on its way");
    outbox.close(Moment::now());
    let again = outbox.take_due(Moment::now(), 10);
    outbox.tried(&again, &[said(Reply::NotMine)]);
    assert!(outbox.end(false));
}

#[test]
fn what_a_server_did_not_do_is_sent_again_and_told_only_if_that_fails() {
    for (second, told) in [
        (said(Reply::Given), &[][..]),
        (said(Reply::NotMine), &[false]),
        (failed(ErrorKind::Unavailable, None), &[]),
        (failed(ErrorKind::Refused, None), &[false]),
        (lost(), &[true]),
    ] {
        let outbox = Outbox::default();
        let give = dropped(&outbox, "a", 1);
        outbox.answered(give, Some(ONE), &failed(ErrorKind::Unavailable, None));
        assert!(outbox.has_give_not_done(b"a") && !outbox.has_give_not_done(b"b"));
        let again = outbox.take_due(Moment::now(), 10);
        assert!(!outbox.has_give_not_done(b"a"));
        outbox.tried(&again, &[second]);
        assert_eq!(late(&outbox), told);
    }
}

#[test]
fn a_take_that_its_give_has_overtaken_is_given_up_when_it_was_answered() {
    let outbox = Outbox::default();
    for on in [ONE, TWO] {
        outbox.vote_written(token(1), ONE);
        let give = owed("a", 1, 7);
        assert!(outbox.in_front([give.identity.give()], None, Some(on)).is_empty());
        assert!(outbox.take_due(Moment::now(), 10).is_empty());
        outbox.vote_read(token(1), ONE, true);
        let due = outbox.take_due(Moment::now(), 10);
        let fences: Vec<_> = due.iter().map(|one| one.identity.fence).collect();
        assert_eq!(fences, if on == ONE { vec![] } else { vec![7] });
        // Of one that is held, it is told that a server lacks it.
        assert_eq!(outbox.take_lacking(), if on == ONE { vec![token(1)] } else { vec![] });
    }
}

#[test]
fn of_a_tokens_attempts_the_last_one_is_given_up_and_any_covers_all() {
    let outbox = Outbox::default();
    for fence in [5, 7, 6, 0, 8] {
        outbox.owe(owed("a", 1, fence), Concern::AnyReply, Moment::now());
        let due = outbox.count_gives();
        assert_eq!(due, 1);
    }
    outbox.owe(owed("a", 2, 3), Concern::AnyReply, Moment::now());
    let due = outbox.take_due(Moment::now(), 10);
    let fences: Vec<_> = due.iter().map(|one| one.identity.fence).collect();
    assert_eq!(fences, [0, 3]);
    let outbox = Outbox::default();
    for fence in [5, 7, 6] {
        outbox.owe(owed("a", 1, fence), Concern::AnyReply, Moment::now());
    }
    assert_eq!(outbox.take_due(Moment::now(), 10)[0].identity.fence, 7);
}

#[test]
fn where_nothing_is_answered_the_others_wait_too() {
    let outbox = Outbox::default();
    for nth in 1..=3 {
        outbox.owe(owed("a", nth, 0), Concern::AnyReply, Moment::now());
    }
    let now = Moment::now();
    let due = outbox.take_due(now, 1);
    outbox.tried(&due, &[failed(ErrorKind::Refused, None)]);
    assert!(outbox.take_due(Moment::now(), 10).is_empty());
    let later = Moment::now().plus(FIRST_RETRY);
    assert!(outbox.due() > now && outbox.due() <= later);
    let due = outbox.take_due(later, 10);
    assert_eq!(due.len(), 3);
    let (any, none) = (said(Reply::NotMine), failed(ErrorKind::Refused, None));
    outbox.tried(&due, &[none.clone(), any, none]);
    outbox.owe(owed("a", 4, 0), Concern::AnyReply, Moment::now());
    // Neither this one nor one that was never tried before waits now.
    assert_eq!(outbox.take_due(Moment::now(), 10).len(), 2);
}

#[test]
fn a_connection_that_owes_a_reply_is_known_until_it_is_read_whatever_other_copies_brought() {
    for other in [Reply::NotMine, Reply::Given] {
        let outbox = Outbox::default();
        let (sent, by) = (Moment::now(), Deadline::after(Duration::ZERO));
        let give = dropped(&outbox, "a", 1);
        outbox.note_oldest_unread(ONE, Some((sent, by)));
        in_front(&outbox, "a", TWO);
        outbox.answered(give, Some(TWO), &said(other));
        assert!(outbox.has_unread(sent) && outbox.is_overdue());
        assert!(outbox.due() <= sent.plus(READ_AFTER));
        outbox.note_oldest_unread(ONE, None);
        outbox.answered(give, Some(ONE), &said(Reply::NotMine));
        assert!(!outbox.has_unread(Moment::NEVER) && !outbox.is_overdue());
        assert_eq!(late(&outbox).len(), usize::from(other == Reply::NotMine));
        assert!(outbox.is_empty());
    }
}

#[test]
fn a_token_that_a_server_lacks_is_looked_after_though_nothing_is_unread() {
    let outbox = Outbox::default();
    outbox.were_read(Moment::now());
    outbox.vote_written(token(1), ONE);
    outbox.vote_read(token(1), ONE, true);
    assert!(outbox.due() <= Moment::now().plus(READ_AFTER));
    assert_eq!(outbox.take_lacking(), [token(1)]);
    assert_eq!(outbox.due(), Moment::NEVER);
}

#[test]
fn what_the_store_has_forgotten_is_not_sent_again() {
    let outbox = Outbox::default();
    let over = Owed { until: Moment::now(), ..owed("a", 1, 0) };
    outbox.owe(over.clone(), Concern::AnyReply, Moment::now());
    assert!(outbox.take_due(Moment::now(), 10).is_empty() && outbox.is_empty());
    outbox.owe(over, Concern::Doubt, Moment::now());
    assert_eq!(outbox.take_due(Moment::now(), 10).len(), 1, "once it is");
}

/// A server that rests cannot be told of anything: what is owed to it goes out soon after that.
#[test]
fn what_could_not_be_sent_was_not_tried() {
    let (outbox, now) = (Outbox::default(), Moment::now());
    outbox.owe(owed("a", 1, 1), Concern::AnyReply, now);
    let rested = now.plus(Duration::from_secs(2));
    for _ in 0..20 {
        outbox.put_off(rested);
        assert!(outbox.take_due(now, 10).is_empty());
    }
    assert_eq!(outbox.due(), rested);
    let due = outbox.take_due(rested, 10);
    assert_eq!(due.len(), 1);
    let before = Moment::now();
    outbox.tried(&due, &[lost()]);
    assert!(outbox.due() <= Moment::now().plus(FIRST_RETRY) && outbox.due() >= before);
}

/// A server that is down would be owed all that was dropped in the meantime.
#[test]
fn a_part_in_a_release_is_owed_until_its_ttl_is_over_and_is_then_an_unknown_vote() {
    let (outbox, now) = (Outbox::default(), Moment::now());
    for nth in 1..=2000 {
        outbox.owe(owed("n", nth, 1), Concern::Part, now);
    }
    outbox.put_off(now.plus(TTL * 3));
    assert!(outbox.take_due(now, 32).is_empty());
    assert_eq!(outbox.count_gives(), 2000);
    assert!(outbox.take_due(now.plus(TTL * 2), 32).is_empty());
    assert_eq!(outbox.count_gives(), 0);
    let votes = outbox.take_votes();
    assert_eq!((votes.len(), votes[0]), (2000, (token(1), None)));
    assert!(outbox.is_empty());
}
