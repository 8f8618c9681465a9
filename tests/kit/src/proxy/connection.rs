//! One client's connection through the proxy: two threads, one for each direction, and a third one
//! once replies were delayed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Babble, End, Fault, Mode, Shared, connect, contains};

pub(super) struct Connection {
    client: TcpStream,
    /// Absent where the mode was `Silent` from the start.
    server: Option<TcpStream>,
    state: Mutex<State>,
    server_closed: Condvar,
    /// By the proxy, and not by either side.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Requests kept back; the first one keeps all later ones back too.
    held: Vec<u8>,
    /// Request bytes were lost; none may follow them.
    requests_mute: bool,
    /// Reply bytes were lost.
    replies_mute: bool,
    /// The last request was one that the mode is for.
    matched: bool,
    /// Close so instead of passing the next reply on.
    lose: Option<End>,
    /// Reset the client once the server has closed.
    cut: bool,
    client_closed: bool,
    server_closed: bool,
}

/// What replies go through once one of them was delayed.
struct Line {
    mode: Mode,
    replies: Sender<(Instant, Vec<u8>)>,
    thread: JoinHandle<()>,
}

impl Line {
    /// When all of them have arrived.
    fn end(self) {
        drop(self.replies);
        let _ = self.thread.join();
    }
}

impl Connection {
    pub(super) fn start(client: TcpStream, shared: &Arc<Shared>) {
        let mode = shared.fault.lock().unwrap().mode;
        let silent = mode == Mode::Silent;
        let server = if silent { None } else { connect(shared.server) };
        let refused = server.is_none() && !silent;
        let state = State { requests_mute: silent, replies_mute: silent, ..State::default() };
        let _ = client.set_nodelay(true);
        let connection = Arc::new(Connection {
            client,
            server,
            state: Mutex::new(state),
            server_closed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        if refused {
            connection.close(End::Reset);
            return;
        }
        let mut connections = shared.connections.lock().unwrap();
        connections.retain(|old| old.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        drop(connections);

        let mut threads = shared.threads.lock().unwrap();
        threads.retain(|thread| !thread.is_finished());
        if connection.server.is_some() {
            let (ours, shared) = (connection.clone(), shared.clone());
            threads.push(std::thread::spawn(move || ours.carry_replies(&shared)));
        }
        let shared = shared.clone();
        threads.push(std::thread::spawn(move || connection.carry_requests(&shared)));
    }

    pub(super) fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    pub(super) fn deliver(&self) {
        let mut state = self.state.lock().unwrap();
        let held = std::mem::take(&mut state.held);
        if held.is_empty() {
            return;
        }
        self.to_server(&held);
        if !state.client_closed {
            return;
        }
        self.finish_server();
        let limit = Instant::now() + Duration::from_secs(10);
        while !state.server_closed {
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the server did not read what was delivered");
            state = self.server_closed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// The threads wake up, let go of the sockets, and these close.
    pub(super) fn close(&self, end: End) {
        self.closed.store(true, Ordering::SeqCst);
        match end {
            End::Fin => {
                let _ = self.client.shutdown(Shutdown::Both);
            }
            End::Reset => {
                // A shutdown for writing would send FIN first. This one only wakes the reader,
                // and the close that follows resets.
                let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
                let _ = self.client.shutdown(Shutdown::Read);
            }
        }
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn carry_requests(&self, shared: &Shared) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = (&self.client).read(&mut buffer).unwrap_or(0);
            if read == 0 {
                break;
            }
            shared.request_bytes.fetch_add(read as u64, Ordering::SeqCst);
            self.pass_request(shared, &buffer[..read]);
        }
        let mut state = self.state.lock().unwrap();
        state.client_closed = true;
        if state.held.is_empty() {
            self.finish_server();
        }
    }

    fn pass_request(&self, shared: &Shared, request: &[u8]) {
        // The mode stays locked until the request has its fate, else `deliver` could come between.
        let mut fault = shared.fault.lock().unwrap();
        let mut state = self.state.lock().unwrap();
        state.matched = contains(request, &fault.only);
        let mode = if state.matched { fault.mode } else { Mode::Pass };
        if matches!(mode, Mode::SwallowReply | Mode::LoseReply(_) | Mode::CutRequest(_)) {
            *fault = Fault { mode: Mode::Pass, only: Vec::new() };
        }
        match mode {
            Mode::Silent => {
                state.requests_mute = true;
                state.replies_mute = true;
            }
            Mode::SwallowReply => state.replies_mute = true,
            Mode::LoseReply(end) => state.lose = Some(end),
            Mode::CutRequest(length) => {
                state.cut = true;
                state.requests_mute = true;
                self.to_server(&request[..length.min(request.len())]);
                self.finish_server();
            }
            _ => {}
        }
        if state.requests_mute {
            return;
        }
        if mode == Mode::HoldRequests || !state.held.is_empty() {
            state.held.extend_from_slice(request);
            return;
        }
        drop(state);
        drop(fault);
        if let Mode::DelayRequests(length) = mode {
            shared.pause(mode, length);
        }
        // Without a lock: a server that stands still may take nothing more.
        if !self.to_server(request) && !self.state.lock().unwrap().replies_mute {
            self.close(End::Reset);
        }
    }

    fn carry_replies(self: &Arc<Self>, shared: &Arc<Shared>) {
        let mut buffer = vec![0; 64 * 1024];
        let mut server = self.server.as_ref().expect("started only with a server");
        let mut line = None;
        loop {
            let read = server.read(&mut buffer).unwrap_or(0);
            if read == 0 {
                break;
            }
            self.pass_reply(shared, &buffer[..read], &mut line);
        }
        line.into_iter().for_each(Line::end);
        let fault = shared.fault.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        state.server_closed = true;
        self.server_closed.notify_all();
        let unheard = [Mode::Silent, Mode::SwallowReplies].contains(&state.reply_mode(&fault));
        if state.cut {
            self.close(End::Reset);
        } else if !state.replies_mute && !unheard && !self.closed.load(Ordering::SeqCst) {
            let _ = self.client.shutdown(Shutdown::Write);
        }
    }

    fn pass_reply(self: &Arc<Self>, shared: &Arc<Shared>, reply: &[u8], line: &mut Option<Line>) {
        let fault = shared.fault.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        if let Some(end) = state.lose {
            self.close(end);
            state.replies_mute = true;
        }
        let mode = state.reply_mode(&fault);
        if matches!(mode, Mode::Silent | Mode::SwallowReplies) || state.cut {
            state.replies_mute = true;
        }
        if state.replies_mute {
            return;
        }
        drop(state);
        if line.as_ref().is_some_and(|line| line.mode != mode) {
            // What comes now must not overtake what is delayed.
            line.take().into_iter().for_each(Line::end);
        }
        if let Mode::DelayReplies(length) = mode {
            let line = line.get_or_insert_with(|| self.line(shared, mode));
            if line.replies.send((Instant::now() + length, reply.to_vec())).is_err() {
                self.state.lock().unwrap().replies_mute = true;
            }
            return;
        }
        let passed = match mode {
            Mode::Dribble(length) => reply.iter().all(|byte| {
                let passed = self.to_client(shared, &[*byte]);
                shared.pause(mode, length);
                passed
            }),
            Mode::Babble(babble) => {
                self.babble(shared, mode, babble);
                false
            }
            _ => self.to_client(shared, reply),
        };
        // The server is still read to its end: `deliver` wants to know when that is.
        if !passed {
            self.state.lock().unwrap().replies_mute = true;
        }
    }

    /// Each reply arrives as long after it was sent as the mode says, however many are under way.
    fn line(self: &Arc<Self>, shared: &Arc<Shared>, mode: Mode) -> Line {
        let (replies, sent) = channel::<(Instant, Vec<u8>)>();
        let (ours, shared) = (Arc::clone(self), Arc::clone(shared));
        let thread = std::thread::spawn(move || {
            for (due, reply) in sent {
                shared.pause(mode, due.saturating_duration_since(Instant::now()));
                if !ours.to_client(&shared, &reply) {
                    return;
                }
            }
        });
        Line { mode, replies, thread }
    }

    /// Until nobody takes it any more.
    fn babble(&self, shared: &Shared, mode: Mode, Babble { first, then, pause }: Babble) {
        let at_once = if pause.is_zero() { 64 * 1024 / then.len() } else { 1 };
        let then = then.repeat(at_once);
        let mut passed = self.to_client(shared, first);
        while passed && !shared.ended.load(Ordering::SeqCst) {
            passed = self.to_client(shared, &then);
            if !pause.is_zero() {
                shared.pause(mode, pause);
            }
        }
    }

    fn to_server(&self, bytes: &[u8]) -> bool {
        self.server.as_ref().is_some_and(|mut server| server.write_all(bytes).is_ok())
    }

    fn to_client(&self, shared: &Shared, bytes: &[u8]) -> bool {
        // Counted first: who has read a reply may look at the count at once.
        shared.reply_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        (&self.client).write_all(bytes).is_ok()
    }

    fn finish_server(&self) {
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Write);
        }
    }
}

impl State {
    fn reply_mode(&self, fault: &Fault) -> Mode {
        if fault.only.is_empty() || self.matched { fault.mode } else { Mode::Pass }
    }
}
