use super::*;

const TTL: Duration = Duration::from_secs(10);
const SENT: Moment = Moment::from_nanos(1_000_000_000);
const LATE: Vote = None;
const RAISED: Vote = Some(Ok(Said::Raised));

/// What follows from votes that come one after the other, up to the one that decides something.
fn heard(mut round: Round, votes: &[(usize, Vote)]) -> (Round, Step) {
    for (at, (node, vote)) in votes.iter().enumerate() {
        let step = round.heard(*node, vote.clone(), SENT);
        if !matches!(step, Step::Wait) {
            assert_eq!(at + 1, votes.len(), "decided early: {step:?}");
            return (round, step);
        }
    }
    (round, Step::Wait)
}

fn attempt(nodes: usize, votes: &[(usize, Vote)]) -> (Round, Step) {
    heard(Round::new(nodes, SENT, TTL), votes)
}

fn waits((round, step): (Round, Step)) -> Round {
    assert!(matches!(step, Step::Wait), "{step:?}");
    round
}

fn raises((round, step): (Round, Step)) -> (Round, u64, Vec<usize>) {
    match step {
        Step::Raise { fence, nodes } => (round, fence, nodes),
        step => panic!("{step:?}"),
    }
}

fn fence_of((_, step): (Round, Step)) -> u64 {
    match step {
        Step::Granted { fence } => fence,
        step => panic!("{step:?}"),
    }
}

fn refused((_, step): (Round, Step)) -> (Why, Vec<usize>) {
    match step {
        Step::Refused { why, give } => (why, give),
        step => panic!("{step:?}"),
    }
}

fn busy_of(step: (Round, Step)) -> (Duration, bool, u32) {
    match refused(step).0 {
        Why::Busy { free_in, contested, rank } => (free_in, contested, rank),
        why => panic!("{why:?}"),
    }
}

fn error_of(step: (Round, Step)) -> Error {
    match refused(step).0 {
        Why::NoQuorum(error) => error,
        why => panic!("{why:?}"),
    }
}

fn granted(fence: u64) -> Vote {
    Some(Ok(Said::Granted { fence }))
}

fn busy(secs: u64, holder: u64) -> Vote {
    let (free_in, rank) = (Duration::from_secs(secs), secs as u32);
    Some(Ok(Said::Busy { free_in, rank, ticket: 0, holder, ours: true }))
}

/// The node refused it: nothing was done there.
fn no(kind: ErrorKind) -> Vote {
    Some(Err(Failure::not_done(Error::new(kind, "here is why"))))
}

/// The connection broke: it may have been done.
fn cut() -> Vote {
    Some(Err(Failure::unknown(Error::new(ErrorKind::Refused, "reset"), SENT)))
}

#[test]
fn one_round_trip_is_enough_where_a_majority_grants_the_same() {
    for (nodes, majority) in [(1, 1), (3, 2), (5, 3), (7, 4)] {
        let votes: Vec<_> = (0..majority).map(|node| (node, granted(7))).collect();
        assert_eq!(fence_of(attempt(nodes, &votes)), 7);
        waits(attempt(nodes, &votes[1..]));
    }
}

#[test]
fn dead_and_slow_nodes_are_not_waited_for_when_a_majority_has_granted() {
    let votes =
        [(3, no(ErrorKind::Refused)), (0, granted(7)), (4, LATE), (1, granted(7)), (2, granted(7))];
    assert_eq!(fence_of(attempt(5, &votes)), 7);
}

#[test]
fn the_largest_fence_is_raised_where_fewer_than_a_majority_granted_it() {
    let votes = [(0, granted(5)), (2, granted(7)), (1, LATE)];
    let (round, fence, nodes) = raises(attempt(3, &votes));
    assert_eq!((fence, nodes), (7, vec![0]));
    assert_eq!(fence_of(heard(round, &[(0, RAISED)])), 7);
}

