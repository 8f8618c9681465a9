//! A bare connection to a server: blocking, one write and one read for each command, no more.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use kit::Server;

pub(crate) struct Bare {
    socket: TcpStream,
    /// What was read; only `filled` bytes of it are.
    buffer: Vec<u8>,
    filled: usize,
}

impl Bare {
    pub(crate) fn connect(server: &Server) -> io::Result<Bare> {
        Bare::over(server.bare_connection())
    }

    pub(crate) fn over(socket: TcpStream) -> io::Result<Bare> {
        socket.set_nodelay(true)?;
        Ok(Bare { socket, buffer: vec![0; 4096], filled: 0 })
    }

    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.exchange(b"*1\r\n$4\r\nPING\r\n").map(drop)
    }

    /// Sends bytes that are a command and returns the bytes of its reply.
    pub(crate) fn exchange(&mut self, command: &[u8]) -> io::Result<&[u8]> {
        self.ask(command)?;
        self.answer()
    }

    /// The first half of an exchange, so that others can be asked before the answer is read.
    pub(crate) fn ask(&mut self, command: &[u8]) -> io::Result<()> {
        self.socket.write_all(command)
    }

    /// The second half. Allocates nothing unless a reply is longer than every one before it.
    pub(crate) fn answer(&mut self) -> io::Result<&[u8]> {
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
}

/// A command as it travels.
pub(crate) fn pack(parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
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
    let (mut at, mut missing) = (0, 1_i64);
    while missing > 0 {
        let line = bytes[at..].iter().position(|byte| *byte == b'\n')?;
        let digits = std::str::from_utf8(&bytes[at + 1..at + line]).unwrap_or_default();
        let count = || digits.trim_end().parse().unwrap_or(0_i64);
        let (kind, after) = (bytes[at], at + line + 1);
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
        assert_eq!(pack(&["GET", "a\r\n"]), b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
