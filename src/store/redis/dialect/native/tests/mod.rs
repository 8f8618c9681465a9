//! The scripts on a real server.

mod give;
mod guard;
mod hand_over;
mod rights;
pub(crate) use rights::allowed;
mod take;
mod walk;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionLike, Value};

use super::{
    Dialect, EXTEND, Format, GIVE, GUARDED_GIVE, GUARDED_TAKE, NO_WAKEUP, Native, TAKE, Wakeup,
};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, StoreConfig};
use crate::error::Error;
use crate::store::net::pool::Pools;
use crate::store::redis::dial::Greeting;
use crate::store::redis::dialect::guard::Guard;
use crate::store::redis::dialect::{Batch, notice};
use crate::store::redis::route::Route;
use crate::store::redis::route::single::Single;
use crate::store::redis::route::{Carried, Gives, Parcel};
use crate::store::redis::way::Way;
use crate::store::{Lane, Notice, Outcome, Place, Reach, Reply, Request};
use crate::token::Token;
use kit::{Server, ServerBuilder};

pub(crate) const NAME: &[u8] = b"n";
pub(crate) const SIDE: &str = "leasehold:{n}";
pub(crate) const QUEUE: &str = "leasehold:queue:{n}";
/// Longer than any test; nothing here waits for it to pass.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// What is handed over must not end during a test either.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn token(number: u32) -> Token {
    format!("{number:032x}").parse().unwrap()
}

pub(crate) fn channel(number: u32) -> String {
    format!("leasehold:wake:{number:032x}")
}

fn native(claim_window: Duration, guard: Option<Guard>) -> Native {
    Native(Format { claim_window, guard, ..Format::default() })
}

/// A server, and how scripts are sent there. Clients are numbers: their token and channel.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) native: Native,
    route: Box<dyn Route>,
    greeting: Greeting,
    looker: RefCell<redis::Connection>,
}

impl World {
    pub(crate) fn new() -> World {
        World::on(Server::builder())
    }

    pub(crate) fn on(server: ServerBuilder) -> World {
        World::greeted(server, Greeting::default())
    }

    /// Where scripts are told which run of the server this is.
    pub(crate) fn asked() -> World {
        World::greeted(Server::builder(), Greeting { run_id: true, ..Greeting::default() })
    }

    fn greeted(server: ServerBuilder, greeting: Greeting) -> World {
        let server = server.start();
        for script in [&TAKE, &GIVE, &EXTEND] {
            server.cmd(&["SCRIPT", "LOAD", script.source]);
        }
        World::through(&server.url(), greeting, server)
    }

    pub(crate) fn through(url: &str, greeting: Greeting, server: Server) -> World {
        let looker = RefCell::new(server.connection());
        let native = native(WINDOW, None);
        World { native, route: route(url, greeting), greeting, looker, server }
    }

    /// What is said to a batch of one call.
    pub(crate) fn carry(&self, batch: &Batch<'_>) -> Value {
        let deadline = Deadline::after(PATIENCE);
        let parcel = Parcel { lane: Lane::Caller, batch, deadline };
        self.route.carry_all(&parcel).remove(0).unwrap().value
    }

    /// The server ends in some way and is started again; who asked it before has to connect again.
    pub(crate) fn restarted(self, how: impl FnOnce(&mut Server)) -> World {
        let World { mut server, native, greeting, .. } = self;
        how(&mut server);
        World { native, ..World::through(&server.url(), greeting, server) }
    }

    /// A reply and the server's time in it.
    pub(crate) fn try_ask(
        &self,
        request: Request<'_>,
        wakeup: Wakeup<'_>,
    ) -> Result<(Reply, u64), Error> {
        let batch = self.native.pack(&[request], &|_| wakeup.clone());
        self.read(&request, self.carry(&batch))
    }

    fn read(&self, request: &Request<'_>, value: Value) -> Result<(Reply, u64), Error> {
        let read = self.native.read(request, (value, None), Moment::now());
        read.map_err(|failure| failure.error)
    }

