use super::*;

const TTL: Duration = Duration::from_secs(1);
const START: Moment = Moment::from_nanos(1_000_000_000_000);

impl Grant {
    fn valid_until(&self) -> Moment {
        self.state.lock().valid_until
    }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at(count: u64) -> Moment {
    START.plus(ms(count))
}

fn terms(ttl: u64) -> Terms {
    Terms { ttl: ms(ttl), renew: true, max_hold: None, group: crate::metrics::Group::REST }
}

fn grant(terms: Terms) -> Arc<Grant> {
    taken(terms, START, START).unwrap()
}

fn taken(terms: Terms, sent: Moment, now: Moment) -> Option<Arc<Grant>> {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let identity = Identity { name: Arc::from(&b"n"[..]), token, fence: 1, ttl: TTL };
    Grant::taken(identity, terms, sent, now)
}

#[test]
fn c3_validity_counts_from_before_the_send_less_drift() {
    let grant = taken(terms(1000), START, at(400)).unwrap();
    // 1000 ms less 1 % less 2 ms, counted from the send, not from the reply.
    assert_eq!(grant.valid_until(), at(988));
    assert_eq!(grant.remaining(at(400)), ms(588));
    assert_eq!(grant.remaining(at(989)), Duration::ZERO);
}

#[test]
fn c3_a_reply_that_comes_after_validity_grants_nothing() {
    assert!(taken(terms(1000), START, at(988)).is_none());
    assert!(taken(terms(1000), START, at(987)).is_some());
}

#[test]
fn c3_validity_that_has_ended_is_never_raised() {
    let grant = grant(terms(1000));
    assert!(!grant.extended(at(900), ms(1000), at(988)));
    assert_eq!(grant.remaining(at(988)), Duration::ZERO);
}

#[test]
fn an_extension_never_shortens() {
    let grant = grant(terms(1000));
    assert!(grant.extended(at(10), ms(300), at(20)));
    assert_eq!(grant.valid_until(), at(988));
    // Nor does one whose own validity was over when its reply came.
    assert!(grant.extended(at(30), ms(3), at(40)));
    assert_eq!(grant.valid_until(), at(988));
}

#[test]
fn a_short_extension_does_not_put_renewal_off_beyond_the_end() {
    let grant = grant(terms(3000));
    grant.renewal_failed(at(2500), |span| span);
    assert!(grant.extended(at(2600), ms(100), at(2601)));
    assert_eq!(grant.valid_until(), at(2968));
    assert!(matches!(grant.action(at(2601)), KeeperAction::Renew { .. }));
}

#[test]
fn c3_a_short_extension_takes_nothing_even_when_its_reply_is_late() {
    let grant = grant(terms(1000));
    assert!(grant.extended(at(10), ms(20), at(200)));
    assert_eq!(grant.valid_until(), at(988));
}

#[test]
fn c9_short_extensions_do_not_put_off_renewal() {
    let grant = grant(terms(3000));
    for moment in [300, 600, 900] {
        assert!(grant.extended(at(moment), ms(50), at(moment)));
    }
    assert!(matches!(grant.action(at(1000)), KeeperAction::Renew { .. }));
}

#[test]
fn renewal_falls_due_at_a_third_of_the_ttl_and_starts_over() {
    let grant = grant(terms(3000));
    assert_eq!(grant.action(at(969)), KeeperAction::Nothing);
    // A hundredth of the ttl early is near enough, where others are renewed anyway.
    assert_eq!(grant.action(at(970)), KeeperAction::Renew { ttl: ms(3000), reach: Reach::Grow });
    assert_eq!(grant.action(at(1000)), KeeperAction::Renew { ttl: ms(3000), reach: Reach::Grow });
    assert!(grant.extended(at(1000), ms(3000), at(1001)));
    assert_eq!(grant.next(), at(2000));
}

#[test]
fn side_keys_are_refreshed_once_an_hour() {
    let grant = grant(terms(24 * 3_600_000));
    assert_eq!(
        grant.action(at(8 * 3_600_000)),
        KeeperAction::Renew { ttl: ms(24 * 3_600_000), reach: Reach::Claim }
    );
    grant.refreshed(at(8 * 3_600_000));
    assert!(matches!(
        grant.action(at(8 * 3_600_001)),
        KeeperAction::Renew { reach: Reach::Grow, .. }
    ));
}

#[test]
fn a_ttl_of_days_is_renewed_three_times_a_day() {
    let (hour, week) = (3_600_000, 7 * 24 * 3_600_000);
    let grant = grant(terms(week));
    assert_eq!(grant.action(at(7 * hour)), KeeperAction::Nothing);
    assert_eq!(
        grant.action(at(8 * hour)),
        KeeperAction::Renew { ttl: ms(week), reach: Reach::Claim }
    );
    assert!(grant.extended(at(8 * hour), ms(week), at(8 * hour + 1)));
    assert_eq!(grant.next(), at(16 * hour));
}

#[test]
fn c9_one_failure_ends_nothing_then_risk_then_loss_before_validity_ends() {
    let grant = grant(terms(3000));
    let mut now = at(1000);
    let mut warned_at = None;
    let lost_at = loop {
        match grant.action(now) {
            KeeperAction::Renew { .. } => grant.renewal_failed(now, |span| span),
            KeeperAction::Warn => warned_at = Some(now),
            KeeperAction::Lose(reason) => break (now, reason),
            KeeperAction::Nothing => now = grant.next().min(grant.lost_at()),
        }
    };
    let warned_at = warned_at.unwrap();
    assert!(warned_at >= at(1950) && warned_at <= at(2300), "{warned_at:?}");
    assert_eq!(lost_at, (at(3000 - 32 - 100), LossReason::Expired));
    assert_eq!(grant.remaining(lost_at.0), Duration::ZERO);
    assert_eq!(grant.end(lost_at.0), Ended::Before);
}

#[test]
fn max_hold_bounds_ttl_validity_and_renewal() {
    let grant = grant(Terms { max_hold: Some(ms(5000)), ..terms(3000) });
    assert!(grant.extended(at(1000), ms(3000), at(1000)));
    assert_eq!(grant.action(at(2000)), KeeperAction::Renew { ttl: ms(3000), reach: Reach::Grow });
    assert!(grant.extended(at(2000), ms(3000), at(2000)));
    // The ttl asked for last ends with max_hold, and so does the lease.
    assert_eq!(grant.action(at(3900)), KeeperAction::Nothing);
    assert_eq!(grant.next(), at(5000 - 32 - 1000));
    assert_eq!(grant.action(at(3968)), KeeperAction::Warn);
    assert_eq!(grant.action(at(4000)), KeeperAction::Nothing);
    assert_eq!(grant.action(at(4968)), KeeperAction::Lose(LossReason::MaxHold));
}

#[test]
fn max_hold_is_said_only_where_it_has_ended_the_lease() {
    let near_its_end = || {
        let grant = grant(Terms { max_hold: Some(ms(5000)), ..terms(3000) });
        assert!(grant.extended(at(2500), ms(2500), at(2500)));
        grant
    };
    let held = near_its_end();
    assert_eq!(held.action(at(4968)), KeeperAction::Lose(LossReason::MaxHold));
    assert_eq!(held.end(at(4968)), Ended::Before);
    let unwatched = near_its_end();
    assert_eq!(unwatched.end(at(5000)), Ended::Stale);
    for grant in [held, unwatched] {
        assert_eq!(grant.why_over(at(5000), "another's"), "max_hold of 5 s was reached");
    }
    let stolen = near_its_end();
    assert!(matches!(stolen.end(at(3000)), Ended::Valid(_)));
    assert_eq!(stolen.end(at(3000)), Ended::Before);
    assert_eq!(stolen.why_over(at(3000), "another's"), "another's");
}

#[test]
fn max_hold_below_the_ttl_shortens_the_ttl() {
    let terms = Terms { max_hold: Some(ms(500)), ..terms(3000) };
    assert_eq!(terms.first_ttl(), ms(500));
    assert!(grant(terms).valid_until() < at(500));
}

#[test]
fn a_lease_that_is_not_renewed_expires() {
    let grant = grant(Terms { renew: false, ..terms(1000) });
    assert_eq!(grant.next(), Moment::NEVER);
    assert_eq!(grant.action(at(900)), KeeperAction::Nothing);
    assert_eq!(grant.action(grant.lost_at()), KeeperAction::Lose(LossReason::Expired));
}

#[test]
fn an_attached_grant_is_worth_nothing_before_an_extension() {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let identity = Identity { name: Arc::from(&b"n"[..]), token, fence: 9, ttl: TTL };
    let grant = Grant::attached(identity, token, terms(1000), START);
    assert_eq!((grant.remaining(START), grant.stored_as()), (Duration::ZERO, token.detached(9)));
    assert!(grant.extended(at(5), ms(1000), at(6)));
    assert_eq!((grant.valid_until(), grant.stored_as()), (at(5 + 988), token));
    assert!(matches!(grant.end(at(7)), Ended::Valid(_)));
}

#[test]
fn c5_a_turn_ends_once() {
    let grant = grant(terms(1000));
    assert!(matches!(grant.end(at(1)), Ended::Valid(_)));
    assert_eq!(grant.end(at(1)), Ended::Before);
    assert!(!grant.extended(at(2), ms(1000), at(2)));
    assert!(grant.is_over() && grant.action(at(2)) == KeeperAction::Nothing);
}

fn handed() -> Arc<Grant> {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let identity = Identity { name: Arc::from(&b"n"[..]), token, fence: 1, ttl: ms(9000) };
    let legacy = StartingValidity::handed(START, ms(1000), at(50));
    Grant::succeeding(identity, terms(9000), legacy, START).unwrap()
}

#[test]
fn what_was_handed_over_is_claimed_first_also_soon_after_the_machine_started() {
    let grant = handed();
    assert!(grant.is_unclaimed());
    assert!(!grant.is_older_than(Moment::ZERO) && grant.is_older_than(at(1)));
    assert_eq!(grant.reach(at(1)), Reach::Claim);
    assert_eq!(grant.action(at(50)), KeeperAction::Renew { ttl: ms(9000), reach: Reach::Claim });
    grant.refreshed(at(50));
    assert!(!grant.is_unclaimed());
    assert_eq!(grant.reach(at(51)), Reach::Grow);
}

#[cfg(feature = "capi")]
#[test]
fn what_nobody_has_any_more_is_claimed_and_no_more() {
    let left = |grant: &Grant| {
        let Ended::Valid(legacy) = grant.end(at(1)) else { panic!("it was valid") };
        grant.abandoned(legacy, at(1))
    };
    let grant = left(&handed()).unwrap();
    assert_eq!(grant.action(at(50)), KeeperAction::Renew { ttl: ms(9000), reach: Reach::Claim });
    grant.refreshed(at(50));
    assert!(grant.is_over() && !grant.extended(at(50), ms(9000), at(51)));

    // Nothing is told of one that nobody could claim, and closing does not release it.
    let late = left(&handed()).unwrap();
    assert!(late.action(late.lost_at()) == KeeperAction::Nothing && late.is_over());
    assert_eq!(left(&handed()).unwrap().end(at(2)), Ended::Before);

    let claimed = handed();
    claimed.refreshed(at(1));
    assert!(left(&claimed).is_none());
}
