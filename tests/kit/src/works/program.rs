//! The program `kit` starts what it is asked for, obeys, and ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::program::{serve, start};
use crate::socket::dial;
use crate::*;

const LIMIT: Duration = Duration::from_secs(20);

/// What the program has started, on a thread, and a pair of sockets as its input and output.
struct Running {
    url: String,
    ports: Vec<u16>,
    input: UnixStream,
    output: BufReader<UnixStream>,
    thread: std::thread::JoinHandle<()>,
}

fn run(what: &'static [&'static str]) -> Running {
    let (input, theirs) = UnixStream::pair().unwrap();
    let output = BufReader::new(input.try_clone().unwrap());
    let thread = std::thread::spawn(move || {
        let mut started = start(what).expect("the program knows it");
        serve(&mut started, BufReader::new(theirs.try_clone().unwrap()), theirs);
    });
    let mut running = Running { url: String::new(), ports: Vec::new(), input, output, thread };
    let line = running.line();
    let (url, ports) = line.strip_prefix("url=").unwrap().split_once(" ports=").unwrap();
    running.url = url.to_owned();
    running.ports = ports.split(',').map(|port| port.parse().unwrap()).collect();
    running
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.line()
    }

    fn end(self) {
        self.input.shutdown(std::net::Shutdown::Write).unwrap();
        self.thread.join().unwrap();
    }
}

fn answers(port: u16) -> bool {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let wait = Duration::from_millis(300);
    let connection = client.get_connection_with_timeout(wait);
    connection.is_ok_and(|mut connection| {
        connection.set_read_timeout(Some(wait)).unwrap();
        redis::cmd("PING").query::<String>(&mut connection).is_ok()
    })
}

#[test]
fn a_redis_obeys_and_ends_with_the_input() {
    let mut running = run(&["redis", "--maxmemory", "7mb"]);
    let port = running.ports[0];
    assert_eq!(running.url, format!("redis://127.0.0.1:{port}"));
    assert!(answers(port));
    for (line, answer, is_there) in [
        ("pause", "ok", false),
        ("resume", "ok", true),
        ("kill 0", "ok", false),
        ("kill", "error: server 0 does not run", false),
        ("restart", "ok", true),
        ("restart", "error: restart is nothing that a running server does", true),
        ("pause 1", "error: there is no server 1", true),
        ("", "error: an empty line", true),
    ] {
        assert_eq!(running.tell(line), answer, "{line}");
        assert_eq!(answers(port), is_there, "{line}");
    }
    running.end();
    assert!(!answers(port));
}

#[test]
fn groups_have_their_ports_in_order_and_a_proxy_its_modes() {
    let mut sentinel = run(&["sentinel"]);
    let hosts: Vec<_> =
        sentinel.ports[2..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
    assert_eq!(sentinel.url, format!("redis+sentinel://{}/mymaster", hosts.join(",")));
    assert_eq!(sentinel.tell("fail-over"), "ok");
    let port = Box::leak(sentinel.ports[1].to_string().into_boxed_str());
    let mut proxy = run(Box::leak(Box::new(["proxy", &*port])));
    assert!(answers(proxy.ports[0]));
    assert_eq!(proxy.tell("silent"), "ok");
    let mut mute = dial(proxy.ports[0]);
    mute.write_all(b"PING\r\n").unwrap();
    socket::assert_mute(&mut mute);
    assert_eq!(proxy.tell("pass"), "ok");
    assert!(proxy.tell("dance").starts_with("error: "));
    eventually(LIMIT, || answers(proxy.ports[0]));
    proxy.end();
    sentinel.end();
    assert!(start(&["cluster", "of", "nine"]).is_none());
}
