//! What clients sent to a server. `INFO` cannot tell: its counters count what scripts call too.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Server;

/// A MONITOR connection: sees commands from clients and those called by scripts apart.
///
/// Redis shows no administrative commands there (CONFIG, DEBUG, SLOWLOG and so on), and none that
/// it refused before execution: unknown, wrong number of arguments, forbidden by an ACL.
pub struct Watch<'a> {
    server: &'a Server,
    feed: BufReader<TcpStream>,
    marks: u64,
}

impl<'a> Watch<'a> {
    pub(super) fn start(server: &'a Server) -> Watch<'a> {
        let mut stream = server.bare_connection();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut feed = BufReader::new(stream);
        let mut line = String::new();
        feed.read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n", "the server lets itself be watched");
        Watch { server, feed, marks: 0 }
    }

    /// The commands of clients since the last call, each as one line: the name in upper case,
    /// then the arguments quoted as MONITOR does. A script is one command whatever it calls. Not
    /// among them is what a client says of itself, once a minute, and what it asks of the server, once:
    /// [`everything`](Watch::everything).
    pub fn client_commands(&mut self) -> Vec<String> {
        let mut seen = self.everything();
        seen.retain(|words| !words.starts_with("SET \"leasehold:client:") && words != "INFO");
        seen
    }

    /// The same with what clients say of themselves, and ask of the server.
    pub fn everything(&mut self) -> Vec<String> {
        self.marks += 1;
        let mark = format!("leasehold-watch-{}-{}", std::process::id(), self.marks);
        let mut stream = self.server.bare_connection();
        let own = stream.local_addr().unwrap().to_string();
        write!(stream, "ECHO {mark}\r\n").unwrap();
        // Executed in one order by one thread: when the mark is in the feed, all before it is.
        let mut seen = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = self.feed.read_until(b'\n', &mut line).expect("the feed goes on");
            assert!(read > 0, "the server closed the feed");
            let line = String::from_utf8_lossy(&line);
            let (source, words) = parse(&line);
            if words.contains(&mark) {
                break;
            }
            let by_script = source == "lua" || source == "script";
            if !by_script && source != own {
                seen.push(words);
            }
        }
        seen
    }

    /// How many there were since the last call.
    pub fn count(&mut self) -> usize {
        self.client_commands().len()
    }
}

/// `+1795181583.491067 [0 127.0.0.1:55970] "eval" "return 1" "0"` gives the source and the words.
fn parse(line: &str) -> (&str, String) {
    let inner = line.split_once('[').expect("a line of MONITOR has a source").1;
    let (source, words) = inner.split_once("] ").expect("the source ends");
    let source = source.split_once(' ').map_or(source, |(_database, source)| source);
    let words = words.trim_end();
    let (name, rest) = match words.split_once(' ') {
        Some((name, rest)) => (name, format!(" {rest}")),
        None => (words, String::new()),
    };
    (source, name.trim_matches('"').to_uppercase() + &rest)
}

/// A server that does not answer fails the test instead of hanging it.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