#[test]
fn a_raise_waits_for_those_whose_grants_could_spare_it() {
    let some = [(0, granted(5)), (1, granted(7))];
    let round = waits(attempt(3, &some));
    assert_eq!(fence_of(heard(round.clone(), &[(2, granted(7))])), 7);
    let (_, fence, nodes) = raises(heard(round.clone(), &[(2, granted(9))]));
    assert_eq!((fence, nodes), (9, vec![0, 1]));
    let (_, fence, nodes) = raises(heard(round, &[(2, busy(1, 1))]));
    assert_eq!((fence, nodes), (7, vec![0]));

    // One more cannot make three of five that agree.
    let some = [(0, granted(4)), (1, granted(5)), (2, granted(6)), (3, granted(7))];
    let (_, fence, nodes) = raises(attempt(5, &some));
    assert_eq!((fence, nodes), (7, vec![0, 1, 2]));
}

#[test]
fn grants_that_come_after_the_raise_never_count() {
    let votes = [(0, granted(4)), (1, granted(5)), (2, granted(6)), (3, granted(7))];
    let (round, ..) = raises(attempt(5, &votes));
    // Neither a larger one nor one that would confirm the fence.
    let round = waits(heard(round, &[(4, granted(7)), (4, granted(9)), (0, RAISED)]));
    assert_eq!(fence_of(heard(round, &[(2, RAISED)])), 7);
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let round = waits(attempt(3, &[(0, granted(7)), (0, granted(7)), (0, granted(8))]));
    let round = waits(heard(round, &[(0, LATE), (0, busy(1, 1)), (9, granted(7))]));
    assert_eq!(fence_of(heard(round, &[(1, granted(7))])), 7);

    let votes: Vec<_> = [5, 5, 7, 9].into_iter().map(granted).enumerate().collect();
    let (round, ..) = raises(attempt(5, &votes));
    let round = waits(heard(round, &[(0, RAISED), (0, RAISED), (0, granted(9))]));
    assert_eq!(fence_of(heard(round, &[(1, RAISED)])), 9);
}

#[test]
fn a_raise_that_finds_the_key_gone_does_not_confirm() {
    let votes = [(0, granted(5)), (1, granted(7)), (2, LATE)];
    let (round, ..) = raises(attempt(3, &votes));
    let (why, give) = refused(heard(round.clone(), &[(0, Some(Ok(Said::NotMine)))]));
    assert!(matches!(why, Why::Busy { contested: true, .. }), "{why:?}");
    assert_eq!(give, [0, 1, 2]);
    let (why, give) = refused(heard(round, &[(0, no(ErrorKind::Unavailable))]));
    assert!(matches!(why, Why::NoQuorum(_)), "{why:?}");
    assert_eq!(give, [0, 1, 2], "a node that granted is given, whatever became of the raise");
}

#[test]
fn a_holder_is_waited_for_until_a_majority_can_be_free() {
    let (free_in, contested, rank) = busy_of(attempt(3, &[(2, busy(8, 1)), (0, busy(5, 1))]));
    assert_eq!((free_in, contested, rank), (Duration::from_secs(8), false, 8));

    // What we were granted is given up: it counts as free.
    let votes = [(0, busy(4, 1)), (1, granted(7)), (2, busy(9, 1)), (3, busy(6, 1))];
    let (free_in, contested, _) = busy_of(attempt(5, &votes));
    assert_eq!((free_in, contested), (Duration::from_secs(6), false));
}

#[test]
fn split_votes_are_told_from_a_holder() {
    let votes = [(0, granted(7)), (1, busy(9, 1)), (2, busy(6, 2))];
    assert_eq!(busy_of(attempt(3, &votes)), (Duration::from_secs(6), true, 9));
}

