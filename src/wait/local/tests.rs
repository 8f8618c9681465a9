use super::*;
use crate::jitter::Jitter;
use crate::store::ServerId;
use crate::wait::Backoff;

/// For the exploration: what it looks at, and what it spoils to show that it finds that.
#[cfg(kit)]
impl LocalQueue {
    /// The lock is with this process, as far as it knows.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn is_held_by(&self, token: Token) -> bool {
        self.held.as_ref().is_some_and(|held| held.place.token == token)
    }

    /// The token that stands in the store's queue or is on its way there.
    pub(crate) fn standing(&self) -> Option<Token> {
        self.place.as_ref().map(|place| place.token)
    }

    /// The first take for it was not answered yet.
    pub(crate) fn is_on_its_way(&self, token: Token) -> bool {
        let place = self.place.as_ref().filter(|place| place.token == token);
        place.is_some_and(|place| place.ticket == 0 && place.asking)
    }

    pub(crate) fn forget_ticket(&mut self) {
        if let Some(held) = &mut self.held {
            held.place.ticket = 0;
        }
    }

    pub(crate) fn forget_what_was_left(&mut self) {
        self.left_taken.clear();
    }

    pub(crate) fn let_in_who_comes_later(&mut self) {
        if let Some(held) = &mut self.held {
            held.place.mark = u64::MAX;
        }
    }
}

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
/// A tenth more than the slow check.
const SLOWEST: Duration = Duration::from_secs(33);
const LOOK: Duration = Duration::from_secs(1);

/// A line whose only waiter has a place in the store's queue, behind a holder with this ttl.
fn standing(ttl: Duration) -> (LocalQueue, Token) {
    let limits = Limits { turns: 64, spread: Duration::ZERO, look: LOOK };
    let mut queue = LocalQueue::new(limits);
    let pace = Pace::new(Backoff::default(), Duration::from_millis(64), Jitter::seeded(1));
    let token = Token::random().unwrap();
    queue.join(
        1,
        token,
        Terms { ttl, renew: false, max_hold: None, group: crate::metrics::Group::REST },
        pace,
    );
    let Next::Ask(ask) = queue.next(1, NOW) else { panic!("it has nothing to ask") };
    let reply = Reply::Busy { free_in: ttl, ticket: 1, rank: 1, ours: true };
    let answer = Answer { reply, sent: NOW, server: 0, by: ServerId::default(), again: None };
    queue.answered(&ask, &answer, NOW);
    (queue, token)
}

fn wake(queue: &mut LocalQueue, now: Moment) -> Moment {
    match queue.next(1, now) {
        Next::Sleep(wake) => wake,
        next => panic!("{next:?}"),
    }
}

#[test]
fn however_long_a_lock_is_taken_a_waiter_looks_at_it_often() {
    let (mut queue, token) = standing(Duration::from_secs(600));
    let mut now = NOW;
    for _ in 0..20 {
        let next = wake(&mut queue, now);
        assert!(next > now.plus(LOOK / 2) && next <= now.plus(LOOK), "{next:?} after {now:?}");
        now = next;
        assert_eq!(queue.next(1, now), Next::Look(token));
        // It brings nothing, or that the lock is taken for long.
        if now.as_nanos().is_multiple_of(2) {
            queue.seen(token, now, Duration::from_secs(500), now);
        }
    }
}

#[test]
fn a_waiter_that_sees_a_window_looks_again_when_it_has_ended_and_then_asks() {
    let (mut queue, token) = standing(Duration::from_secs(600));
    let now = wake(&mut queue, NOW);
    assert_eq!(queue.next(1, now), Next::Look(token));
    queue.seen(token, now, LOOK / 10, now);
    let end = wake(&mut queue, now);
    // One is before it.
    assert_eq!(end, now.plus(LOOK / 10 + Duration::from_millis(20)));
    assert_eq!(queue.next(1, end), Next::Look(token));
    queue.seen(token, end, Duration::ZERO, end);
    assert!(matches!(queue.next(1, end), Next::Ask(_)));
}

#[test]
fn a_place_is_asked_about_as_often_as_the_slow_check_says() {
    let (mut queue, token) = standing(Duration::from_secs(600));
    let mut now = NOW;
    loop {
        now = wake(&mut queue, now);
        assert!(now <= NOW.plus(SLOWEST));
        match queue.next(1, now) {
            Next::Look(_) => queue.seen(token, now, Duration::from_secs(500), now),
            Next::Ask(_) => break,
            next => panic!("{next:?}"),
        }
    }
    assert!(now > NOW.plus(SLOWEST / 2));
}

#[test]
fn a_take_that_failed_after_a_message_granted_its_token_may_still_come_behind_the_give() {
    let (mut queue, token) = standing(Duration::from_secs(60));
    let poll = wake(&mut queue, NOW);
    let now = poll.plus(LOOK);
    let ask = Ask { token, ttl: Duration::from_secs(60), ticket: 1, block: 1, give: None };
    queue.handed(token, (5, 64), Some(now), Duration::from_secs(1), now);
    queue.failed(&ask, Some(now), now);
    let Next::Turn(turn) = queue.next(1, now) else { panic!("it has no turn") };
    let Ending::Give { until, .. } = queue.end_turn(token, turn.fence, true, now) else {
        panic!("there is nobody to pass it on to")
    };
    assert_eq!(until, Some(now.plus(ask.ttl)));
}
