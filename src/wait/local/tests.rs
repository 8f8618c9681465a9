use super::*;
use crate::jitter::Jitter;
use crate::store::ServerId;
use crate::wait::Backoff;

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
/// A tenth more than the slow check.
const SLOWEST: Duration = Duration::from_secs(33);

/// A line whose only waiter has a place in the store's queue, behind a holder with this ttl.
fn standing(ttl: Duration) -> (Line, Token) {
    let limits = Limits { turns: 64, spread: Duration::ZERO };
    let mut line = Line::new(limits);
    let pace = Pace::new(Backoff::default(), Duration::from_millis(64), Jitter::seeded(1));
    let token = Token::random().unwrap();
    line.join(1, token, Terms { ttl, renew: false, max_hold: None }, pace);
    let Next::Ask(ask) = line.next(1, NOW) else { panic!("it has nothing to ask") };
    let reply = Reply::Busy { free_in: ttl, ticket: 1, rank: 1, ours: true };
    let answer = Answer { reply, sent: NOW, server: 0, by: ServerId::default() };
    line.answered(&ask, &answer, NOW);
    (line, token)
}

fn wake(line: &mut Line) -> Moment {
    match line.next(1, NOW) {
        Next::Sleep(wake) => wake,
        next => panic!("{next:?}"),
    }
}

/// Whoever becomes the first is told how long the holder has the lock.
#[test]
fn whatever_is_told_a_place_is_asked_about_as_often_as_the_slow_check_says() {
    let ttl = Duration::from_secs(600);
    let (mut line, token) = standing(ttl);
    assert!(wake(&mut line) <= NOW.plus(SLOWEST));
    line.window(token, NOW.plus(ttl), NOW);
    assert!(wake(&mut line) <= NOW.plus(SLOWEST));
}

#[test]
fn told_that_a_window_runs_a_waiter_asks_when_it_has_ended() {
    let (mut line, token) = standing(Duration::from_secs(600));
    let end = NOW.plus(Duration::from_secs(1));
    line.window(token, end, NOW);
    assert_eq!(wake(&mut line), end);
}