#[test]
fn success_that_has_become_impossible_is_told_at_once() {
    busy_of(attempt(5, &[(0, busy(9, 1)), (1, busy(9, 1)), (2, busy(9, 1))]));
    let down = || no(ErrorKind::Refused);
    error_of(attempt(5, &[(0, down()), (1, down()), (2, down())]));
    // Two are down, one is busy: the last two say whether the lock is taken or the store is down.
    let votes = [(0, down()), (1, down()), (2, busy(9, 1)), (3, granted(7))];
    let waiting = waits(attempt(5, &votes));
    busy_of(heard(waiting.clone(), &[(4, busy(9, 1))]));
    error_of(heard(waiting, &[(4, down())]));
}

#[test]
fn every_node_that_was_asked_is_given_also_those_that_never_answered() {
    let votes =
        [(0, granted(7)), (1, no(ErrorKind::Refused)), (2, cut()), (3, busy(9, 1)), (4, LATE)];
    // Where another has it, nothing of ours is there but a place among the waiters.
    assert_eq!(refused(attempt(5, &votes)).1, [0, 2, 4]);
}

#[test]
fn too_few_nodes_are_an_error_that_says_how_many_and_why() {
    let error = error_of(attempt(3, &[(0, LATE), (1, no(ErrorKind::Refused))]));
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.detail().contains("0 of 3 servers gave a vote, 2 must"), "{error}");
    assert!(error.detail().contains("refused: here is why"), "{error}");

    let error = error_of(attempt(3, &[(0, LATE), (1, LATE)]));
    assert_eq!(error.detail(), "0 of 3 servers gave a vote, 2 must");

    // What two nodes say is said once.
    let votes = [(2, no(ErrorKind::Unavailable)), (1, no(ErrorKind::Unavailable))];
    assert_eq!(error_of(attempt(3, &votes)).detail().matches("here is why").count(), 1);
}

#[test]
fn an_error_of_a_majority_that_can_never_pass_is_the_error() {
    let votes = [(0, no(ErrorKind::WrongType)), (1, no(ErrorKind::WrongType))];
    let error = error_of(attempt(3, &votes));
    assert_eq!((error.kind(), error.detail()), (ErrorKind::WrongType, "here is why"));
    // With one node mended, two can grant.
    let votes = [(0, no(ErrorKind::WrongType)), (1, no(ErrorKind::Refused))];
    let error = error_of(attempt(3, &votes));
    assert!(error.is_retriable(), "{error}");
    assert!(error.detail().contains("wrong_type"), "{error}");
    let votes = [(0, no(ErrorKind::WrongType)), (1, granted(7)), (2, granted(7))];
    assert_eq!(fence_of(attempt(3, &votes)), 7);
}

#[test]
fn nodes_that_lost_their_data_do_not_vote() {
    let lost = |secs| Some(Ok(Said::Quarantined { left: Duration::from_secs(secs) }));
    let error = error_of(attempt(3, &[(0, lost(40)), (1, lost(50))]));
    assert_eq!(error.kind(), ErrorKind::Unavailable, "they are there");
    let fewer = error_of(attempt(3, &[(0, lost(40)), (1, LATE)]));
    assert_eq!(fewer.kind(), ErrorKind::NoQuorum);
    assert!(
        error.detail().contains("2 of 3 servers are new") && error.detail().contains("50 s"),
        "{error}"
    );
    assert_eq!(fence_of(attempt(3, &[(0, lost(40)), (1, granted(7)), (2, granted(7))])), 7);
    let votes = [(0, lost(3)), (1, granted(7)), (2, busy(9, 1))];
    assert_eq!(busy_of(attempt(3, &votes)).0, Duration::from_secs(3));
    // Nor does one that lost them between its grant and the raise.
    let (round, ..) = raises(attempt(3, &[(0, granted(7)), (1, granted(5)), (2, LATE)]));
    assert_eq!(refused(heard(round, &[(1, lost(60))])).1, [0, 1, 2]);
}

