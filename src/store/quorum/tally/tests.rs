use super::*;
use crate::error::ErrorKind;

const SENT: Moment = Moment::from_nanos(5);

/// What the words of the nodes come to, the last one deciding; `None` for a node that says nothing.
fn count(words: &[Option<Word>]) -> Count {
    let mut tally = Tally::new(words.len(), SENT);
    let said = words.iter().enumerate().filter_map(|(node, word)| Some((node, word.clone()?)));
    let said: Vec<_> = said.collect();
    for (at, (node, word)) in said.iter().enumerate() {
        match tally.heard(*node, word.clone()) {
            Count::Wait(next) => tally = next,
            count => {
                assert_eq!(at + 1, said.len(), "decided early: {count:?}");
                return count;
            }
        }
    }
    Count::Wait(tally)
}

fn unknown(words: &[Option<Word>]) -> Failure {
    match count(words) {
        Count::Unknown(failure) => failure,
        count => panic!("{count:?}"),
    }
}

const DONE: Option<Word> = Some(Word::Done);
const NOT_MINE: Option<Word> = Some(Word::NotMine);
const LATE: Option<Word> = Some(Word::Late);

fn no(kind: ErrorKind) -> Option<Word> {
    Some(Word::Failed(Failure::not_done(Error::new(kind, "here is why"))))
}

#[test]
fn a_majority_that_did_it_decides_whatever_the_others_say() {
    assert!(matches!(count(&[DONE]), Count::Done));
    assert!(matches!(count(&[DONE, None, DONE]), Count::Done));
    assert!(matches!(count(&[LATE, NOT_MINE, DONE, DONE, DONE]), Count::Done));
    assert!(matches!(count(&[DONE, DONE, None, None, None]), Count::Wait(_)));
}

#[test]
fn a_lease_is_lost_when_no_majority_can_have_it() {
    assert!(matches!(count(&[NOT_MINE]), Count::NotMine));
    assert!(matches!(count(&[DONE, NOT_MINE, NOT_MINE]), Count::NotMine));
    assert!(matches!(count(&[LATE, NOT_MINE, None, NOT_MINE, NOT_MINE]), Count::NotMine));
    assert!(matches!(count(&[DONE, NOT_MINE, None]), Count::Wait(_)));
}

#[test]
fn what_hangs_on_a_node_that_does_not_answer_is_unknown() {
    let failure = unknown(&[DONE, NOT_MINE, LATE]);
    assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::NoQuorum, Some(SENT)));
    let failure = unknown(&[DONE, no(ErrorKind::Refused), no(ErrorKind::Refused)]);
    // Done somewhere: the next give finds nothing there, by its own doing.
    assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::NoQuorum, Some(SENT)));
    assert!(failure.error.detail().contains("1 of 3 nodes answered, 2 must"), "{}", failure.error);
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
    for word in [Word::Done, Word::Done, Word::NotMine, Word::Late] {
        match tally.heard(0, word) {
            Count::Wait(next) => tally = next,
            count => panic!("{count:?}"),
        }
    }
    assert!(matches!(tally.heard(2, Word::Done), Count::Done));
}
