//! How many commands clients send. The server's own counters do not tell: they include what
//! scripts call inside. Its `MONITOR` names the sender of each one, so it is read for a while;
//! that slows the server down, so nothing is timed meanwhile.

use std::io::{self, BufRead, BufReader};
use std::thread::{self, JoinHandle};

use super::super::bare::{Address, Bare};
use crate::exit::Failure;

/// What a client sends to stay connected, and what a measurement asks.
const BESIDE: [&str; 9] = [
    "PING",
    "INFO",
    "MONITOR",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SSUBSCRIBE",
    "SUNSUBSCRIBE",
];

/// Counts from its start to its end.
pub(super) struct Count {
    marker: String,
    reader: JoinHandle<io::Result<u64>>,
}

impl Count {
    pub(super) fn start(address: &Address, marker: String) -> Result<Count, Failure> {
        let mut bare = Bare::connect(address)?;
        bare.call(&[b"MONITOR"])?;
        let lines = BufReader::with_capacity(1 << 16, bare.into_socket());
        let end = format!("\"{marker}\"").into_bytes();
        let reader = thread::Builder::new()
            .name("leasehold-count".to_owned())
            .spawn(move || count(lines, &end))?;
        Ok(Count { marker, reader })
    }

    pub(super) fn finish(self, bare: &mut Bare) -> Result<u64, Failure> {
        // The server feeds its monitors in the order of execution: behind this comes nothing that
        // was sent before.
        bare.call(&[b"ECHO", self.marker.as_bytes()])?;
        match self.reader.join() {
            Ok(counted) => Ok(counted?),
            Err(_) => Err(Failure::unavailable("what the server ran could not be read")),
        }
    }
}

fn count(mut lines: impl BufRead, end: &[u8]) -> io::Result<u64> {
    let (mut count, mut line) = (0, Vec::new());
    loop {
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            // Nobody has sent anything for a while; what was read of a line stays.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        if line.windows(end.len()).any(|part| part == end) {
            return Ok(count);
        }
        count += u64::from(counts(&line));
        line.clear();
    }
}

/// Whether a line such as `+1700000000.123456 [0 127.0.0.1:5000] "SET" "a" "b"` is a command that
/// a client sent, and no other than those that count.
fn counts(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let Some((_, rest)) = text.split_once('[') else { return false };
    let (Some((sender, command)), Some((_, place))) =
        (rest.split_once("] \""), rest.split_once(' '))
    else {
        return false;
    };
    let command = command.split('"').next().unwrap_or_default();
    // What a script calls has `lua` in the place of an address.
    let inside = sender.ends_with(" lua") && place.starts_with("lua]");
    !inside && !BESIDE.iter().any(|beside| command.eq_ignore_ascii_case(beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_counts_and_what_scripts_call_does_not() {
        let lines = b"+OK\r\n\
            +1.5 [0 127.0.0.1:50] \"EVALSHA\" \"a[0 lua] \\\"b\" \"1\"\r\n\
            +1.5 [0 lua] \"SET\" \"n\" \"t\"\r\n\
            +1.5 [3 unix:/a b] \"get\" \"n\"\r\n\
            +1.5 [0 127.0.0.1:50] \"ping\"\r\n\
            +1.5 [0 127.0.0.1:50] \"SUBSCRIBE\" \"c\"\r\n\
            +1.5 [0 127.0.0.1:51] \"ECHO\" \"end:7\"\r\n\
            +1.5 [0 127.0.0.1:50] \"GET\" \"n\"\r\n";
        assert_eq!(count(&lines[..], b"\"end:7\"").unwrap(), 2);
    }

    #[test]
    fn a_server_that_hangs_up_is_an_error() {
        assert!(count(&b"+OK\r\n"[..], b"\"end:7\"").is_err());
    }
}