#[test]
fn c4_validity_counts_from_the_first_send_and_must_not_be_over() {
    let end = SENT.plus(TTL).minus(drift(TTL));
    let two_at = |votes: &[(usize, Vote)], (node, vote), now| {
        let mut round = waits(attempt(3, votes));
        let step = round.heard(node, vote, now);
        (round, step)
    };
    let just_before = end.minus(Duration::from_nanos(1));
    assert_eq!(fence_of(two_at(&[(0, granted(7))], (1, granted(7)), just_before)), 7);
    let error = error_of(two_at(&[(0, granted(7))], (1, granted(7)), end));
    assert_eq!(
        (error.kind(), error.detail()),
        (ErrorKind::NoQuorum, "granted too late to rely on it")
    );
    // Nor is a second round trip begun for nothing.
    error_of(two_at(&[(0, granted(7)), (2, LATE)], (1, granted(8)), end));
}

#[test]
fn once_it_has_won_it_notes_where_another_has_the_lock_until_that_node_stores_it() {
    let filled = Some(Ok(Said::Filled));
    let lacking = |round: &Round| round.lacking().collect::<Vec<_>>();
    // Whether it is heard before that or after.
    for votes in [
        [(2, busy(9, 1)), (0, granted(7)), (1, granted(7))],
        [(0, granted(7)), (1, granted(7)), (2, busy(9, 1))],
    ] {
        let mut round = Round::new(3, SENT, TTL);
        let won = votes.iter().filter(|(node, vote)| {
            matches!(round.heard(*node, vote.clone(), SENT), Step::Granted { fence: 7 })
        });
        assert_eq!(won.count(), 1);
        assert_eq!((lacking(&round), round.is_whole()), (vec![2], false));
        // Another has it still.
        let not_mine = (2, Some(Ok(Said::NotMine)));
        let round = waits(heard(round, &[not_mine, (2, LATE), (2, no(ErrorKind::OutOfMemory))]));
        assert_eq!(lacking(&round), [2]);
        let round = waits(heard(round, &[(2, filled.clone()), (2, filled.clone())]));
        assert_eq!((lacking(&round), round.is_whole()), (vec![], true));
    }
    // Of one that says nothing, or has no vote, nothing is known that could be mended.
    let lost = Some(Ok(Said::Quarantined { left: TTL }));
    for vote in [LATE, cut(), lost, granted(9)] {
        let (round, _) = attempt(3, &[(0, granted(7)), (1, granted(7))]);
        let round = waits(heard(round, &[(2, vote)]));
        assert!(lacking(&round).is_empty());
    }
    // An attempt that has not won has nothing to mend.
    let round = waits(attempt(3, &[(0, granted(7)), (2, busy(9, 1))]));
    assert!(lacking(&round).is_empty());
    let votes = [(0, granted(5)), (1, granted(7)), (2, busy(9, 1))];
    let (round, ..) = raises(attempt(3, &votes));
    let (round, step) = heard(round, &[(0, RAISED)]);
    assert!(matches!(step, Step::Granted { fence: 7 }));
    assert_eq!(lacking(&round), [2]);
}

impl Round {
    /// It has succeeded, and every node has said that it has the lock.
    pub(crate) fn is_whole(&self) -> bool {
        let has = |state: &NodeState| matches!(state, Heard(Granted { .. } | Raised | Filled));
        self.has_won && self.nodes.iter().all(has)
    }
}

/// For the exploration, which shows that it finds what is wrong.
#[cfg(kit)]
impl Round {
    /// The round no longer waits for what this node says.
    pub(crate) fn is_late(&self, node: usize) -> bool {
        matches!(self.nodes[node], Out { .. })
    }

    /// It waits for the node as if it had told it to raise.
    pub(crate) fn count_late(&mut self, node: usize) {
        self.nodes[node] = Raising;
    }

    /// The largest fence so far, if more than half of those that granted anything granted it.
    pub(crate) fn fence_of_the_granted(&self) -> Option<u64> {
        let fence = self.nodes.iter().filter_map(NodeState::fence).max()?;
        let confirmed = self.count(|state| state.fence() == Some(fence));
        (confirmed > self.count(NodeState::is_granted) / 2).then_some(fence)
    }
}
