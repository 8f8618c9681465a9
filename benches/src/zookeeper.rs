//! A ZooKeeper store measured against bare writes, and beside Curator's InterProcessMutex, which people
//! lock with there.
//!
//! The limit is two changes, one that makes a node and one that removes it, each waited for: nobody can
//! take a lock there and give it back in less.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::Zookeeper;

use crate::beside::java;
use crate::cores::Cores;
use crate::measure::Outcome;
use crate::stores::open;
use crate::table::Table;
use crate::theirs::{Change, Theirs, medians, table};

pub(crate) fn measure(alone: bool, time: Duration) -> Outcome<Table> {
    let cores = Cores::choose()?;
    cores.pin_self()?;
    let mut columns = Vec::new();
    for options in [&[][..], &["-Dzookeeper.forceSync=no"]] {
        // On the disk of the build: a temporary folder may be in memory.
        let server = Zookeeper::start_in(Path::new(env!("CARGO_TARGET_TMPDIR")), options, &[]);
        let url = server.url("");
        open(&url)?.initialize(false)?;
        let mut curator = if alone { None } else { Some(curator(server.port())?) };
        if let Some(curator) = &mut curator {
            // Java compiles what it does often.
            (0..500).try_for_each(|_| curator.does("cycle").map(drop))?;
        }
        let bare = Bare::connect(server.port())?;
        columns.push(medians(&url, bare, curator, time)?);
    }
    cores.let_self_go()?;
    Ok(table("zookeeper", ("Curator's InterProcessMutex", "Curator's"), &columns))
}

/// A Java that locks by Curator's recipe.
fn curator(port: u16) -> Outcome<Theirs> {
    let [path, class] = java("curator", "Curator")?;
    Theirs::start(Command::new("java").args(["-cp", &path, &class, &format!("127.0.0.1:{port}")]))
}

/// ZooKeeper's protocol, as much as makes and removes a node.
struct Bare(TcpStream);

impl Bare {
    fn connect(port: u16) -> Outcome<Bare> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut bare = Bare(stream);
        // Version, last change seen, timeout in ms, session, an empty password, not read-only.
        let parts: [&[u8]; 6] =
            [&[0; 4], &[0; 8], &40_000_u32.to_be_bytes(), &[0; 8], &16_u32.to_be_bytes(), &[0; 17]];
        bare.say(&parts.concat())?;
        Ok(bare)
    }

    fn say(&mut self, message: &[u8]) -> Outcome<()> {
        let length = u32::try_from(message.len())?.to_be_bytes();
        self.0.write_all(&[&length, message].concat())?;
        let (mut length, mut room) = ([0; 4], [0; 256]);
        self.0.read_exact(&mut length)?;
        let answer = room.get_mut(..u32::from_be_bytes(length) as usize).ok_or("a long answer")?;
        self.0.read_exact(answer)?;
        // Of a request: its number, the last change, and whether it was refused.
        if answer.len() < 32 && answer.get(12..16) != Some(&[0; 4]) {
            return Err("the server refused".into());
        }
        Ok(())
    }
}

impl Change for Bare {
    fn make(&mut self) -> Outcome<()> {
        let parts: [&[u8]; 9] = [
            &[0, 0, 0, 1, 0, 0, 0, 1],
            &[0, 0, 0, 5],
            b"/bare",
            &[0, 0, 0, 5],
            b"30000",
            &[0, 0, 0, 1, 0, 0, 0, 31, 0, 0, 0, 5],
            b"world",
            &[0, 0, 0, 6],
            b"anyone\0\0\0\0",
        ];
        self.say(&parts.concat())
    }

    fn remove(&mut self) -> Outcome<()> {
        let parts: [&[u8]; 4] = [&[0, 0, 0, 1, 0, 0, 0, 2], &[0, 0, 0, 5], b"/bare", &[0xff; 4]];
        self.say(&parts.concat())
    }
}
