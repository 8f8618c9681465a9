//! A way to a server as networks are: what travels there arrives in its order, later by the length
//! of the way, and as much as one likes can be under way at once. It can be cut, and then nothing
//! arrives, not even a refusal, until it is healed; then it all does, as TCP has it. It knows
//! nothing of requests and replies; `Proxy` does. One thread carries everything.

mod connection;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use self::connection::Connection;
use super::namespace::Cut;
use super::server::Server;

pub struct Link {
    port: u16,
    weather: Arc<Mutex<Weather>>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

struct Weather {
    /// One for each connection in turn.
    delays: Vec<Duration>,
    /// More than that for what comes back.
    reply_delay: Duration,
    cut: Option<Cut>,
    /// How often all connections were torn down.
    torn: u64,
    over: bool,
}

impl Weather {
    fn delay(&self, connection: usize) -> Duration {
        self.delays[connection % self.delays.len()]
    }

    fn pass_requests(&self) -> bool {
        self.cut != Some(Cut::Both)
    }

    fn pass_replies(&self) -> bool {
        self.cut.is_none()
    }
}

impl Link {
    pub fn to(server: &Server) -> Link {
        Link::to_address((server.host(), server.port()).into())
    }

    pub fn to_address(server: SocketAddr) -> Link {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (waker, woken) = UnixStream::pair().unwrap();
        woken.set_nonblocking(true).unwrap();
        let delays = vec![Duration::ZERO];
        let weather =
            Weather { delays, reply_delay: Duration::ZERO, cut: None, torn: 0, over: false };
        let weather = Arc::new(Mutex::new(weather));
        let carrier = Carrier {
            server,
            listener,
            woken,
            weather: weather.clone(),
            connections: Vec::new(),
            accepted: 0,
            torn: 0,
        };
        let thread = Some(std::thread::spawn(|| carrier.carry()));
        Link { port, weather, waker, thread }
    }

    /// Of its near end; `Server::url_through` makes a URL of it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What is sent from now on arrives so much later, in each direction.
    pub fn slow(&self, delay: Duration) {
        self.slow_in_turn(&[delay]);
    }

    /// Each connection in turn has the next of these delays.
    pub fn slow_in_turn(&self, delays: &[Duration]) {
        self.change(|weather| weather.delays = delays.to_vec());
    }

    /// The way back takes so much longer than the way there.
    pub fn slow_replies(&self, delay: Duration) {
        self.change(|weather| weather.reply_delay = delay);
    }

    pub fn cut(&self) {
        self.cut_only(Cut::Both);
    }

    pub fn cut_only(&self, what: Cut) {
        self.change(|weather| weather.cut = Some(what));
    }

    /// What was sent meanwhile arrives now.
    pub fn heal(&self) {
        self.change(|weather| weather.cut = None);
    }

    /// Every connection is reset at both ends; what was under way is lost. That is noticed even
    /// while the way is cut: something at its ends has forgotten them.
    pub fn tear(&self) {
        self.change(|weather| weather.torn += 1);
    }

    fn change(&self, how: impl FnOnce(&mut Weather)) {
        how(&mut self.weather.lock().unwrap());
        (&self.waker).write_all(b"!").unwrap();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.change(|weather| weather.over = true);
        // A thread that panicked has printed why; the test fails by what it misses.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Carrier {
    server: SocketAddr,
    listener: TcpListener,
    woken: UnixStream,
    weather: Arc<Mutex<Weather>>,
    connections: Vec<Connection>,
    accepted: usize,
    torn: u64,
}

impl Carrier {
    fn carry(mut self) {
        loop {
            let mut buffer = [0; 64];
            while matches!((&self.woken).read(&mut buffer), Ok(1..)) {}
            let weather = self.weather.clone();
            let weather = weather.lock().unwrap();
            if weather.over {
                return;
            }
            if self.torn != weather.torn {
                self.torn = weather.torn;
                self.connections.drain(..).for_each(Connection::reset);
            }
            self.accept(&weather);
            for connection in &mut self.connections {
                connection.read(&weather);
                connection.deliver(self.server, &weather);
            }
            self.connections.retain(|connection| !connection.is_over());
            let dues = self.connections.iter().filter_map(|connection| connection.due(&weather));
            let next = dues.min();
            drop(weather);
            self.sleep(next);
        }
    }

    fn accept(&mut self, weather: &Weather) {
        loop {
            match self.listener.accept() {
                Ok((client, _)) => {
                    let connection = Connection::new(client, self.accepted, weather);
                    self.connections.push(connection);
                    self.accepted += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => panic!("cannot accept: {error}"),
            }
        }
    }

    /// Until something can be done.
    fn sleep(&self, next: Option<Instant>) {
        let mut waits = vec![
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        waits.extend(self.connections.iter().flat_map(Connection::waits));
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        match ppoll(&mut waits, left.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => panic!("cannot wait: {error}"),
        }
    }
}
