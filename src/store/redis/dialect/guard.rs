//! The marker by which a server that lost data is known: guard.lua says how.

use std::time::Duration;

use redis::Value;

use super::keys::{MARKER, write_marker};
use super::{Arg, Batch, Script, Words, script, unreadable};
use crate::config::{spoken, spoken_left};
use crate::error::{Error, ErrorKind};
use crate::store::millis;

static INIT: Script = script!("guard.lua", "init.lua").guarded();
/// Begins the quarantine of a server that may have lost data, where it has not begun.
static BEGIN: Script = script!("guard.lua", "guarded.lua").guarded();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) struct Guard {
    /// The longest ttl that a client takes, and so how long a quarantine lasts.
    pub(in crate::store) max_ttl: Duration,
    /// A Cluster has a marker in each slot.
    pub(in crate::store) clustered: bool,
}

impl Guard {
    /// Reads what guard.lua answers in place of a script: for how long the server grants nothing, and
    /// its clock in microseconds; or why it never will. `None` if it is no such answer.
    pub(super) fn read(self, text: &[u8]) -> Option<Result<(Duration, u64), Error>> {
        let mut words = Words(Some(text));
        match words.word()? {
            b"Q" => Some(Ok((Duration::from_millis(words.number()?), words.number()?))),
            b"T" => Some(Err(Error::new(
                ErrorKind::BadArgument,
                format!(
                    "the store was set up for ttls of up to {}, and this client takes up to {}; \
                     its max_ttl must not be larger (leasehold init, to set up the store anew)",
                    spoken(Duration::from_millis(words.number()?)),
                    spoken(self.max_ttl),
                ),
            ))),
            _ => None,
        }
    }

    /// Calls that let a new store grant at once, perhaps by force, or only look whether it is new: of
    /// a Cluster, one for each of these slots; else one.
    pub(in crate::store::redis) fn pack_init(
        self,
        slots: impl IntoIterator<Item = u16>,
        force: Option<bool>,
    ) -> Batch<'static> {
        let mode: &[u8] = force.map_or(b"look", |force| if force { b"1" } else { b"0" });
        self.pack(&INIT, slots, &[Arg::Text(mode)])
    }

    fn pack(
        self,
        script: &'static Script,
        slots: impl IntoIterator<Item = u16>,
        args: &[Arg<'_>],
    ) -> Batch<'static> {
        let (mut batch, mut marker) = (Batch::default(), Vec::new());
        let mut push = |slot| {
            write_marker(&mut marker, slot);
            batch.open::<0>(script, &[], Some((&marker, millis(self.max_ttl))), args.len());
            batch.close(Some(script), None, args);
        };
        match self.clustered {
            true => slots.into_iter().for_each(|slot| push(Some(slot))),
            false => push(None),
        }
        batch
    }

    /// What is sent first to a new run of a server; nothing in a Cluster, with its many markers.
    pub(in crate::store::redis) fn pack_begin(self) -> Option<Batch<'static>> {
        (!self.clustered).then(|| self.pack(&BEGIN, [], &[]))
    }

    /// Whether a server has a marker now.
    pub(in crate::store::redis) fn read_init(self, value: Value) -> Result<bool, Error> {
        match value {
            Value::ServerError(error) => Err(INIT.explain(&error)),
            Value::BulkString(text) if text == b"I" || text == b"M" => Ok(true),
            Value::BulkString(text) if text == b"N" => Ok(false),
            Value::BulkString(text) => {
                let (left, _) = self.read(&text).ok_or_else(|| unreadable(&text))??;
                Err(comes_late(left))
            }
            value => Err(unreadable(format!("{value:?}").as_bytes())),
        }
    }
}

pub(in crate::store::redis) fn is_init(batch: &Batch<'_>) -> bool {
    batch.scripts().any(|script| std::ptr::eq(script, &raw const INIT))
}

/// Why a client that does not guard gets no connection to a server that others guard.
pub(in crate::store::redis) fn guarded_by_others() -> Error {
    Error::new(
        ErrorKind::BadArgument,
        format!(
            "other clients guard this server against lost data, and this one would be granted what \
             they wait for: set guard_data_loss=yes (if nobody does any more, delete the key {MARKER})"
        ),
    )
}

pub(super) fn quarantined(left: Duration) -> Error {
    let left = spoken_left(left);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the server is new or has lost its data, and grants nothing for another {left} (if it \
             has never granted a lock, leasehold init --force ends the wait)"
        ),
    )
}

/// Why a server that has met a client is not declared new: one that came back empty looks the same.
fn comes_late(left: Duration) -> Error {
    let left = spoken_left(left);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "a client was there before, and the server may have forgotten what it granted: it grants \
             nothing for another {left}, and needs no init then; if it has never granted a lock, \
             leasehold init --force ends the wait"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: Guard = Guard { max_ttl: Duration::from_secs(60), clustered: true };

    #[test]
    fn a_refusal_says_why_and_for_how_long() {
        let (left, server) = GUARD.read(b"Q 41001 1795182559483864").unwrap().unwrap();
        assert_eq!((left.as_millis(), server), (41_001, 1_795_182_559_483_864));
        assert!(
            quarantined(left).to_string().contains("another 42 s (if it has never granted a lock")
        );
        assert!(comes_late(left).to_string().contains("another 42 s, and needs no init then"));
        let error = GUARD.read(b"T 30000").unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        let said = error.to_string();
        assert!(said.contains("up to 30 s") && said.contains("up to 1 m"), "{said}");
        for other in ["", "Q", "Q 1", "Q x 1", "T", "T -1", "G 1 1 1"] {
            assert!(GUARD.read(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn a_cluster_is_told_in_each_slot_and_a_server_once() {
        let all = GUARD.pack_init(0..100, Some(false));
        assert_eq!(all.calls.len(), 100);
        let one = Guard { clustered: false, ..GUARD }.pack_init([], Some(true));
        let said = one.for_run(Some(&[b'a'; 40])).unwrap().into_owned();
        let said = String::from_utf8(said).unwrap();
        assert!(said.ends_with("\r\n$5\r\n60000\r\n$1\r\n1\r\n"), "{said}");
        assert!(said.contains("\r\n$16\r\nleasehold:marker\r\n$40\r\naaaa"), "{said}");
    }
}
