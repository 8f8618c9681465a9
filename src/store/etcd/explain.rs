//! Which of the rights that locks need a user lacks: asked when the server has refused something for want
//! of one, which it does not name.

use super::dial::transact;
use super::fault::RIGHTS;
use super::keys;
use super::messages::{Op, Txn};
use super::wire::Wire;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};

/// What grants them, for keys with this prefix: each is tried by something that changes nothing.
pub(super) fn lacking(wire: &mut Wire, prefix: &[u8], deadline: Deadline) -> Vec<String> {
    let mut begins = Vec::new();
    for begin in keys::begins(prefix) {
        let end = super::messages::behind(&begin);
        let looks = Txn::default().then(Op::between(&begin, &end, 1));
        // It is never so, and what would be done then has to be allowed all the same.
        let key = [&begin, &b"-"[..]].concat();
        let writes = Txn::default().if_unchanged(&key, 1 << 60).then(Op::put(&key, b"", 0));
        let mut lacks = |txn: &Txn| {
            let said = transact(wire, txn, deadline);
            said.is_err_and(|failure| failure.error.kind() == ErrorKind::Permission)
        };
        if lacks(&looks) || lacks(&writes) {
            begins.push(begin);
        }
    }
    if begins.len() == keys::begins(prefix).len() && prefix.is_empty() {
        begins = vec![keys::ALL.to_vec()];
    }
    let grant = |begin: &Vec<u8>| {
        let begin = begin.escape_ascii();
        format!("etcdctl role grant-permission ROLE --prefix=true readwrite {begin}")
    };
    begins.iter().map(grant).collect()
}

pub(super) fn missing(mends: &[String], error: &Error) -> Error {
    let said = error.detail().strip_prefix(RIGHTS).unwrap_or_default();
    let mends = mends.join("; ");
    Error::mended(ErrorKind::Permission, format!("a right is missing: {mends}{said}"))
}
