//! A server on which scripts are tried, of whichever dialect. Clients are numbers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionLike, Value};

pub(in crate::store) use super::NO_WAKEUP;
pub(in crate::store) use super::guard::Guard;
use super::{Batch, Dialect, Format, Script, Wakeup, keys, look, notice};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, StoreConfig};
use crate::error::Error;
use crate::store::net::pool::Pools;
use crate::store::redis::dial::Greeting;
use crate::store::redis::route::single::Single;
use crate::store::redis::route::{Carried, Gives, Parcel, Route};
use crate::store::redis::topology::Topology;
use crate::store::{Lane, Notice, Outcome, Request, Seen};
use crate::token::Token;
use kit::Server;

pub(in crate::store) const NAME: &[u8] = b"n";
pub(in crate::store) const SIDE: &str = "leasehold:{n}";
pub(in crate::store) const QUEUE: &str = "leasehold:queue:{n}";
pub(in crate::store) const MARKER: &str = keys::MARKER;
/// Longer than any test; nothing here waits for it to pass.
pub(in crate::store) const TTL: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(60);

pub(in crate::store) fn token(number: u32) -> Token {
    format!("{number:032x}").parse().unwrap()
}

pub(in crate::store) fn channel(number: u32) -> String {
    format!("leasehold:wake:{number:032x}")
}

pub(in crate::store) fn open(channel: &str) -> Wakeup<'_> {
    Wakeup { channel: channel.as_bytes().into(), is_open: true }
}

/// The marker of the name's slot.
pub(in crate::store) fn marker_in_cluster() -> Vec<u8> {
    let mut marker = Vec::new();
    keys::write_marker(&mut marker, Some(keys::slot(NAME)));
    marker
}

impl Format {
    pub(in crate::store) fn guarded(guard: Guard) -> Format {
        Format { guard: Some(guard), ..Format::default() }
    }
}

/// A server, and how scripts are sent there.
pub(in crate::store) struct World<D> {
    pub(in crate::store) server: Server,
    pub(in crate::store) dialect: D,
    route: Box<dyn Route>,
    greeting: Greeting,
    looker: RefCell<redis::Connection>,
}

impl<D: Dialect> World<D> {
    pub(in crate::store) fn plain(dialect: D) -> World<D> {
        let server = Server::start();
        World::through(&server.url(), Greeting::default(), server, dialect)
    }

    /// Where scripts are told which run of the server this is.
    pub(in crate::store) fn asked(dialect: D) -> World<D> {
        let (server, greeting) =
            (Server::start(), Greeting { run_id: true, ..Greeting::default() });
        World::through(&server.url(), greeting, server, dialect)
    }

    fn through(url: &str, greeting: Greeting, server: Server, dialect: D) -> World<D> {
        let looker = RefCell::new(server.connection());
        World { dialect, route: route(url, greeting), greeting, looker, server }
    }

    /// Another client of the same server, who may do just this.
    pub(in crate::store) fn allowed(&self, rights: &[&str], dialect: D) -> World<D> {
        self.cmd(&[&["ACL", "SETUSER", "clerk", "reset", "on", ">pw"], rights].concat());
        let url = format!("redis://clerk:pw@127.0.0.1:{}", self.server.port());
        // What it looks at is another server, which it has no use for.
        World::through(&url, self.greeting, Server::start(), dialect)
    }

    /// The server ends in some way and is started again; who asked it before has to connect again.
    pub(in crate::store) fn restarted(self, how: impl FnOnce(&mut Server)) -> World<D> {
        let World { mut server, dialect, greeting, .. } = self;
        how(&mut server);
        World::through(&server.url(), greeting, server, dialect)
    }

    pub(in crate::store) fn with(self, dialect: D) -> World<D> {
        World { dialect, ..self }
    }

    pub(in crate::store) fn load(&self, scripts: &[&Script]) {
        for script in scripts {
            self.server.cmd(&["SCRIPT", "LOAD", script.source]);
        }
    }

    /// What is said to a batch of one call.
    pub(in crate::store) fn carry(&self, batch: &Batch<'_>) -> Value {
        let deadline = Deadline::after(PATIENCE);
        let parcel = Parcel { lane: Lane::Caller, batch, deadline };
        self.route.carry_all(&parcel).remove(0).unwrap().value
    }

    /// A reply and the server's time in it.
    pub(in crate::store) fn try_ask(
        &self,
        request: D::Request<'_>,
        wakeup: Wakeup<'_>,
    ) -> Result<(D::Reply, u64), Error> {
        let request = [request];
        let batch = self.dialect.pack(&request, &|_| wakeup.clone());
        let read = self.dialect.read(&request[0], (self.carry(&batch), None), Moment::now());
        read.map_err(|failure| failure.error)
    }

    #[track_caller]
    pub(in crate::store) fn ask(&self, request: D::Request<'_>, client: u32) -> D::Reply {
        self.try_ask(request, open(&channel(client))).unwrap().0
    }

    pub(in crate::store) fn initialize(&self, guard: Guard, force: bool) -> Result<(), Error> {
        guard.read_init(self.carry(&guard.pack_init([keys::slot(NAME)], Some(force)))).map(drop)
    }

