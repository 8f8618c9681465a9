//! What the holder of a lock asks for: to keep it, to give it up, to pass it on. Each asks that nothing
//! was written since, so that a copy that arrives late finds nothing to do.

use std::time::Duration;

use super::dial::transact;
use super::keys::{self, Name, Said, created, said};
use super::leases::{Lease, Leases, keep_alive};
use super::messages::{Key, MOST_OPS, Op, Txn, most_of};
use super::own_keys::{LATE, OwnKey};
use super::wire::Wire;
use super::{EtcdStore, fault};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, BLOCK, Failure, Lane, Outcome, Place, Reach, Reply, Request, millis};
use crate::token::Token;

/// A request starts anew so often at most, since its key was another than known.
pub(super) const MOST_TRIES: u32 = 4;

/// A lock that is kept by its lease alone, which is long enough as it is.
pub(super) struct Renewal<'a> {
    request: Request<'a>,
    token: Token,
    ttl: Duration,
    own: OwnKey,
    lease: Lease,
}

impl EtcdStore {
    /// Those in front of these requests that are renewals, which go out together.
    pub(super) fn renewals<'a>(&self, requests: &[Request<'a>]) -> Vec<Renewal<'a>> {
        let some = requests.iter().take(MOST_OPS).map_while(|one| self.renewal(one));
        let mut renewals: Vec<_> = some.collect();
        renewals.truncate(most_of(renewals.iter().map(|one| &*one.own.key)));
        renewals
    }

    fn renewal<'a>(&self, request: &Request<'a>) -> Option<Renewal<'a>> {
        let Request::Extend { token, fence, ttl, reach: Reach::Grow | Reach::Claim, .. } = *request
        else {
            return None;
        };
        let own = self.own_keys.get(token).filter(|own| own.created == created(fence))?;
        let lease = own.lease.filter(|lease| !own.is_doubtful && lease.span >= ttl)?;
        // Others see by the key for how long it may be relied on.
        let lasts = said(&own.value, own.created)?.ttl;
        let is_said = millis(lasts) >= millis(ttl);
        is_said.then_some(Renewal { request: *request, token, ttl, own, lease })
    }

    pub(super) fn renew_all(
        &self,
        lane: Lane,
        renewals: &[Renewal<'_>],
        deadline: Deadline,
    ) -> Vec<Outcome> {
        let done =
            self.on_wire(lane, deadline, |wire, deadline| self.renew(wire, renewals, deadline));
        done.unwrap_or_else(|failure| vec![Err(failure); renewals.len()])
    }

    /// Begins the lives of their leases anew, and then looks at the keys: a majority has to say that
    /// they are there, and that the one who renewed them was the leader.
    fn renew(
        &self,
        wire: &mut Wire,
        renewals: &[Renewal<'_>],
        deadline: Deadline,
    ) -> Result<Vec<Outcome>, Failure> {
        let mut leases: Vec<_> = renewals.iter().map(|one| one.lease).collect();
        let sent = Moment::now();
        let unknown = |error| Failure::unknown(error, sent);
        keep_alive(wire, &mut leases, deadline).map_err(unknown)?;
        let looks = renewals.iter().map(|one| Op::get(&one.own.key));
        let look = looks.fold(Txn::default(), Txn::then);
        let looked = transact(wire, &look, deadline);
        let (mut done, _) = looked.map_err(|failure| match failure.sent {
            // It is made again at once: a lease that lives on longer than was heard harms nobody.
            None if fault::is_lost_token(failure.error.detail()) => failure,
            _ => unknown(failure.error),
        })?;
        let mut parts = done.parts.drain(..);
        let outcomes = renewals.iter().zip(leases).map(|(one, mut lease)| {
            let seen = (one.token, &one.own);
            match parts.next().and_then(|mut part| part.first()) {
                Some(key) if key.modified == one.own.modified => {}
                // A request of which nothing was heard has changed it, or others have asked whether it is
                // still relied on. Whoever asked counts no renewal but one that writes it.
                Some(key) if key.created == one.own.created => {
                    self.own_keys.change(seen, |own| own.is_doubtful = true);
                    let is_asked = said(&key.value, key.created).is_some_and(|who| {
                        who.token == one.token && who.asked == Some(one.own.modified)
                    });
                    return match is_asked {
                        true => self.extend(wire, &one.request, deadline),
                        false => Err(unknown(changed())),
                    };
                }
                // Or the client whose key it was has used it again.
                _ => return Ok(self.gone(one.token, sent)),
            }
            let is_renewed = lease.confirm(done.term)
                && self.own_keys.change(seen, |own| {
                    own.lease = Some(lease);
                    own.ends = own.ends.max(sent.plus(one.ttl));
                    own.until = lease.lives_until().plus(LATE);
                });
            let answer = is_renewed.then(|| self.answer(Reply::Extended, sent));
            answer.ok_or_else(|| unknown(changed()))
        });
        Ok(outcomes.collect())
    }

    pub(super) fn extend(
        &self,
        wire: &mut Wire,
        request: &Request<'_>,
        deadline: Deadline,
    ) -> Outcome {
        let Request::Extend { name: raw, token, fence, ttl, reach } = *request else {
            return Err(Failure::not_done(changed()));
        };
        let (name, to) = (self.name(raw), reach.holder(token));
        let is_known = |own: &OwnKey| own.created == created(fence) && !own.is_doubtful;
        for _ in 0..MOST_TRIES {
            let ours = match self.own_keys.get(token).filter(is_known) {
                Some(ours) => ours,
                None => {
                    // An earlier copy may have passed it on.
                    let is_ours = |who: &Said| {
                        who.token == token && fence >= who.first || who.token == to && to != token
                    };
                    let sent = Moment::now();
                    let found = self.find(wire, &name, (fence, None), is_ours, deadline)?;
                    let Some(key) = found else {
                        return Ok(self.gone(token, sent));
                    };
                    self.adopted(token, &key)
                }
            };
            let who = said(&ours.value, ours.created);
            let (lasts, lease) = match reach {
                Reach::Set => (ttl, Leases::exactly(wire, ttl, deadline)?),
                Reach::Grow | Reach::Claim | Reach::Pass(_) => {
                    // An earlier one may have promised more than this.
                    let lasts = who.map_or(ttl, |who| who.ttl.max(ttl));
                    (lasts, self.leases.take(wire, lasts, deadline)?)
                }
            };
            let (first, block) = match who.filter(|who| who.token == to) {
                Some(who) => (who.first, who.block),
                None => (fence, 1),
            };
            let value = keys::value(to, lasts, block, Some(first));
            let keeps_promise = to == token && reach != Reach::Set && ours.ends != Moment::NEVER;
            let promised = if keeps_promise { ours.ends } else { Moment::ZERO };
            let (whose, lasts) = ((token, &ours), (ttl, promised, lease));
            if let Some(since) = self.rewrite(wire, whose, (to, value), lasts, deadline)? {
                if to == token.detached(fence) {
                    self.own_keys.lend(&ours.key);
                }
                return Ok(self.answer(Reply::Extended, since));
            }
        }
        Err(Failure::not_done(changed()))
    }

    /// Puts a key anew that nobody has written since it was seen: for this token, under this lease, and no
    /// shorter than was promised. Tells since when that counts; `None` if somebody has written it.
    fn rewrite(
        &self,
        wire: &mut Wire,
        (token, ours): (Token, &OwnKey),
        (to, value): (Token, Vec<u8>),
        (ttl, promised, mut lease): (Duration, Moment, Lease),
        deadline: Deadline,
    ) -> Result<Option<Moment>, Failure> {
        let txn = Txn::default()
            .if_unchanged(&ours.key, ours.modified)
            .then(Op::put(&ours.key, &value, lease.id));
        self.own_keys.set(token, &ours.in_doubt(lease));
        if to != token {
            self.own_keys.set(to, &OwnKey { ends: Moment::NEVER, ..ours.in_doubt(lease) });
        }
        let done = transact(wire, &txn, deadline).inspect_err(|failure| {
            if failure.sent.is_none() {
                self.own_keys.remove(to);
                self.own_keys.set(token, ours);
                self.put_back(lease, failure);
            }
        });
        let (done, sent) = done?;
        if !done.is_so {
            self.leases.put_back(lease);
            if to != token {
                self.own_keys.remove(to);
            }
            return Ok(None);
        }
        lease.confirm(done.term);
        let before = ours.lease.filter(|lease| !ours.is_doubtful && !lease.has_ended(sent));
        before.into_iter().for_each(|lease| self.leases.put_back(lease));
        self.listener.forget(token);
        self.own_keys.remove(token);
        let since = lease.counts_from(ttl, sent);
        let (until, modified) = (lease.lives_until().plus(LATE), done.revision);
        let own = OwnKey { value, modified, lease: Some(lease), ear: 0, until, ..ours.clone() };
        let ends = promised.max(since.plus(ttl));
        self.own_keys.set(to, &OwnKey { is_doubtful: false, ends, ..own });
        Ok(Some(since))
    }

    /// A lease under which nothing was put after all; not if that is why.
    pub(super) fn put_back(&self, lease: Lease, failure: &Failure) {
        if !fault::is_lost_lease(&failure.error) {
            self.leases.put_back(lease);
        }
    }

    /// A key that is whose it is said to be: this one, or that of the place to which a fence belongs; with
    /// none, the first one. Nothing was asked for by then.
    pub(super) fn find(
        &self,
        wire: &mut Wire,
        name: &Name,
        (fence, key): (u64, Option<&[u8]>),
        is_whose: impl Fn(&Said) -> bool,
        deadline: Deadline,
    ) -> Result<Option<Key>, Failure> {
        let look = key.into_iter().map(Op::get).fold(Txn::default(), Txn::then);
        let look = look.then(Op::created(&name.all, created(fence)));
        let found = transact(wire, &look, deadline);
        let (done, _) = found.map_err(|failure| Failure::not_done(failure.error))?;
        let is_it = |key: &Key| said(&key.value, key.created).as_ref().is_some_and(&is_whose);
        Ok(done.parts.into_iter().find_map(|mut part| part.first().filter(is_it)))
    }

    pub(super) fn give(
        &self,
        wire: &mut Wire,
        name: &Name,
        (token, fence): (Token, u64),
        deadline: Deadline,
    ) -> Outcome {
        let mut known = self.own_keys.get(token);
        for _ in 0..MOST_TRIES {
            let own = match known.take().filter(|own| own.created != 0) {
                Some(own) => own,
                None => {
                    let (seen, sent) = (self.own_keys.get(token), Moment::now());
                    let at = (fence, seen.as_ref().map(|seen| &*seen.key));
                    let found = self.find(wire, name, at, |who| who.token == token, deadline)?;
                    let Some(key) = found else {
                        // Of what may be on its way still, the key is known for longer.
                        if seen.is_none_or(|own| !own.is_doubtful) {
                            return Ok(self.gone(token, sent));
                        }
                        self.listener.forget(token);
                        return Ok(self.answer(Reply::NotMine, sent));
                    };
                    self.adopted(token, &key)
                }
            };
            // Else it was changed, perhaps by a request of which nothing was heard.
            if let Some(answer) = self.delete(wire, name, (token, &own), fence, deadline)? {
                return Ok(answer);
            }
        }
        Err(Failure::not_done(changed()))
    }

    /// Deletes a key that nobody has written since it was seen; `None` if somebody has.
    pub(super) fn delete(
        &self,
        wire: &mut Wire,
        name: &Name,
        (token, own): (Token, &OwnKey),
        fence: u64,
        deadline: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let is_of_turn = fence != 0 && own.created == created(fence);
        let lease = own.lease.filter(|_| !own.is_doubtful);
        // It was the first one when it was granted, and nobody comes before it.
        let is_first = is_of_turn && lease.is_some();
        let given = Txn::default().if_unchanged(&own.key, own.modified);
        let given = if is_first { given } else { given.then(Op::first(&name.all)) };
        let given = given.then(Op::delete(&own.key));
        let (mut done, sent) = transact(wire, &given, deadline).inspect_err(|failure| {
            if failure.sent.is_some() && own.lease.is_none() {
                self.listener.end(own.ear);
            }
        })?;
        if !done.is_so {
            return Ok(None);
        }
        self.own_keys.remove(token);
        self.listener.forget(token);
        lease.into_iter().for_each(|lease| self.leases.put_back(lease));
        let had = is_first || done.part(0).first().is_some_and(|first| first.key == own.key);
        let is_given = had && (fence == 0 || is_of_turn);
        let reply = if is_given { Reply::Given } else { Reply::NotMine };
        Ok(Some(self.answer(reply, sent)))
    }

    /// The rest of a cohort goes on where it stood: its token has the lock as soon as the holder's
    /// gives it. `None` if that is not what the two requests are.
    pub(super) fn pass_on(
        &self,
        lane: Lane,
        take: &Request<'_>,
        give: &Request<'_>,
        deadline: Deadline,
    ) -> Option<[Outcome; 2]> {
        let (
            Request::Take { name: raw, token: to, ttl, place: Place::Join(ticket), block },
            Request::Give { name: same, token, fence, .. },
        ) = (*take, *give)
        else {
            return None;
        };
        let own = self.own_keys.get(token).filter(|own| own.created == ticket)?;
        let (first, block) = (fence + 1, block.clamp(1, BLOCK));
        let is_left = created(first) == ticket && created(first + u64::from(block)) == ticket;
        if raw != same || created(fence) != ticket || !is_left || own.is_doubtful {
            return None;
        }
        let value = keys::value(to, ttl, block, Some(first));
        let name = self.name(raw);
        let passed = self.on_wire(lane, deadline, |wire, deadline| {
            let mut ours = own.clone();
            loop {
                let lease = self.leases.take(wire, ttl, deadline)?;
                let (whose, lasts) = ((token, &ours), (ttl, Moment::ZERO, lease));
                let since = self.rewrite(wire, whose, (to, value.clone()), lasts, deadline)?;
                if since.is_some() {
                    return Ok(since);
                }
                // Who only was asked whether it lives leaves its cohort the ticket all the same.
                let known = ours.modified;
                let is_asked = |who: &Said| who.token == token && who.asked == Some(known);
                let Some(key) = self.find(wire, &name, (fence, None), is_asked, deadline)? else {
                    return Ok(None);
                };
                ours = OwnKey { value: key.value, modified: key.modified, ..ours };
            }
        });
        match passed {
            Ok(None) => None,
            Ok(Some(since)) => {
                let granted = self.answer(Reply::Granted { fence: first, block }, since);
                Some([Ok(granted), Ok(self.answer(Reply::Given, since))])
            }
            Err(failure) => Some([Err(failure.clone()), Err(failure)]),
        }
    }

    /// A token has no key any more.
    fn gone(&self, token: Token, sent: Moment) -> Answer {
        self.listener.forget(token);
        self.own_keys.remove(token);
        self.answer(Reply::NotMine, sent)
    }

    /// A key as it is, whatever was known of it.
    pub(super) fn adopted(&self, token: Token, key: &Key) -> OwnKey {
        let known = self.own_keys.get(token);
        let is_ear = Some(key.lease) == self.listener.ear();
        let lasts = said(&key.value, key.created).map_or(Duration::ZERO, |who| who.ttl);
        let before = known.unwrap_or_else(|| OwnKey::new(key.key.clone()));
        OwnKey {
            key: key.key.clone(),
            value: key.value.clone(),
            created: key.created,
            modified: key.modified,
            lease: (!is_ear).then(|| Lease::foreign(key.lease)),
            ear: if is_ear { key.lease } else { 0 },
            is_doubtful: true,
            until: Moment::now().plus(lasts * 2).plus(LATE),
            ..before
        }
    }
}

fn changed() -> Error {
    Error::new(ErrorKind::Unavailable, "something was under way, or the leader has changed")
}
