//! Many extensions at once, as a client renews what it holds: they wait for the disk together, and a
//! row that another session keeps holds up none of the others.

use super::requests::{extended, extension, micros};
use super::statements::{BEGIN, CLAIM_ROW, COMMIT, Values, add};
use super::wire::{Lent, Refusal};
use super::{MysqlStore, fault, unless_full};
use crate::store::{By, Failure, Outcome, Request};

/// So many in one transaction, which keeps their rows meanwhile.
const TOGETHER: usize = 64;

impl MysqlStore {
    /// Outcomes of as many as possible of requests that are all extensions. The rest is to be tried one
    /// by one.
    pub(super) fn extend_together(
        &self,
        lent: &mut Lent<'_>,
        requests: &[Request<'_>],
        outcomes: &mut [Option<Outcome>],
        by: By,
    ) -> Result<(), Failure> {
        let is_extend = |request: &Request<'_>| matches!(request, Request::Extend { .. });
        if requests.len() < 2 || !requests.iter().all(is_extend) {
            return Ok(());
        }
        let open: Vec<usize> = (0..requests.len()).filter(|at| outcomes[*at].is_none()).collect();
        for some in open.chunks(TOGETHER) {
            let mut some = some.to_vec();
            while some.len() > 1
                && let Some(kept) = self.extend_some(lent, requests, outcomes, &some, by)?
            {
                some.remove(kept);
            }
        }
        Ok(())
    }

    /// Returns which one was in the way of the others, if one was.
    fn extend_some(
        &self,
        lent: &mut Lent<'_>,
        requests: &[Request<'_>],
        outcomes: &mut [Option<Outcome>],
        some: &[usize],
        by: By,
    ) -> Result<Option<usize>, Failure> {
        let mut text = BEGIN.to_owned();
        for at in some {
            if let Request::Extend { name, token, fence, ttl, reach } = requests[*at] {
                let (name, (statement, to)) = (self.key(name), extension(reach));
                let (token, ttl) = (Some(token), micros(ttl));
                let values = Values { name: &name, token, fence, ttl, to, ..Values::default() };
                add(&mut text, CLAIM_ROW, &values);
                add(&mut text, statement, &values);
            }
        }
        add(&mut text, COMMIT, &Values::default());
        // Why they were refused is asked when one is, by itself.
        Ok(match unless_full(self.exchange(lent, &text, by, false))? {
            Ok((sent, (said, None))) => {
                for (said, at) in said.iter().skip(2).step_by(2).zip(some) {
                    outcomes[*at] = Some(Ok(extended(lent, Some(said), sent)));
                }
                None
            }
            Ok((_, (said, Some(Refusal { code, .. })))) => {
                // Behind the beginning, two statements for each.
                let at = said.len().saturating_sub(1) / 2;
                Some(at).filter(|at| fault::is_kept(code) && *at < some.len())
            }
            Err(failure) => {
                for at in some {
                    outcomes[*at] = Some(Err(Failure::clone(&failure)));
                }
                None
            }
        })
    }
}
