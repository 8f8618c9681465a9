//! What a server says, read piece by piece.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};

#[cfg(any(feature = "etcd", feature = "postgres"))]
use super::stream::LEAST;
use super::stream::Stream;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};

/// So much is read at once, as much as a record of TLS has at most.
pub(in crate::store) const AT_ONCE: usize = 16 * 1024;

/// A connection, with what has come on it and was not taken out yet.
///
/// Where a deadline passes, what has come in part stays, and the next read goes on behind it. So the answer
/// that nobody waited for would be read in place of the next one. Each store has its own guard against that:
/// - PostgreSQL counts the answers that are owed, and closes a connection that owes any.
/// - MySQL closes the connection after any error.
/// - etcd tells answers apart by their stream, ZooKeeper by the number of the request: there a late answer
///   is dropped, and the connection stays.
pub(in crate::store) struct Reader<B> {
    pub(in crate::store) stream: Stream,
    pub(in crate::store) incoming: B,
    hung_up: &'static str,
}

/// What takes bytes in.
pub(in crate::store) trait Inbox {
    fn came(&mut self, bytes: &[u8]);
}

#[cfg(any(feature = "etcd", feature = "mysql", feature = "zookeeper"))]
impl Inbox for super::incoming::Incoming {
    fn came(&mut self, bytes: &[u8]) {
        self.came(bytes);
    }
}

/// What is said of a server that has hung up.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
pub(in crate::store) const HUNG_UP: &str = "the server hung up in place of an answer";

impl<B: Inbox> Reader<B> {
    pub(in crate::store) fn new(stream: Stream, incoming: B, hung_up: &'static str) -> Reader<B> {
        Reader { stream, incoming, hung_up }
    }

    /// Reads once what comes by the deadline; tells how much it was, which is never nothing.
    pub(in crate::store) fn fill(&mut self, deadline: Deadline) -> Result<usize, Error> {
        let mut room = [0; AT_ONCE];
        let hung_up = || Err(Error::new(ErrorKind::Refused, self.hung_up));
        match self.stream.read(&mut room, deadline) {
            Ok(0) => hung_up(),
            Ok(count) => {
                self.incoming.came(&room[..count]);
                Ok(count)
            }
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => hung_up(),
            Err(error) => Err(self.stream.explain("the answer", &error)),
        }
    }

    /// The same; `None` where nothing comes by then.
    #[cfg(any(feature = "etcd", feature = "postgres", feature = "zookeeper"))]
    pub(in crate::store) fn wait(&mut self, until: Deadline) -> Result<Option<usize>, Error> {
        match self.fill(until) {
            Err(error) if error.kind() == ErrorKind::NoAnswer => Ok(None),
            filled => filled.map(Some),
        }
    }

    /// The same of what lies there already. The rest of an encrypted record may be on its way.
    #[cfg(any(feature = "etcd", feature = "postgres"))]
    pub(in crate::store) fn glance(&mut self) -> Result<Option<usize>, Error> {
        if self.stream.is_silent() { Ok(None) } else { self.wait(Deadline::after(LEAST)) }
    }
}
