//! Breaking a grant on a quorum: a majority has to do it, as for a give. A token is never used again,
//! so it alone says which grant is meant: members that were filled, or missed a raise, keep it under
//! another fence.

use std::sync::Arc;
use std::time::Duration;

use super::QuorumStore;
use super::dialect::Said;
use super::listing::Agreed;
use super::round::{majority, too_few};
use super::tally::{Tally, Verdict};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::breaking::{Breach, Breaches, StoredGrant};
use crate::store::outbox::Concern;
use crate::store::{BLOCK, Failure, Lane, Request};

/// How often it is looked whether an attempt is over, and the pause between.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

impl QuorumStore {
    pub(super) fn held_by_most(
        &self,
        name: &[u8],
        by: Deadline,
    ) -> Result<Option<StoredGrant>, Error> {
        // The other half is for the break.
        let (mut looks, by) = (0, by.share(2));
        let (token, state, attempt) = loop {
            let agreed = self.agree_on(&[name.to_vec()], by)?.pop();
            let Some(Agreed { token: Some(token), state, is_settled, attempt, .. }) = agreed else {
                return Ok(None);
            };
            looks += 1;
            // Who asks for it may have died amid that.
            if is_settled || looks == LOOKS || by.has_passed() {
                break (token, state, attempt);
            }
            std::thread::sleep(PAUSE);
        };
        let foreign = || Error::new(ErrorKind::WrongType, StoredGrant::FOREIGN);
        let (name, token) = (Arc::from(name), token.ok_or_else(foreign)?);
        let (last, left) = state.holder.map(|it| (it.fence, it.ttl)).unwrap_or_default();
        let fence = last.map(|last| first_of(last, attempt));
        Ok(Some(StoredGrant { name, token, fence, last: last.unwrap_or(0), left }))
    }

    /// Members that were not reached are told later, as of a give.
    pub(super) fn break_on_most(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let mut tally = Tally::new(self.nodes().len(), Moment::now());
        let (mut verdict, mut missed) = (None, Vec::new());
        for (at, (node, until)) in self.in_turn(deadline).enumerate() {
            if matches!(verdict, Some(Verdict::Done)) && !node.is_ready() {
                missed.push(node);
                continue;
            }
            let grant = (&*held.name, (held.token, 0));
            let said = node.deployment.break_grant(Lane::Caller, grant, by, until);
            let said = said.map(|done| if done == 0 { Said::NotMine } else { Said::Given });
            if said.is_err() {
                missed.push(node);
            }
            verdict = tally.heard(at, Some(said)).or(verdict);
        }
        // What was not done, or may not have been, is not done later: somebody may have been told so.
        if matches!(verdict, Some(Verdict::Done)) {
            let (name, token, ttl) = (&*held.name, held.token, held.left);
            let give = Request::Give { name, token, fence: 0, ttl };
            missed.iter().for_each(|node| node.owe(&[give], Concern::AnyReply));
        }
        match verdict {
            Some(Verdict::Done) => Ok(true),
            Some(Verdict::NotMine) => Ok(false),
            Some(Verdict::Unknown(failure)) => Err(failure),
            None => Err(Failure::not_done(Error::bare(ErrorKind::NoQuorum))),
        }
    }

    /// The newest that any of most members knows: one that was away has an older one.
    pub(super) fn breaches_of(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let (all, mut answered, mut troubles) = (self.nodes().len(), 0, Vec::new());
        let mut known = vec![None; of.len()];
        for (node, by) in self.in_turn(deadline) {
            if answered >= majority(all) && !node.is_ready() {
                continue;
            }
            match node.deployment.breaches(lane, of, by).into_iter().collect::<Result<Vec<_>, _>>()
            {
                Ok(said) => {
                    let newer = |(one, other): (Option<Breach>, Option<Breach>)| {
                        one.into_iter().chain(other).max_by_key(|breach| breach.at)
                    };
                    known = known.into_iter().zip(said).map(newer).collect();
                    answered += 1;
                }
                Err(error) => troubles.push(error),
            }
        }
        // To the holder itself one member's word about its own token is enough.
        if answered < majority(all) && matches!(lane, Lane::Caller) {
            return vec![Err(too_few(answered, all, &troubles))];
        }
        known.into_iter().map(Ok).collect()
    }
}

/// The first fence of a grant, as far as its last one tells. The attempt is the first, where nothing was
/// granted beyond it; that of several turns has a block of one size. Else only the last is known.
fn first_of(last: u64, attempt: Option<u64>) -> u64 {
    attempt.filter(|first| last.checked_sub(*first) == Some(u64::from(BLOCK) - 1)).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_one_grant_are_told_from_earlier_grants() {
        assert_eq!(first_of(1063, Some(1000)), 1000);
        for (last, attempt) in [(1000, 1000), (1062, 1000), (1064, 1000), (1000, 2000), (63, 0)] {
            let attempt = Some(attempt).filter(|attempt| *attempt != 0);
            assert_eq!(first_of(last, attempt), last);
        }
    }
}
