//! The connection on which a client is told of what it waits for: one at most, which a thread that waits
//! opens and reads.
//!
//! It is closed, or being opened, or open, or resting: after a failure no thread tries again for a while,
//! so that those that wait have time for requests. Closing reaches a thread that opens it or reads it, by a
//! second handle on its socket.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use super::dial::Show;
use super::failed;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::store::{REFUSED, ServerId};
use crate::sync::Mutex;

/// After a connection could not be made.
const LEAST_REST: Duration = Duration::from_millis(100);

/// `C` is what the store has of it.
pub(in crate::store) struct WakeUp<C> {
    io_timeout: Duration,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// For good.
    is_closed: bool,
    open: Option<(C, Arc<Socket>)>,
    /// The socket of one that is being opened.
    opening: Option<Socket>,
    /// None is opened before, and why.
    resting: Option<(Moment, Error)>,
}

impl<C> WakeUp<C> {
    pub(in crate::store) fn new(io_timeout: Duration) -> WakeUp<C> {
        let state = State { is_closed: false, open: None, opening: None, resting: None };
        WakeUp { io_timeout, state: Mutex::new(state) }
    }

    /// Looks at the one that is open, or changes it.
    pub(in crate::store) fn with<T>(&self, act: impl FnOnce(&mut C, &Socket) -> T) -> Option<T> {
        self.state.lock().open.as_mut().map(|(open, socket)| act(open, socket))
    }

    /// Opens one, and tells to which server. `dial` shows each socket before it connects; the last of them
    /// is the connection's.
    pub(in crate::store) fn open(
        &self,
        dial: impl FnOnce(&Show<'_>) -> Result<(C, ServerId), Error>,
    ) -> Result<ServerId, Error> {
        if let Some((until, error)) = &self.state.lock().resting
            && Moment::now() < *until
        {
            return Err(error.clone());
        }
        let began = Moment::now();
        let made = dial(&|socket| self.keep_handle(socket));
        let (mut state, now) = (self.state.lock(), Moment::now());
        let socket = state.opening.take();
        if state.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let opened = made.and_then(|(made, server)| {
            let socket = socket.ok_or_else(|| Error::bare(ErrorKind::Refused))?;
            Ok(((made, Arc::new(socket)), server))
        });
        match opened {
            Ok((open, server)) => {
                (state.open, state.resting) = (Some(open), None);
                Ok(server)
            }
            Err(error) => {
                let rest = match error.is_retriable() {
                    false => REFUSED,
                    // As long as the attempt took: half of the time is for requests.
                    true => now.since(began).clamp(LEAST_REST, self.io_timeout.max(LEAST_REST)),
                };
                state.resting = Some((now.plus(rest), error.clone()));
                Err(error)
            }
        }
    }

    fn keep_handle(&self, socket: &Socket) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let handle = socket.try_clone().map_err(|error| failed("a second handle", &error))?;
        state.opening = Some(handle);
        Ok(())
    }

    /// Reads the one that is open, or does what else may end it: an error of `act` does.
    pub(in crate::store) fn tend<T>(
        &self,
        act: impl FnOnce(&mut C, &Arc<Socket>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let Some((open, socket)) = &mut state.open else {
            return Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups"));
        };
        let tended = act(open, socket);
        if let Err(error) = &tended {
            state.open = None;
            if !error.is_retriable() {
                state.resting = Some((Moment::now().plus(REFUSED), error.clone()));
            }
        }
        tended
    }

    /// Ends the one that is open, if it is that one. A thread that reads it notices at once.
    #[cfg(feature = "etcd")]
    pub(in crate::store) fn end_if(&self, is_that: impl FnOnce(&C) -> bool) -> Option<C> {
        let (ended, socket) = self.state.lock().open.take_if(|(open, _)| is_that(open))?;
        let _ = socket.shutdown(Shutdown::Both);
        Some(ended)
    }

    /// For good: none is opened any more, and a thread that opens one, or reads it, notices at once.
    pub(in crate::store) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let open = state.open.take().map(|(_, socket)| socket);
        for socket in open.as_deref().into_iter().chain(state.opening.as_ref()) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.opening = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    const IO_TIMEOUT: Duration = Duration::from_secs(20);
    const SERVER: ServerId = ServerId(7);

    /// A socket, and the other end of it.
    fn socket() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours.into(), theirs)
    }

    fn has_ended(theirs: &mut UnixStream) -> bool {
        theirs.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        theirs.read(&mut [0]).unwrap() == 0
    }

    #[test]
    fn after_a_failure_none_is_opened_for_a_while() {
        let (wake_up, mut dialed) = (WakeUp::<()>::new(IO_TIMEOUT), 0);
        let mut refuse = |kind| {
            wake_up.open(|_| {
                dialed += 1;
                Err(Error::bare(kind))
            })
        };
        // For good: it is long enough for any machine.
        assert_eq!(refuse(ErrorKind::Permission).unwrap_err().kind(), ErrorKind::Permission);
        assert_eq!(refuse(ErrorKind::Refused).unwrap_err().kind(), ErrorKind::Permission);
        assert_eq!(dialed, 1);
    }

    #[test]
    fn an_error_of_who_reads_it_ends_it_and_another_is_opened_at_once() {
        let (wake_up, (ours, mut theirs)) = (WakeUp::new(IO_TIMEOUT), socket());
        let open = |number| {
            wake_up.open(|show| {
                show(&ours)?;
                Ok((number, SERVER))
            })
        };
        assert_eq!(open(1).unwrap(), SERVER);
        assert_eq!(wake_up.with(|number, _| *number), Some(1));
        let failed = wake_up.tend(|_, _| Err::<(), _>(Error::bare(ErrorKind::Refused)));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(wake_up.with(|number, _| *number), None);
        open(2).unwrap();
        assert_eq!(wake_up.tend(|number, _| Ok(*number)).unwrap(), 2);
        wake_up.close();
        assert!(has_ended(&mut theirs));
        let closed = wake_up.tend(|number, _| Ok(*number));
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn closing_reaches_a_thread_that_opens_it() {
        let (wake_up, (ours, mut theirs)) = (WakeUp::new(IO_TIMEOUT), socket());
        let opened = wake_up.open(|show| {
            show(&ours)?;
            wake_up.close();
            assert!(has_ended(&mut theirs));
            Ok(((), SERVER))
        });
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Closed);
        let again = wake_up.open(|show| show(&ours).map(|()| ((), SERVER)));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Closed);
    }
}
