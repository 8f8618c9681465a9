use std::time::Duration;

use super::*;
use crate::error::{Error, ErrorKind};

const GRANTED: Vote = Some(Ok(Said::Granted { fence: 7 }));

fn busy() -> Vote {
    Some(Ok(Said::Busy { free_in: Duration::ZERO, rank: 0, ticket: 0, holder: 1, ours: true }))
}

fn failed(sent: Option<Moment>) -> Vote {
    Some(Err(Failure { error: Error::bare(ErrorKind::Refused), sent }))
}

/// Which nodes an attempt is given up on, and whether those who wait there are told; of those that
/// have said nothing the first ones are late, and the others were not asked.
fn leftover(nodes: usize, said: Vec<Vote>, late: usize) -> (Vec<usize>, bool) {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let (ttl, place) = (Duration::from_secs(1), Place::Try);
    let take = Request::Take { name: b"n", token, ttl, place, block: 1 };
    let mut question = Question::new(take, 5, nodes, Moment::now());
    let asked: Vec<_> = (0..said.len() + late).collect();
    for (node, said) in said.into_iter().enumerate() {
        question.heard(node, said);
    }
    asked.iter().rev().take(late).for_each(|node| question.heard(*node, None));
    assert!(question.is_settled());
    let left = (0..nodes).filter_map(|node| match question.leftover(node)?.asks {
        Asks::Give { leaves: false, tells, .. } => Some((node, tells)),
        asks => panic!("{asks:?}"),
    });
    let (nodes, tells): (_, Vec<_>) = left.unzip();
    (nodes, tells.contains(&true))
}

#[test]
fn those_who_wait_are_told_of_an_attempt_that_may_have_had_most_nodes() {
    assert_eq!(leftover(3, vec![failed(None), GRANTED], 1), (vec![1, 2], true));
    assert_eq!(leftover(3, vec![busy(), GRANTED], 1), (vec![1, 2], true));
    let lost = failed(Some(Moment::now()));
    assert_eq!(leftover(3, vec![busy(), GRANTED, lost], 0), (vec![1, 2], true));
    assert_eq!(leftover(5, vec![busy(), busy(), GRANTED], 2), (vec![2, 3, 4], true));
}

#[test]
fn those_who_split_the_votes_do_not_call_each_other_back() {
    assert_eq!(leftover(3, vec![busy(), busy(), GRANTED], 0), (vec![2], false));
    assert_eq!(leftover(3, vec![busy(), GRANTED, failed(None)], 0), (vec![1], false));
    let lost = Some(Ok(Said::Quarantined { left: Duration::from_secs(1) }));
    assert_eq!(leftover(3, vec![busy(), GRANTED, lost], 0), (vec![1, 2], false));
    let split = vec![busy(), busy(), busy(), GRANTED, GRANTED];
    assert_eq!(leftover(5, split, 0), (vec![3, 4], false));
    // One that was never asked has granted nothing either.
    let split = vec![busy(), busy(), failed(Some(Moment::now())), GRANTED];
    assert_eq!(leftover(5, split, 0), (vec![2, 3], false));
}

/// Whether it was stored is said to the copy that came last.
#[test]
fn a_node_that_was_told_to_store_a_lease_may_do_so_after_it_was_told_again() {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let (ttl, place) = (Duration::from_secs(1), Place::Try);
    let take = Request::Take { name: b"n", token, ttl, place, block: 1 };
    let may_store = |said: &[Vote]| {
        let mut question = Question::new(take, 5, 3, Moment::now());
        for (node, vote) in [busy(), GRANTED, GRANTED].into_iter().enumerate() {
            question.heard(node, vote);
        }
        assert!(question.has_won() && question.may_store().is_empty());
        said.iter().for_each(|vote| question.heard(0, vote.clone()));
        (question.may_store().to_vec(), question.lacking().is_some())
    };
    let (lost, filled) = (failed(Some(Moment::now())), Some(Ok(Said::Filled)));
    for last in [busy(), Some(Ok(Said::NotMine)), failed(None)] {
        assert_eq!(may_store(&[lost.clone(), last]), (vec![0], true));
    }
    assert_eq!(may_store(&[lost, filled.clone()]), (vec![0], true));
    assert_eq!(may_store(&[None, filled.clone()]), (vec![0], true));
    assert_eq!(may_store(&[failed(None), filled.clone()]), (vec![], false));
    assert_eq!(may_store(&[filled]), (vec![], false));
}
