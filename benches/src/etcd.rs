//! An etcd store measured against bare writes, and beside the Mutex of etcd's own client for Go, which
//! people lock with there.
//!
//! The limit is two changes, one that puts a key and one that deletes it, each waited for: nobody can take
//! a lock there and give it back in less.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::Etcd;

use crate::beside::run;
use crate::cores::Cores;
use crate::measure::Outcome;
use crate::table::Table;
use crate::theirs::{Change, Theirs, medians, table};

pub(crate) fn measure(alone: bool, time: Duration) -> Outcome<Table> {
    let mutex = if alone { None } else { Some(mutex()?) };
    let cores = Cores::choose()?;
    cores.pin_self()?;
    let mut columns = Vec::new();
    for options in [&[][..], &["--unsafe-no-fsync"]] {
        // On the disk of the build: a temporary folder may be in memory.
        let server = Etcd::start_in(Path::new(env!("CARGO_TARGET_TMPDIR")), 1, options);
        let url = server.url();
        let theirs = |program| Theirs::start(Command::new(program).arg(server.hosts()));
        let mutex = mutex.as_ref().map(theirs).transpose()?;
        let bare = Bare::connect(server.port(0))?;
        columns.push(medians(&url, bare, mutex, time)?);
    }
    cores.let_self_go()?;
    Ok(table("etcd", ("concurrency.Mutex", "concurrency.Mutex"), &columns))
}

/// Builds the program that locks by etcd's own client.
fn mutex() -> Outcome<std::path::PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutex");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/go/etcd");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).current_dir(folder);
    run(&mut go).map_err(|error| format!("go could not fetch and build etcd's client: {error}"))?;
    Ok(program)
}

/// gRPC over HTTP/2, as much as puts and deletes a key.
struct Bare {
    stream: TcpStream,
    inbox: Vec<u8>,
    last: u32,
}

const FRAME: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END: u8 = 1;
const ACK: u8 = 1;
const END_LIST: u8 = 4;

impl Bare {
    fn connect(port: u16) -> Outcome<Bare> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        // No table of headers, and a window that is never used up.
        let window = (1_u32 << 30).to_be_bytes();
        let begin = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]),
            frame(WINDOW_UPDATE, 0, 0, &window),
        ];
        stream.write_all(&begin.concat())?;
        Ok(Bare { stream, inbox: Vec::new(), last: 0 })
    }

    fn call(&mut self, what: &str, message: &[u8]) -> Outcome<()> {
        self.last = if self.last == 0 { 1 } else { self.last + 2 };
        let path = format!("/etcdserverpb.KV/{what}");
        let mut list = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "127.0.0.1"),
            (":path", &path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // Each is sent as it is, and is shorter than what one byte counts.
            list.extend([&[0, name.len() as u8], name.as_bytes()].concat());
            list.extend([&[value.len() as u8], value.as_bytes()].concat());
        }
        let body = [&[0, 0, 0, 0, message.len() as u8], message].concat();
        let mut call = frame(HEADERS, END_LIST, self.last, &list);
        call.extend(frame(DATA, END, self.last, &body));
        self.stream.write_all(&call)?;
        self.answer()
    }

    /// Reads until the call has ended.
    fn answer(&mut self) -> Outcome<()> {
        let (mut room, mut is_answered) = ([0; 4096], false);
        loop {
            while let Some(head) = self.inbox.first_chunk::<FRAME>() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let (kind, flags) = (head[3], head[4]);
                let is_ours = head[5..] == self.last.to_be_bytes();
                let Some(body) = self.inbox.get(FRAME..FRAME + length) else { break };
                let reply = match kind {
                    SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, b""),
                    PING if flags & ACK == 0 => frame(PING, ACK, 0, body),
                    _ => Vec::new(),
                };
                // What is refused has an end without an answer before it.
                is_answered |= is_ours && kind == DATA;
                let is_over = is_ours && kind == HEADERS && flags & END != 0;
                self.inbox.drain(..FRAME + length);
                self.stream.write_all(&reply)?;
                if is_over {
                    return if is_answered { Ok(()) } else { Err("the server refused".into()) };
                }
            }
            let count = self.stream.read(&mut room)?;
            if count == 0 {
                return Err("the server hung up".into());
            }
            self.inbox.extend_from_slice(&room[..count]);
        }
    }
}

impl Change for Bare {
    fn make(&mut self) -> Outcome<()> {
        self.call("Put", b"\x0a\x04bare\x12\x0530000")
    }

    fn remove(&mut self) -> Outcome<()> {
        self.call("DeleteRange", b"\x0a\x04bare")
    }
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}
