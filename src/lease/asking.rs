//! How a lease asks the store: until there is an answer, and perhaps under several tokens.

use std::time::Duration;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::keeper::Core;
use crate::metrics::{Group, Series};
use crate::store::{Failure, Lane, Outcome, Reply, Request, no_reply};

/// Between two tries of a request that did not get through.
const RETRY: Duration = Duration::from_millis(20);

/// Sends the same request under several tokens, and returns the best outcome: done, or else no
/// answer, or else "not yours".
pub(super) fn best(
    core: &Core,
    group: Group,
    lane: Lane,
    requests: &[Request<'_>],
    deadline: Deadline,
) -> Outcome {
    let rank = |outcome: &Outcome| match outcome {
        Ok(answer) => 2 * u8::from(answer.reply == Reply::NotMine),
        Err(_) => 1,
    };
    let outcomes = core.run(group, lane, requests, deadline).into_iter();
    outcomes.min_by_key(rank).unwrap_or_else(no_reply)
}

/// The error of a request that was not answered.
pub(super) fn unconfirmed(what: &str, Failure { error, sent }: Failure) -> Error {
    if sent.is_none() {
        return error;
    }
    Error::new(ErrorKind::Unknown, format!("the {what} was not confirmed ({error})"))
}

/// Tries until there is an answer. Each `attempt` is told whether an earlier one may have been
/// carried out; a failure's `sent` says so of all of them.
pub(super) fn until_answered(
    figures: &Series,
    deadline: Deadline,
    mut attempt: impl FnMut(bool) -> Result<Result<(), Error>, Failure>,
) -> Result<Result<(), Error>, Failure> {
    let mut asked = None;
    loop {
        let Failure { error, sent } = match attempt(asked.is_some()) {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        if sent.is_some() {
            figures.unknown.add_one();
        }
        asked = asked.or(sent);
        if !error.is_retriable() || deadline.left() < RETRY {
            return Err(Failure { error, sent: asked });
        }
        std::thread::sleep(RETRY);
    }
}