    /// What follows, for 5 s, does not see the fences of another hundred seconds.
    pub(in crate::store) fn stay_within_a_hundred_seconds(&self) {
        while self.time() % 100_000_000 > 95_000_000 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Puts waiters before all others that nobody hears.
    pub(in crate::store) fn bury(&self, count: u64) {
        let mut add = redis::pipe();
        add.cmd("PING").ignore();
        for index in 0..count {
            add.zadd(QUEUE, format!("{index:032x} 1000 dead-{index}"), 1000 + index).ignore();
        }
        add.exec(&mut *self.looker.borrow_mut()).unwrap();
    }

    /// What a waiter sees of the lock.
    pub(in crate::store) fn look(&self) -> Seen {
        look::read(self.carry(&self.dialect.format().pack_look(NAME)), D::FENCE).unwrap()
    }

    #[track_caller]
    pub(in crate::store) fn cmd(&self, words: &[&str]) -> Value {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let answer = command.query(&mut *self.looker.borrow_mut());
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The server's clock in microseconds.
    pub(in crate::store) fn time(&self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::from_redis_value(self.cmd(&["TIME"])).unwrap();
        seconds * 1_000_000 + micros
    }

    pub(in crate::store) fn text(&self, words: &[&str]) -> Option<String> {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    pub(in crate::store) fn number(&self, words: &[&str]) -> i64 {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    /// Whose the lock is.
    pub(in crate::store) fn holder(&self) -> Option<u32> {
        let token = self.text(&["GET", "n"])?;
        Some(u32::from_str_radix(&token, 16).unwrap())
    }

    /// The clients in the queue, the first one first.
    pub(in crate::store) fn queue(&self) -> Vec<u32> {
        let members: Vec<String> =
            redis::from_redis_value(self.cmd(&["ZRANGE", QUEUE, "0", "-1"])).unwrap();
        members.iter().map(|member| u32::from_str_radix(&member[..32], 16).unwrap()).collect()
    }

    /// The words of the side key: whether somebody may wait, two numbers, and whose they are.
    pub(in crate::store) fn side_words(&self) -> Option<(bool, u64, u64, u32)> {
        let side = self.text(&["GET", SIDE])?;
        let words: Vec<&str> = side.split(' ').collect();
        let [queued, last, second, owner] = words[..] else { panic!("{side}") };
        let owner = u32::from_str_radix(owner, 16).unwrap();
        Some((queued == "1", last.parse().unwrap(), second.parse().unwrap(), owner))
    }

    pub(in crate::store) fn listen(&self, client: u32) -> Listener {
        Listener::new(&self.server, &channel(client))
    }

    /// Ends the ttl of the lock.
    pub(in crate::store) fn expire(&self) {
        assert_eq!(self.number(&["DEL", "n"]), 1);
    }

    /// How many commands scripts and clients have called so far.
    pub(in crate::store) fn commands(&self) -> BTreeMap<String, u64> {
        let stats = self.server.info("commandstats");
        let calls = stats.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        calls.filter(|(name, _): &(String, u64)| name != "info").collect()
    }

    /// How many commands a script calls in an action that is one request.
    pub(in crate::store) fn calls_in(&self, action: impl FnOnce()) -> u64 {
        let before: u64 = self.commands().values().sum();
        action();
        self.commands().values().sum::<u64>() - before - 1
    }

    #[track_caller]
    pub(in crate::store) fn assert_everything_ends(&self) {
        let keys: Vec<String> = redis::from_redis_value(self.cmd(&["KEYS", "*"])).unwrap();
        for key in keys {
            assert!(self.number(&["PTTL", &key]) > 0, "{key} has a ttl");
        }
    }
}

fn route(url: &str, greeting: Greeting) -> Box<dyn Route> {
    let StoreConfig::Redis(config) = Config::from_url(url).unwrap().store else { panic!("{url}") };
    let owed = (Arc::new(Nobody) as Arc<dyn Gives>, Arc::default());
    let pools = Pools::new(2);
    let Topology::OneMaster(source) = Topology::new(&config, greeting, &pools).unwrap() else {
        panic!("{url}")
    };
    Box::new(Single::new(source, &pools, owed, None).unwrap())
}

/// Nothing is let go of here.
struct Nobody;

impl Gives for Nobody {
    fn pack<'a>(&self, _: &Request<'a>) -> Batch<'a> {
        unreachable!()
    }

    fn read(&self, _: &Request<'_>, _: Carried) -> Outcome {
        unreachable!()
    }
}

/// A subscriber.
pub(in crate::store) struct Listener {
    connection: redis::Connection,
    channel: String,
    marker: redis::Connection,
}

impl Listener {
    pub(in crate::store) fn new(server: &Server, channel: &str) -> Listener {
        let mut connection = server.connection();
        let subscribe = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        connection.req_packed_command(&subscribe).unwrap();
        Listener { connection, channel: channel.to_owned(), marker: server.connection() }
    }

    /// Returns when the server knows that nobody listens any more.
    pub(in crate::store) fn close(mut self) {
        let unsubscribe = redis::cmd("UNSUBSCRIBE").arg(&self.channel).get_packed_command();
        self.connection.req_packed_command(&unsubscribe).unwrap();
    }

    /// Everything that was said since the last call.
    pub(in crate::store) fn heard(&mut self) -> Vec<Notice> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg("end").exec(&mut self.marker).unwrap();
        let mut heard = Vec::new();
        loop {
            let message = self.connection.recv_response().unwrap();
            let words: Vec<Vec<u8>> = redis::from_redis_value(message).unwrap();
            match &words[2][..] {
                b"end" => return heard,
                // To see whether anybody hears.
                b"" => {}
                payload => heard.push(notice::read(payload, b"").expect("a notice")),
            }
        }
    }

    /// The one grant that was said, and its fence.
    #[track_caller]
    pub(in crate::store) fn heard_grant(&mut self) -> (u64, Duration) {
        match &self.heard()[..] {
            [Notice::Granted { fence, span, .. }] => (*fence, *span),
            heard => panic!("{heard:?}"),
        }
    }

    /// It was said once that the lock is free, and nothing else.
    #[track_caller]
    pub(in crate::store) fn heard_free(&mut self) {
        let heard = self.heard();
        assert!(matches!(heard[..], [Notice::Free { .. }]), "{heard:?}");
    }
}
