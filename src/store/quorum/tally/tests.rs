use super::*;
use crate::error::ErrorKind;

const SENT: Moment = Moment::from_nanos(5);

/// What the votes come to, the last one deciding; no vote for a node that has said nothing yet.
fn count(votes: &[Option<Vote>]) -> Option<Verdict> {
    let mut tally = Tally::new(votes.len(), SENT);
    let said = votes.iter().enumerate().filter_map(|(node, vote)| Some((node, vote.clone()?)));
    let mut said = said.peekable();
    while let Some((node, vote)) = said.next() {
        let verdict = tally.heard(node, vote);
        if verdict.is_some() {
            assert!(said.peek().is_none(), "decided early: {verdict:?}");
            return verdict;
        }
    }
    None
}

fn unknown(votes: &[Option<Vote>]) -> Failure {
    match count(votes) {
        Some(Verdict::Unknown(failure)) => failure,
        verdict => panic!("{verdict:?}"),
    }
}

const DONE: Option<Vote> = Some(Some(Ok(Said::Extended)));
const NOT_MINE: Option<Vote> = Some(Some(Ok(Said::NotMine)));
const LATE: Option<Vote> = Some(None);

fn no(kind: ErrorKind) -> Option<Vote> {
    Some(Some(Err(Failure::not_done(Error::new(kind, "here is why")))))
}

#[test]
fn a_majority_that_did_it_decides_whatever_the_others_say() {
    assert!(matches!(count(&[DONE]), Some(Verdict::Done)));
    assert!(matches!(count(&[DONE, None, DONE]), Some(Verdict::Done)));
    assert!(matches!(count(&[LATE, NOT_MINE, DONE, DONE, DONE]), Some(Verdict::Done)));
    assert!(count(&[DONE, DONE, None, None, None]).is_none());
}

#[test]
fn a_lease_is_lost_when_no_majority_can_have_it() {
    assert!(matches!(count(&[NOT_MINE]), Some(Verdict::NotMine)));
    assert!(matches!(count(&[DONE, NOT_MINE, NOT_MINE]), Some(Verdict::NotMine)));
    assert!(matches!(count(&[LATE, NOT_MINE, None, NOT_MINE, NOT_MINE]), Some(Verdict::NotMine)));
    assert!(count(&[DONE, NOT_MINE, None]).is_none());
}

#[test]
fn what_hangs_on_a_node_that_does_not_answer_is_unknown() {
    let failure = unknown(&[DONE, NOT_MINE, LATE]);
    assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::NoQuorum, Some(SENT)));
    // Two of three have answered, so that is not what is too few.
    let why = "1 of 3 servers had the lease, 1 had not, and 1 gave no vote; 2 must have it";
    assert_eq!(failure.error.detail(), why);
    let failure = unknown(&[DONE, no(ErrorKind::Refused), no(ErrorKind::Refused)]);
    // Done somewhere: the next give finds nothing there, by its own doing.
    assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::NoQuorum, Some(SENT)));
    assert!(
        failure.error.detail().contains("1 of 3 servers gave a vote, 2 must"),
        "{}",
        failure.error
    );
}

#[test]
fn what_was_done_nowhere_is_said_to_be_so() {
    let down = || no(ErrorKind::Refused);
    assert_eq!(unknown(&[down()]).sent, None);
    assert_eq!(unknown(&[NOT_MINE, down(), down()]).sent, None);
    // The one that has not answered yet may do it.
    assert_eq!(unknown(&[down(), NOT_MINE, down(), down(), None]).sent, Some(SENT));
    let failure = unknown(&[no(ErrorKind::Auth), None, no(ErrorKind::Auth)]);
    assert_eq!(failure.error.kind(), ErrorKind::Auth);
}

#[test]
fn a_node_that_answers_twice_counts_once() {
    let mut tally = Tally::new(3, SENT);
    for vote in [DONE, DONE, NOT_MINE, LATE].into_iter().flatten() {
        assert!(tally.heard(0, vote).is_none());
    }
    let given = Some(Ok(Said::Given));
    assert!(matches!(tally.heard(2, given), Some(Verdict::Done)));
}