    pub(crate) fn initialize(&self, guard: Guard, force: bool) -> Result<(), Error> {
        guard.read_init(self.carry(&guard.pack_init([], Some(force)))).map(drop)
    }

    #[track_caller]
    pub(crate) fn ask(&self, request: Request<'_>, client: u32) -> Reply {
        self.try_ask(request, open(&channel(client))).unwrap().0
    }

    #[track_caller]
    pub(crate) fn try_take(&self, client: u32) -> Reply {
        self.ask(take(client, Place::Try, 1), client)
    }

    /// What follows, for 5 s, does not see the fences of another hundred seconds.
    pub(crate) fn stay_within_a_hundred_seconds(&self) {
        while self.time() % 100_000_000 > 95_000_000 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    #[track_caller]
    pub(crate) fn join(&self, client: u32, ticket: u64) -> Reply {
        self.ask(take(client, Place::Join(ticket), 1), client)
    }

    /// Joins and is told its ticket.
    #[track_caller]
    pub(crate) fn ticket(&self, client: u32) -> u64 {
        match self.join(client, 0) {
            Reply::Busy { ticket, .. } => ticket,
            reply => panic!("{reply:?}"),
        }
    }

    /// Several join, one after the other.
    #[track_caller]
    pub(crate) fn tickets(&self, clients: Range<u32>) -> Vec<u64> {
        clients.map(|client| self.ticket(client)).collect()
    }

    /// Puts waiters before all others that nobody hears.
    pub(crate) fn bury(&self, count: u64) {
        let mut add = redis::pipe();
        add.cmd("PING").ignore();
        for index in 0..count {
            add.zadd(QUEUE, format!("{index:032x} 1000 dead-{index}"), 1000 + index).ignore();
        }
        add.exec(&mut *self.looker.borrow_mut()).unwrap();
    }

    #[track_caller]
    pub(crate) fn give(&self, client: u32, fence: u64) -> Reply {
        self.ask(give(client, fence), client)
    }

    #[track_caller]
    pub(crate) fn claim(&self, client: u32, fence: u64) -> Reply {
        let (name, token, reach) = (NAME, token(client), Reach::Claim);
        self.ask(Request::Extend { name, token, fence, ttl: TTL, reach }, client)
    }

    #[track_caller]
    pub(crate) fn cmd(&self, words: &[&str]) -> Value {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let answer = command.query(&mut *self.looker.borrow_mut());
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The server's clock in microseconds.
    pub(crate) fn time(&self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::from_redis_value(self.cmd(&["TIME"])).unwrap();
        seconds * 1_000_000 + micros
    }

    pub(crate) fn text(&self, words: &[&str]) -> Option<String> {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    /// Whose the lock is.
    pub(crate) fn holder(&self) -> Option<u32> {
        let token = self.text(&["GET", "n"])?;
        Some(u32::from_str_radix(&token, 16).unwrap())
    }

    /// The clients in the queue, the first one first.
    pub(crate) fn queue(&self) -> Vec<u32> {
        let members: Vec<String> =
            redis::from_redis_value(self.cmd(&["ZRANGE", QUEUE, "0", "-1"])).unwrap();
        members.iter().map(|member| u32::from_str_radix(&member[..32], 16).unwrap()).collect()
    }

    /// The last fence reserved, whom the last grant was for, its first fence, and the flag.
    pub(crate) fn side(&self) -> Option<(u64, u32, u64, bool)> {
        let side = self.text(&["GET", SIDE])?;
        let words: Vec<&str> = side.split(' ').collect();
        let [queued, last, first, owner] = words[..] else { panic!("{side}") };
        let owner = u32::from_str_radix(owner, 16).unwrap();
        Some((last.parse().unwrap(), owner, first.parse().unwrap(), queued == "1"))
    }

    /// How a client stands in the queue.
    pub(crate) fn member(client: u32) -> String {
        format!("{} {} {}", token(client), WINDOW.as_millis(), channel(client))
    }

    pub(crate) fn listen(&self, client: u32) -> Listener {
        Listener::new(&self.server, &channel(client))
    }

    /// Ends the ttl of the lock.
    pub(crate) fn expire(&self) {
        assert_eq!(self.number(&["DEL", "n"]), 1);
    }

    /// How many commands scripts and clients have called so far.
    pub(crate) fn commands(&self) -> BTreeMap<String, u64> {
        let stats = self.server.info("commandstats");
        let calls = stats.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        calls.filter(|(name, _): &(String, u64)| name != "info").collect()
    }

    /// How many commands a script calls in an action that is one request.
    pub(crate) fn calls_in(&self, action: impl FnOnce()) -> u64 {
        let before: u64 = self.commands().values().sum();
        action();
        self.commands().values().sum::<u64>() - before - 1
    }

    #[track_caller]
    pub(crate) fn assert_everything_ends(&self) {
        let keys: Vec<String> = redis::from_redis_value(self.cmd(&["KEYS", "*"])).unwrap();
        for key in keys {
            assert!(self.number(&["PTTL", &key]) > 0, "{key} has a ttl");
        }
    }
}

pub(crate) fn route(url: &str, greeting: Greeting) -> Box<dyn Route> {
    let StoreConfig::Redis(config) = Config::from_url(url).unwrap().store else { panic!("{url}") };
    let owed = (Arc::new(Nobody) as Arc<dyn Gives>, Arc::default());
    let pools = Pools::new(2);
    let Way::One(target) = Way::new(&config, greeting, &pools).unwrap() else { panic!("{url}") };
    Box::new(Single::new(target, &pools, owed, None).unwrap())
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

pub(crate) fn open(channel: &str) -> Wakeup<'_> {
    Wakeup { channel: channel.as_bytes().into(), is_open: true }
}

pub(crate) fn take(client: u32, place: Place, block: u32) -> Request<'static> {
    Request::Take { name: NAME, token: token(client), ttl: TTL, place, block }
}

pub(crate) fn give(client: u32, fence: u64) -> Request<'static> {
    Request::Give { name: NAME, token: token(client), fence, ttl: TTL }
}

#[track_caller]
pub(crate) fn granted(reply: Reply) -> (u64, u32) {
    match reply {
        Reply::Granted { fence, block } => (fence, block),
        reply => panic!("{reply:?}"),
    }
}

/// A subscriber.
pub(crate) struct Listener {
    connection: redis::Connection,
    channel: String,
    marker: redis::Connection,
}

impl Listener {
    pub(crate) fn new(server: &Server, channel: &str) -> Listener {
        let mut connection = server.connection();
        let subscribe = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        connection.req_packed_command(&subscribe).unwrap();
        Listener { connection, channel: channel.to_owned(), marker: server.connection() }
    }

