//! A TCP proxy in front of a server that misbehaves on request, as networks do.
//!
//! It never does what TCP cannot: bytes keep their order, and once a connection has lost bytes in
//! one direction it carries no later ones in that direction, whatever the mode is by then.

mod connection;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use connection::Connection;
use socket2::{Domain, SockRef, Socket, Type};

/// A mode holds for all connections, those that are open already too, until the next `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// The server executes; the client hears nothing any more, not even a close.
    SwallowReplies,
    /// The next request is executed, and its connection carries no reply any more. Then `Pass`.
    SwallowReply,
    DelayRequests(Duration),
    DelayReplies(Duration),
    /// Connecting works, then nothing goes either way and nothing is ever answered.
    Silent,
    /// Replies travel one byte at a time with this pause after each.
    Dribble(Duration),
    /// Instead of a reply the client hears this, and nothing else any more.
    Babble(Babble),
    /// The next request is executed and its connection closed instead of a reply. Then `Pass`.
    LoseReply(End),
    /// Only this many bytes of the next request arrive. The server sees the end of the stream
    /// after them and, when it has closed, the client a reset. Then `Pass`.
    CutRequest(usize),
    /// Requests are kept, also those of clients that leave, until `deliver`.
    HoldRequests,
    /// New connections are refused; open ones go on.
    Refuse,
}

/// What a server says that never comes to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Babble {
    pub first: &'static [u8],
    /// Over and over again after that, with this pause after each.
    pub then: &'static [u8],
    /// Zero: as fast as the client takes it.
    pub pause: Duration,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order: the client reads an end of stream.
    Fin,
    /// The client gets ECONNRESET.
    Reset,
}

pub struct Proxy {
    shared: Arc<Shared>,
    door: Door,
}

/// The listening socket or, while connecting is refused, one that only keeps the port.
enum Door {
    Open { listener: Arc<TcpListener>, acceptor: JoinHandle<()> },
    Shut(Socket),
    Moving,
}

struct Shared {
    server: SocketAddr,
    fault: Mutex<Fault>,
    changed: Condvar,
    ended: AtomicBool,
    connections: Mutex<Vec<Weak<Connection>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    accepted: AtomicU64,
    request_bytes: AtomicU64,
    reply_bytes: AtomicU64,
}

#[derive(Clone)]
struct Fault {
    mode: Mode,
    /// Only requests that contain one of these, and the replies to them, are treated so; or all.
    only: Vec<Vec<u8>>,
}

impl Proxy {
    pub fn start(server_port: u16) -> Proxy {
        let shared = Arc::new(Shared {
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)),
            fault: Mutex::new(Fault { mode: Mode::Pass, only: Vec::new() }),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            connections: Mutex::default(),
            threads: Mutex::default(),
            accepted: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
        });
        let door = Door::open(reserve(0), &shared);
        Proxy { shared, door }
    }

    pub fn port(&self) -> u16 {
        match &self.door {
            Door::Open { listener, .. } => listener.local_addr().unwrap().port(),
            Door::Shut(socket) => socket.local_addr().unwrap().as_socket().unwrap().port(),
            Door::Moving => unreachable!("only inside of set"),
        }
    }

    /// For a server without a password; `Server::url_through` knows one.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    pub fn set(&mut self, mode: Mode) {
        self.set_only_any(Vec::new(), mode);
    }

    /// The mode is for requests that contain `text` (in one piece as they arrive) and for the
    /// replies to them; all others pass. `Refuse` knows no such difference.
    pub fn set_only(&mut self, text: &[u8], mode: Mode) {
        self.set_only_any(vec![text.to_vec()], mode);
    }

    /// The same for requests that contain one of several texts.
    pub fn set_only_any(&mut self, only: Vec<Vec<u8>>, mode: Mode) {
        let port = self.port();
        *self.shared.fault.lock().unwrap() = Fault { mode, only };
        self.shared.changed.notify_all();
        self.door = match (std::mem::replace(&mut self.door, Door::Moving), mode) {
            (open @ Door::Open { .. }, Mode::Refuse) => {
                open.shut();
                Door::Shut(reserve(port))
            }
            (Door::Shut(socket), mode) if mode != Mode::Refuse => Door::open(socket, &self.shared),
            (door, _) => door,
        };
    }

    /// `SwallowReply`, `LoseReply` and `CutRequest` turn into `Pass` once they have struck.
    pub fn mode(&self) -> Mode {
        self.shared.fault.lock().unwrap().mode
    }

    /// Ends `HoldRequests`: what was kept goes to the server in its order. Where the client has
    /// left, this returns only when the server has read it all.
    pub fn deliver(&mut self) {
        self.set(Mode::Pass);
        for connection in self.shared.living() {
            connection.deliver();
        }
    }

    /// How many bytes of requests are kept.
    pub fn held(&self) -> usize {
        self.shared.living().iter().map(|connection| connection.held()).sum()
    }

    /// Closes every connection now.
    pub fn close_all(&self, end: End) {
        for connection in self.shared.living() {
            connection.close(end);
        }
    }

    /// Connections accepted so far. Connecting may succeed a moment before it is counted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.living().len()
    }

    /// Bytes that clients sent so far.
    pub fn request_bytes(&self) -> u64 {
        self.shared.request_bytes.load(Ordering::SeqCst)
    }

    /// Bytes that clients were sent so far.
    pub fn reply_bytes(&self) -> u64 {
        self.shared.reply_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody is between looking at `ended` and falling asleep.
        drop(self.shared.fault.lock().unwrap());
        self.shared.changed.notify_all();
        if let door @ Door::Open { .. } = std::mem::replace(&mut self.door, Door::Moving) {
            door.shut();
        }
        for connection in self.shared.living() {
            connection.close(End::Fin);
        }
        let threads = std::mem::take(&mut *self.shared.threads.lock().unwrap());
        for thread in threads {
            // A thread that panicked has printed why; the test fails by what it misses.
            let _ = thread.join();
        }
    }
}

impl Door {
    fn open(socket: Socket, shared: &Arc<Shared>) -> Door {
        socket.listen(128).unwrap();
        let listener = Arc::new(TcpListener::from(socket));
        let (ours, shared) = (listener.clone(), shared.clone());
        let acceptor = std::thread::spawn(move || {
            // Ends with an error when `shut` shuts the listener down.
            while let Ok((client, _)) = ours.accept() {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                Connection::start(client, &shared);
            }
        });
        Door::Open { listener, acceptor }
    }

    fn shut(self) {
        if let Door::Open { listener, acceptor } = self {
            SockRef::from(&*listener).shutdown(std::net::Shutdown::Both).unwrap();
            acceptor.join().unwrap();
        }
    }
}

impl Shared {
    fn living(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().unwrap().iter().filter_map(Weak::upgrade).collect()
    }

    /// Sleeps unless the proxy ends or the mode is another.
    fn pause(&self, mode: Mode, length: Duration) {
        let until = Instant::now() + length;
        let mut fault = self.fault.lock().unwrap();
        while fault.mode == mode && !self.ended.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            fault = self.changed.wait_timeout(fault, left).unwrap().0;
        }
    }
}

/// A socket that has the port and does not listen: connecting to it is refused.
fn reserve(port: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Connections of the former listener may still have the port.
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    socket
}

fn contains(bytes: &[u8], any: &[Vec<u8>]) -> bool {
    any.is_empty() || any.iter().any(|text| bytes.windows(text.len()).any(|part| part == text))
}

fn connect(server: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, Duration::from_secs(1)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}
