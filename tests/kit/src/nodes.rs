//! Nodes of a ZooKeeper, seen and deleted in its own protocol: its shell takes a second to start.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const DELETE: i32 = 2;
const GET_CHILDREN: i32 = 8;
const LIMIT: Duration = Duration::from_secs(20);

/// A session, which ends a while after its connection.
pub struct Nodes(TcpStream);

impl Nodes {
    /// Of the server at this port.
    pub fn of(port: u16) -> Nodes {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut nodes = Nodes(stream);
        // A version, the last change seen, a timeout in ms, a session (none), and its password.
        let mut hello = vec![0; 12];
        hello.extend(4000i32.to_be_bytes());
        hello.extend([0; 8]);
        put(&mut hello, &[0; 16]);
        nodes.send(&hello).unwrap();
        nodes.hear().unwrap();
        nodes
    }

    /// What is directly below a node, if there is one.
    pub fn children(&mut self, path: &str) -> Option<Vec<String>> {
        let mut request = Vec::new();
        put(&mut request, path.as_bytes());
        request.push(0);
        let reply = self.ask(GET_CHILDREN, &request)?;
        let (count, mut rest) = number(&reply);
        let name = |_| {
            let (length, text) = number(rest);
            let (name, left) = text.split_at(length);
            rest = left;
            String::from_utf8_lossy(name).into_owned()
        };
        Some((0..count).map(name).collect())
    }

    /// Whatever version it has.
    #[track_caller]
    pub fn delete(&mut self, path: &str) {
        let mut request = Vec::new();
        put(&mut request, path.as_bytes());
        request.extend((-1i32).to_be_bytes());
        assert!(self.ask(DELETE, &request).is_some(), "{path} was not deleted");
    }

    /// What the server answers, unless that is an error.
    fn ask(&mut self, kind: i32, rest: &[u8]) -> Option<Vec<u8>> {
        let request = [&1i32.to_be_bytes(), &kind.to_be_bytes(), rest].concat();
        self.send(&request).unwrap();
        let reply = self.hear().unwrap();
        // The number of the request, that of the last change, and an error.
        let (header, body) = reply.split_at(16);
        (header[12..] == [0; 4]).then(|| body.to_vec())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut message = Vec::new();
        put(&mut message, bytes);
        self.0.write_all(&message)
    }

    fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut message = vec![0; number(&length).0];
        self.0.read_exact(&mut message)?;
        Ok(message)
    }
}

/// Behind its length.
fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(i32::try_from(bytes.len()).expect("it is short").to_be_bytes());
    to.extend(bytes);
}

fn number(bytes: &[u8]) -> (usize, &[u8]) {
    let (number, rest) = bytes.split_first_chunk().expect("a number");
    (i32::from_be_bytes(*number).try_into().unwrap_or(0), rest)
}
