//! What stands at an address where another kind of server was expected, as far as its first bytes tell.

use crate::config::TlsWords;
use crate::error::{Error, ErrorKind};

/// So many bytes are enough.
pub(super) const ENOUGH: usize = 16;

/// The kinds of servers that a URL can mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Kind {
    Redis,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Postgres,
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    Mysql,
    #[cfg_attr(not(feature = "zookeeper"), allow(dead_code))]
    Zookeeper,
    #[cfg_attr(not(feature = "etcd"), allow(dead_code))]
    Etcd,
}

/// What has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Known(Kind),
    Tls,
    Http,
    Ssh,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Redis => "Redis",
            Kind::Postgres => "PostgreSQL",
            Kind::Mysql => "MySQL or MariaDB",
            Kind::Zookeeper => "ZooKeeper",
            Kind::Etcd => "etcd",
        }
    }

    fn article(self) -> &'static str {
        if self == Kind::Etcd { "an" } else { "a" }
    }

    fn scheme(self) -> &'static str {
        match self {
            Kind::Redis => "redis://",
            Kind::Postgres => "postgres://",
            Kind::Mysql => "mysql://",
            Kind::Zookeeper => "zookeeper://",
            Kind::Etcd => "etcd://",
        }
    }

    fn tls(self) -> TlsWords {
        match self {
            Kind::Redis => TlsWords::REDIS,
            Kind::Postgres => TlsWords::POSTGRES,
            Kind::Mysql => TlsWords::MYSQL,
            Kind::Zookeeper => TlsWords::ZOOKEEPER,
            Kind::Etcd => TlsWords::ETCD,
        }
    }
}

/// What begins with these bytes; nothing, where they are few, or tell nothing.
fn known(first: &[u8]) -> Option<Found> {
    let is = |begin: &[u8]| first.starts_with(begin);
    Some(match first {
        _ if is(b"HTTP/1.") => Found::Http,
        _ if is(b"SSH-") => Found::Ssh,
        // An alert.
        [0x15, 3, 0..=4, ..] => Found::Tls,
        // An error, in words of its own.
        [b'-', b'A'..=b'Z', b'A'..=b'Z', ..] => Found::Known(Kind::Redis),
        // An error: its length and its severity, or those of its oldest protocol.
        [b'E', 0, 0, _, _, b'S', ..] => Found::Known(Kind::Postgres),
        _ if is(b"EFATAL:") => Found::Known(Kind::Postgres),
        // The first packet, a greeting or a refusal.
        [1..=255, 0, 0, 0, 10, b'0'..=b'9', ..] | [1..=255, _, 0, 0, 0xff, ..] => {
            Found::Known(Kind::Mysql)
        }
        // Settings of HTTP/2, on no stream.
        [0, 0, _, 4, 0, 0, 0, 0, 0, ..] => Found::Known(Kind::Etcd),
        _ => return None,
    })
}

/// The error of a first exchange, in better words where it shows that the server is of another kind.
/// `first` is what the server has said before anything else.
pub(super) fn explained(
    first: &[u8],
    (wanted, place): (Kind, &str),
    is_tls: bool,
    error: Error,
) -> Error {
    let (name, scheme, a) = (wanted.name(), wanted.scheme(), wanted.article());
    let (kind, said) = match known(first) {
        Some(Found::Known(found)) if found == wanted => return error,
        Some(Found::Known(found)) => {
            let (is, what, instead) = (found.article(), found.name(), found.scheme());
            let mend = format!("write {instead} in place of {scheme}, or correct host and port");
            (ErrorKind::Protocol, format!("the server{place} is {is} {what} and no {name}: {mend}"))
        }
        Some(Found::Tls) if is_tls => return error,
        Some(Found::Tls) => {
            let mend = format!("{}, or name its other port", wanted.tls().on);
            (ErrorKind::Tls, format!("the server{place} speaks TLS: {mend}"))
        }
        Some(Found::Http) => {
            let etcd = if is_tls {
                "etcd:// and etcds:// lead to an etcd's clients' port, 2379"
            } else {
                "an etcd has 2379 for its clients, and with TLS it is etcds://"
            };
            let mend = format!("correct scheme, host and port ({etcd})");
            (ErrorKind::Protocol, format!("the server{place} speaks HTTP and is no {name}: {mend}"))
        }
        Some(Found::Ssh) => {
            let mend = "correct host and port";
            (ErrorKind::Protocol, format!("the server{place} speaks SSH and is no {name}: {mend}"))
        }
        None if first.is_empty() && error.kind() == ErrorKind::NoAnswer => (
            error.kind(),
            format!(
                "the server{place} takes the connection and says nothing to {a} {name} client: it \
                 stands still or is overloaded, or it is no {name}: check the server, and scheme, \
                 host and port"
            ),
        ),
        None if first.is_empty()
            && error.kind() == ErrorKind::Refused
            // Which hangs up where it has no majority, too, and has words of its own for that.
            && wanted != Kind::Zookeeper =>
        {
            let tls = match is_tls {
                true => String::new(),
                false => format!(", or it wants TLS ({})", wanted.tls().on),
            };
            let what = format!("the server{place} hung up without a word");
            let why = format!("it is about to end, or it is no {name}{tls}");
            (error.kind(), format!("{what}: {why}: check the server, and scheme, host and port"))
        }
        None => return error,
    };
    Error::mended(kind, said)
}

/// The same of a handshake of TLS that the server has answered with something else.
#[cfg(feature = "tls")]
pub(super) fn without_tls(first: &[u8]) -> Option<String> {
    Some(match known(first)? {
        Found::Known(found) => {
            let (is, what) = (found.article(), found.name());
            format!("the server is {is} {what}, and begins without TLS")
        }
        Found::Http => "the server speaks HTTP without TLS".to_owned(),
        Found::Ssh => "the server speaks SSH".to_owned(),
        Found::Tls => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_server_is_known_by_its_first_bytes() {
        let postgres = b"EFATAL:  unsupported frontend protocol 0.0: server supports 3.0 to 3.0";
        for (first, found) in [
            (&b"-ERR unknown command"[..], Found::Known(Kind::Redis)),
            (b"-NOAUTH Authentication required.", Found::Known(Kind::Redis)),
            (&postgres[..], Found::Known(Kind::Postgres)),
            (b"E\0\0\0\x8cSFATAL\0VFATAL\0", Found::Known(Kind::Postgres)),
            (b"[\0\0\0\x0a10.11.6-MariaDB", Found::Known(Kind::Mysql)),
            (b"E\x01\0\0\xff\x6a\x04Host", Found::Known(Kind::Mysql)),
            (b"\0\0\x12\x04\0\0\0\0\0\0\x03", Found::Known(Kind::Etcd)),
            (b"HTTP/1.1 400 Bad Request", Found::Http),
            (b"SSH-2.0-OpenSSH_9.2", Found::Ssh),
            (b"\x15\x03\x03\0\x02\x02\x46", Found::Tls),
        ] {
            assert_eq!(known(&first[..first.len().min(ENOUGH)]), Some(found), "{first:?}");
        }
        // What these servers say to their own clients first, and a ZooKeeper.
        for first in
            [&b"+OK\r\n"[..], b"$-1\r\n", b":1\r\n", b"R\0\0\0\x08\0\0\0\0", b"\0\0\0\x25\0\0\0\0"]
        {
            assert_eq!(known(first), None, "{first:?}");
        }
    }
}
