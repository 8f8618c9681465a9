//! Who we are: a token for a password. A check of a password costs an etcd a tenth of a second of a
//! processor, and after a restart all clients ask for one at once. What a client gives up on is checked
//! all the same, and the next login waits behind it: clients that ask anew starve each other. So a
//! client asks each member once, whichever of its threads want to know, and what is not answered by the
//! end of a call stays on its connection, where the next call reads the answer.

use std::time::Duration;

use super::proto::Message;
use super::wire::Wire;
use super::{fault, messages};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;
use crate::store::net::dial::Show;
use crate::sync::{Mutex, Turnstile};

#[derive(Default)]
pub(super) struct Logins {
    /// By which the servers know our user, for some minutes.
    token: Mutex<Option<String>>,
    /// One thread at a time asks, or waits for an answer.
    pub(super) asking: Turnstile<Asking>,
    /// On which the last login was answered, for who needs a connection next.
    spare: Mutex<Option<Wire>>,
}

#[derive(Default)]
pub(super) struct Asking {
    /// No more than one of a member.
    under_way: Vec<Login>,
    /// So many in a row were given up, or refused.
    failures: u32,
    refused: Option<Refused>,
    /// None is begun before.
    rests_until: Moment,
}

struct Refused {
    at: Moment,
    error: Error,
}

/// A password is being checked.
struct Login {
    wire: Wire,
    stream: u32,
    /// When the server was last sent something that it answers at once, however busy it is.
    probed: Moment,
}

/// A server that answers no probe for so long is not there any more, or something between us has lost
/// the connection. It is given twice as long each time, since it may just be that busy.
const SILENCE: Duration = Duration::from_secs(4);
/// After a server has refused a login: at first, and at most. It is twice as long each time.
const REST: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

impl Logins {
    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().clone()
    }

    pub(super) fn found(&self, token: &str, wire: Wire) {
        *self.token.lock() = Some(token.to_owned());
        *self.spare.lock() = Some(wire);
    }

    /// A server does not know it any more. It may be another one by now.
    pub(super) fn forget(&self, token: Option<&String>) {
        self.token.lock().take_if(|known| Some(&*known) == token);
    }

    pub(super) fn take_spare(&self) -> Option<Wire> {
        self.spare.lock().take()
    }
}

impl Asking {
    /// What another thread has found since then, or what holds for a moment: it holds for this one, too.
    pub(super) fn refused(&self, called: Moment) -> Option<Error> {
        let refused = self.refused.as_ref()?;
        let holds = called <= refused.at || Moment::now() < self.rests_until;
        holds.then(|| refused.error.clone())
    }

    /// None was answered as it should be. A thread that closes its client speaks for itself only.
    pub(super) fn failed(&mut self, error: &Error) {
        if !matches!(error.kind(), ErrorKind::NoAnswer | ErrorKind::Closed) {
            self.refused = Some(Refused { at: Moment::now(), error: error.clone() });
        }
    }

    /// Goes on with the login that is under way on a member, or begins one on a new connection.
    pub(super) fn log_in(
        &mut self,
        member: usize,
        (connect, ask): (&dyn Fn() -> Result<Wire, Error>, &Message),
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<(String, Wire), Error> {
        let begin = || {
            let mut wire = connect()?;
            let stream = wire.begin(messages::AUTHENTICATE);
            wire.write(stream, ask, true);
            Ok::<_, Error>(Login { wire, stream, probed: Moment::now() })
        };
        let mut left = self.under_way.iter().position(|login| login.wire.member == member);
        loop {
            let kept = left.take().map(|at| self.under_way.swap_remove(at));
            let (mut login, is_new) = match kept {
                Some(login) => match login.wire.show(show) {
                    Ok(()) => (login, false),
                    Err(error) => {
                        // Its answer is for the next call.
                        self.under_way.push(login);
                        return Err(error);
                    }
                },
                None => (begin()?, true),
            };
            let patience = SILENCE.saturating_mul(1 << self.failures.min(6));
            match login.answer(patience, deadline) {
                Ok(Some(token)) => {
                    login.wire.token = Some(token.clone());
                    return Ok((token, login.wire));
                }
                Ok(None) => {
                    self.under_way.push(login);
                    return Err(unanswered());
                }
                // It has died while nobody waited: that says nothing of now.
                Err(_) if !is_new && login.wire.is_broken => {
                    self.failures = self.failures.saturating_add(1);
                }
                Err(error) => {
                    if !login.wire.is_broken {
                        self.rest();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A server that has just refused one is not asked again at once.
    fn rest(&mut self) {
        let now = Moment::now();
        let [first, most] = REST;
        let rest = first.saturating_mul(1 << self.failures.min(10)).min(most);
        self.rests_until = now.plus(Jitter::seeded(now.as_nanos()).around(rest));
        self.failures = self.failures.saturating_add(1);
    }
}

impl Login {
    /// What the server says by then; `None` if it has not said anything yet.
    fn answer(&mut self, patience: Duration, deadline: Deadline) -> Result<Option<String>, Error> {
        let wire = &mut self.wire;
        wire.glance()?;
        let now = Moment::now();
        if wire.heard >= self.probed {
            // Left for later, it would have to be waited for.
            wire.probe();
            self.probed = now;
        } else if now.since(self.probed) >= patience {
            wire.is_broken = true;
            return Err(unanswered());
        }
        match wire.receive(self.stream, deadline) {
            Ok(Ok(answer)) => {
                wire.leave(self.stream);
                messages::authenticated(&answer).ok_or_else(fault::foreign).map(Some)
            }
            Ok(Err(end)) => Err(fault::ended(&end, now).error),
            Err(error) if error.kind() == ErrorKind::NoAnswer => {
                wire.is_broken = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) fn unanswered() -> Error {
    Error::new(ErrorKind::NoAnswer, "the server has not checked the password yet")
}