    /// Returns when the server knows that nobody listens any more.
    pub(crate) fn close(mut self) {
        let unsubscribe = redis::cmd("UNSUBSCRIBE").arg(&self.channel).get_packed_command();
        self.connection.req_packed_command(&unsubscribe).unwrap();
    }

    /// Everything that was said since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Notice> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg("end").exec(&mut self.marker).unwrap();
        let native = native(WINDOW, None);
        let mut heard = Vec::new();
        loop {
            let message = self.connection.recv_response().unwrap();
            let words: Vec<Vec<u8>> = redis::from_redis_value(message).unwrap();
            match &words[2][..] {
                b"end" => return heard,
                // To see whether anybody hears.
                b"" => {}
                payload => heard.push(notice::read(payload, &native.0.prefix).expect("a notice")),
            }
        }
    }

    /// The one grant that was said, and its fence.
    #[track_caller]
    pub(crate) fn heard_grant(&mut self) -> (u64, Duration) {
        match &self.heard()[..] {
            [Notice::Granted { fence, span, .. }] => (*fence, *span),
            heard => panic!("{heard:?}"),
        }
    }

    /// It was said once that the lock is free, and nothing else.
    #[track_caller]
    pub(crate) fn heard_free(&mut self) {
        let heard = self.heard();
        assert!(matches!(heard[..], [Notice::Free { .. }]), "{heard:?}");
    }
}
