//! A bare connection to a Redis server: blocking, one write and one read per command, no more.
//! The limit is measured with it, and the server is asked with it what the library cannot say.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::exit::Failure;

/// Longer than any command here takes, so that a server that falls silent ends the measurement.
const SILENCE: Duration = Duration::from_secs(5);

/// Where a server is and how one is let in, as much of a URL as a bare connection needs.
#[derive(Clone)]
pub(super) struct Address {
    place: Place,
    user: Option<String>,
    password: Option<String>,
    database: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Tcp(String),
    Unix(PathBuf),
}

impl Address {
    /// Reads a URL that the library has accepted; `None` for one that needs more than one bare
    /// socket: TLS, or several servers.
    pub(super) fn of(url: &str) -> Option<Address> {
        if names_several(url) {
            return None;
        }
        let (scheme, rest) = url.split_once(':')?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let parameter = |wanted: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == wanted).map(|(_, value)| decode(value))
        };
        match scheme {
            "redis" => {
                let body = body.strip_prefix("//")?;
                let (authority, database) = body.split_once('/').unwrap_or((body, ""));
                let (credentials, place) = authority.rsplit_once('@').unwrap_or((":", authority));
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                let after_host = place.rsplit_once(']').map_or(place, |(_, after)| after);
                let place = decode(place);
                let place = if after_host.contains(':') { place } else { place + ":6379" };
                let filled = |text: &str| Some(decode(text)).filter(|text| !text.is_empty());
                Some(Address {
                    place: Place::Tcp(place),
                    user: filled(user),
                    password: filled(password),
                    database: filled(database).unwrap_or_else(|| "0".to_owned()),
                })
            }
            "unix" | "redis+unix" => Some(Address {
                place: Place::Unix(decode(body.strip_prefix("//").unwrap_or(body)).into()),
                user: parameter("user"),
                password: parameter("password"),
                database: parameter("db").unwrap_or_else(|| "0".to_owned()),
            }),
            _ => None,
        }
    }

    /// Whether the server can only be on this machine.
    pub(super) fn is_local(&self) -> bool {
        match &self.place {
            Place::Unix(_) => true,
            Place::Tcp(place) => ["127.", "localhost:", "[::1]:"]
                .iter()
                .any(|local| place.to_ascii_lowercase().starts_with(local)),
        }
    }
}

/// Whether it is the URL of a quorum: a scheme follows a comma, and is no host with a port.
fn names_several(url: &str) -> bool {
    url.match_indices(',').any(|(comma, _)| {
        url[comma + 1..].split_once(':').is_some_and(|(scheme, rest)| {
            (scheme.starts_with("redis") || scheme == "unix")
                && !rest.starts_with(|next: char| next.is_ascii_digit())
        })
    })
}

trait Socket: Read + Write + Send {}
impl<S: Read + Write + Send> Socket for S {}

pub(super) struct Bare {
    socket: Box<dyn Socket>,
    /// What was read; only `filled` bytes of it are.
    buffer: Vec<u8>,
    filled: usize,
}

impl Bare {
    pub(super) fn connect(address: &Address) -> Result<Bare, Failure> {
        let mut bare = Bare { socket: dial(&address.place)?, buffer: vec![0; 4096], filled: 0 };
        if let Some(password) = &address.password {
            match &address.user {
                Some(user) => bare.call(&[b"AUTH", user.as_bytes(), password.as_bytes()])?,
                None => bare.call(&[b"AUTH", password.as_bytes()])?,
            };
        }
        if address.database != "0" {
            bare.call(&[b"SELECT", address.database.as_bytes()])?;
        }
        Ok(bare)
    }

    /// Sends bytes that are a command and returns the bytes of its reply. Allocates nothing
    /// unless a reply is longer than every one before it.
    pub(super) fn exchange(&mut self, command: &[u8]) -> io::Result<&[u8]> {
        self.ask(command)?;
        self.answer()
    }

    /// The first half of an exchange, so that others can be asked before the answer is read.
    pub(super) fn ask(&mut self, command: &[u8]) -> io::Result<()> {
        self.socket.write_all(command)
    }

