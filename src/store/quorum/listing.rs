//! What is locked on a quorum: what a majority says.
//!
//! A lock that is held is on a majority of the members, so it is among the names of any majority of
//! them. So many members are asked for their names, one after the other; of a name of a later one that
//! an earlier one knows, too, the earlier one has told. What is listed of a name is what all members
//! say about it.

use super::round::{majority, too_few};
use super::{QuorumStore, known_to};
use crate::clock::Deadline;
use crate::error::Error;
use crate::store::listing::{Bookmark, Listed, Page, Wanted};
use crate::store::redis::several::Survey;
use crate::store::{Holder, LockState};
use crate::token::Token;

/// Which word of a side key has the last fence of its lock on a node, and which the attempt.
const OWN: usize = 1;
const ATTEMPT: usize = 2;

/// What most members say about a name.
pub(super) struct Agreed {
    /// `Some(None)` where what has it is no token.
    pub(super) token: Option<Option<Token>>,
    pub(super) state: LockState,
    /// All of them have the same fence for it. Else its attempt may not be over: a node that granted a
    /// larger one than most makes them raise theirs. (One that was filled has a larger one for good.)
    pub(super) is_settled: bool,
    /// The attempt that most of them granted it to.
    pub(super) attempt: Option<u64>,
    waiting: Option<u64>,
}

impl QuorumStore {
    pub(super) fn list_page(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let (nodes, most) = (self.nodes(), majority(self.nodes().len()));
        let is_asked = |at: &usize| from.skipped & (1 << at) == 0;
        let earlier: Vec<_> = (0..from.member).filter(is_asked).collect();
        let Some(node) = nodes.get(from.member).filter(|_| earlier.len() < most) else {
            return Ok(Page::default());
        };
        let asked = node.deployment.names(&wanted.glob, from, self.by(deadline)).and_then(
            |(names, next)| {
                let names = earlier
                    .iter()
                    .try_fold(names, |names, at| self.unknown_to(*at, names, deadline));
                Ok((names?, next))
            },
        );
        let next =
            Bookmark { member: from.member + 1, skipped: from.skipped, ..Bookmark::default() };
        let (names, next) = match asked {
            Ok((names, Some(same))) => (names, same),
            Ok((names, None)) => (names, next),
            Err(error) => {
                let skipped = from.skipped | 1 << from.member;
                if nodes.len() - (skipped.count_ones() as usize) < most {
                    return Err(too_few(earlier.len(), nodes.len(), &[error]));
                }
                (Vec::new(), Bookmark { skipped, ..next })
            }
        };
        let agreed = self.agree_on(&names, deadline)?;
        let listed = |(name, agreed): (Vec<u8>, Agreed)| {
            let Agreed { state, waiting, .. } = agreed;
            wanted.has(state.holder.as_ref()).then_some(Listed { name, state, waiting })
        };
        Ok(Page {
            listed: names.into_iter().zip(agreed).filter_map(listed).collect(),
            next: Some(next),
        })
    }

    /// Those of the names that a member does not know: it has not told them before.
    fn unknown_to(
        &self,
        at: usize,
        names: Vec<Vec<u8>>,
        by: Deadline,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let Some(node) = self.nodes().get(at) else { return Ok(names) };
        let surveys = node.deployment.survey(&names, self.by(by))?;
        let unknown = |(name, survey): (Vec<u8>, Survey)| (!survey.is_known()).then_some(name);
        Ok(names.into_iter().zip(surveys).filter_map(unknown).collect())
    }

    pub(super) fn agree_on(&self, names: &[Vec<u8>], by: Deadline) -> Result<Vec<Agreed>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let most = majority(self.nodes().len());
        let mut all = self.reach(by, |node, by| node.deployment.survey(names, by))?;
        all.iter_mut().for_each(|of_node| of_node.reverse());
        let one = |_| agreed(&all.iter_mut().filter_map(Vec::pop).collect::<Vec<_>>(), most);
        Ok(names.iter().map(one).collect())
    }
}

fn agreed(surveys: &[Survey], most: usize) -> Agreed {
    let of = |survey: &Survey| survey.holder.map(|(token, _)| token);
    let tokens = surveys.iter().filter_map(of);
    let count = |token| surveys.iter().filter(|survey| of(survey) == Some(token)).count();
    let token = tokens.into_iter().find(|token| count(*token) >= most);
    let same = || surveys.iter().filter(|survey| token.is_some() && of(survey) == token);
    let holders = || same().filter_map(|survey| survey.seen(OWN).holder());
    let holder = holders().min_by_key(|holder| holder.ttl).map(|shortest| Holder {
        fence: known_to(most, holders().filter_map(|holder| holder.fence)),
        held: known_to(most, holders().filter_map(|holder| holder.held)),
        ..shortest
    });
    let fences: Vec<_> = holders().filter_map(|holder| holder.fence).collect();
    let is_settled = fences.windows(2).all(|pair| pair[0] == pair[1]);
    let attempts = || same().filter_map(|survey| survey.fence_of(token??, ATTEMPT));
    let attempt = known_to(most, attempts());
    let last_fence = known_to(most, surveys.iter().filter_map(Survey::last_fence));
    let waiting = known_to(most, surveys.iter().filter_map(|survey| survey.waiting));
    let state = LockState { holder, last_fence, ..LockState::default() };
    Agreed { token, state, is_settled, attempt, waiting }
}