    /// The second half.
    pub(super) fn answer(&mut self) -> io::Result<&[u8]> {
        self.filled = 0;
        let end = loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            let read = self.socket.read(&mut self.buffer[self.filled..])?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"));
            }
            self.filled += read;
            if let Some(end) = end_of_reply(&self.buffer[..self.filled]) {
                break end;
            }
        };
        Ok(&self.buffer[..end])
    }

    /// The same for a command that is still in parts; an error reply is a failure.
    pub(super) fn call(&mut self, parts: &[&[u8]]) -> Result<&[u8], Failure> {
        let name = String::from_utf8_lossy(parts.first().copied().unwrap_or_default()).into_owned();
        let reply = self.exchange(&pack(parts))?;
        match reply.strip_prefix(b"-") {
            None => Ok(reply),
            Some(error) => {
                let error = String::from_utf8_lossy(error.trim_ascii()).into_owned();
                Err(Failure::unavailable(format!("{name}: {error}")))
            }
        }
    }

    /// The text of an `INFO` section.
    pub(super) fn info(&mut self, section: &str) -> Result<String, Failure> {
        let reply = self.call(&[b"INFO", section.as_bytes()])?;
        Ok(String::from_utf8_lossy(reply).into_owned())
    }

    /// Gives up the framing: from now on the server sends lines without being asked.
    pub(super) fn into_socket(self) -> impl Read {
        self.socket
    }
}

fn dial(place: &Place) -> Result<Box<dyn Socket>, Failure> {
    let refused =
        |error: io::Error| Failure::unavailable(format!("the server cannot be reached: {error}"));
    match place {
        Place::Tcp(place) => {
            let socket = TcpStream::connect(place).map_err(refused)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(SILENCE))?;
            Ok(Box::new(socket))
        }
        Place::Unix(path) => {
            let socket = UnixStream::connect(path).map_err(refused)?;
            socket.set_read_timeout(Some(SILENCE))?;
            Ok(Box::new(socket))
        }
    }
}

/// A command as it travels.
pub(super) fn pack(parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        let part = part.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Where the first reply in `bytes` ends, if all of it is there.
fn end_of_reply(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut missing = 1_i64;
    while missing > 0 {
        let line = bytes[at..].iter().position(|byte| *byte == b'\n')?;
        let kind = bytes[at];
        let count = || number(&bytes[at + 1..at + line]).unwrap_or(0);
        let after = at + line + 1;
        missing -= 1;
        at = match kind {
            b'*' => {
                missing += count().max(0);
                after
            }
            b'$' => usize::try_from(count()).map_or(after, |length| after + length + 2),
            _ => after,
        };
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// A number in decimal digits, with whatever follows it left alone.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let digits = digits.trim_ascii_end();
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_all_of_it_is_there() {
        for reply in [
            &b"+PONG\r\n"[..],
            b":12\r\n",
            b"$-1\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*2\r\n:1\r\n$3\r\nabc\r\n",
            b"*2\r\n*1\r\n:1\r\n*0\r\n",
        ] {
            let mut more = reply.to_vec();
            more.extend_from_slice(b":9\r\n");
            assert_eq!(end_of_reply(&more), Some(reply.len()), "{}", reply.escape_ascii());
            for short in 0..reply.len() {
                assert_eq!(end_of_reply(&reply[..short]), None, "{}", reply.escape_ascii());
            }
        }
    }

    #[test]
    fn a_url_names_the_server_and_the_way_in() {
        let tcp = Address::of("redis://us%3aer:p%40ss@db.example/5?pool=2").unwrap();
        assert_eq!(tcp.place, Place::Tcp("db.example:6379".to_owned()));
        assert_eq!(tcp.user.as_deref(), Some("us:er"));
        assert_eq!(tcp.password.as_deref(), Some("p@ss"));
        assert_eq!(tcp.database, "5");
        assert!(!tcp.is_local());
        let six = Address::of("redis://:x@[::1]:7000").unwrap();
        assert_eq!(six.place, Place::Tcp("[::1]:7000".to_owned()));
        assert_eq!((six.user, six.password.as_deref()), (None, Some("x")));
        let unix = Address::of("unix:///run/a%20b.sock?db=3&password=p%26q").unwrap();
        assert_eq!(unix.place, Place::Unix("/run/a b.sock".into()));
        assert_eq!((unix.database.as_str(), unix.password.as_deref()), ("3", Some("p&q")));
        assert!(unix.is_local() && six.place != unix.place);
        let comma = Address::of("redis://:a,b@db.example?prefix=a,b:").unwrap();
        assert_eq!(comma.place, Place::Tcp("db.example:6379".to_owned()));
        assert_eq!(comma.password.as_deref(), Some("a,b"));
        for more in [
            "rediss://host",
            "redis+sentinel://a,redis:26379/main",
            "redis+cluster://a,b",
            "redis://a,redis://b,redis://c",
            "redis://a?db=1,rediss://b,unix:///run/c.sock?max_ttl=5s",
            "unix:///run/a.sock,redis+cluster://b,redis://c",
        ] {
            assert!(Address::of(more).is_none(), "{more}");
        }
    }

    #[test]
    fn a_command_travels_as_its_parts() {
        assert_eq!(pack(&["GET", "a\r\n"]), b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
