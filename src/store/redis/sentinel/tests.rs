//! What a Sentinel may say besides the usual: played by a thread, for real servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::sentinels::SETTLED;
use super::*;
use crate::Client;
use crate::config::Config;
use crate::store::outbox::Outbox;
use crate::store::redis::RedisStore;
use crate::store::{Identity, Lane, Outcome, Owed, Place, Reply, Request, Store};
use crate::token::Token;
use kit::{STALL, Server, eventually, unless_starved};

const LIMIT: Duration = Duration::from_secs(20);

/// Says whatever it is told to say.
#[derive(Clone)]
struct Fake {
    port: u16,
    said: Arc<Mutex<Said>>,
    /// How often it was asked.
    asked: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Said {
    master: u16,
    epoch: u64,
    may_listen: bool,
    /// Hangs up when it is asked.
    is_ill: bool,
    /// Answers nothing else to whatever it is asked.
    always: Option<&'static str>,
    listeners: Vec<TcpStream>,
}

impl Fake {
    fn start(master: &Server, epoch: u64) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let said = Said { master: master.port(), epoch, may_listen: true, ..Said::default() };
        let fake = Fake {
            port: listener.local_addr().unwrap().port(),
            said: Arc::new(Mutex::new(said)),
            asked: Arc::default(),
        };
        let speaker = fake.clone();
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|one| speaker.serve(one));
        });
        fake
    }

    /// One write with all questions, as everything here asks.
    fn serve(&self, mut stream: TcpStream) {
        let mut question = Vec::new();
        while !question.ends_with(b"+switch-master\r\n") {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes) {
                Ok(count) if count > 0 => question.extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
        let mut said = self.said.lock();
        if said.is_ill {
            return;
        }
        if let Some(always) = said.always {
            stream.write_all(always.repeat(3).as_bytes()).unwrap();
            return;
        }
        let port = said.master.to_string();
        let epoch = said.epoch.to_string();
        let listens = match said.may_listen {
            true => "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n",
            false => "-NOPERM this user may not\r\n",
        };
        let answer = format!(
            "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n\
             *4\r\n$4\r\nname\r\n$1\r\nm\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n{listens}",
            port.len(),
            epoch.len()
        );
        self.asked.fetch_add(1, Ordering::Relaxed);
        stream.write_all(answer.as_bytes()).unwrap();
        said.listeners.push(stream);
    }

    fn says(&self, master: &Server, epoch: u64) {
        let mut said = self.said.lock();
        (said.master, said.epoch) = (master.port(), epoch);
    }

    fn is_ill(&self) {
        self.said.lock().is_ill = true;
    }

    /// Tells everybody who listens.
    fn announces(&self, old: &Server, new: &Server, epoch: u64) {
        self.says(new, epoch);
        let (old, new) = (old.port(), new.port());
        let news = format!("m 127.0.0.1 {old} 127.0.0.1 {new}");
        let message = format!(
            "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{news}\r\n",
            news.len()
        );
        let mut said = self.said.lock();
        said.listeners.iter_mut().for_each(|one| one.write_all(message.as_bytes()).unwrap());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// One whose replicas get what they ask for at once.
fn server() -> Server {
    Server::builder().arg("--repl-diskless-sync-delay", "0").start()
}

fn url(fakes: &[&Fake]) -> String {
    let hosts: Vec<_> = fakes.iter().map(|fake| format!("127.0.0.1:{}", fake.port)).collect();
    format!("redis+sentinel://{}/m?io_timeout=10s", hosts.join(","))
}

fn config(fakes: &[&Fake]) -> (Config, crate::config::RedisConfig) {
    let config = Config::from_url(&url(fakes)).unwrap();
    let crate::config::StoreConfig::Redis(redis) = &config.store else { panic!("a Redis") };
    let redis: &crate::config::RedisConfig = redis;
    (config.clone(), redis.clone())
}

fn store(fakes: &[&Fake]) -> RedisStore {
    store_with(fakes, &Arc::default())
}

fn store_with(fakes: &[&Fake], outbox: &Arc<Outbox>) -> RedisStore {
    let (config, redis) = config(fakes);
    RedisStore::new(&redis, &config, outbox).unwrap()
}

fn watched(fakes: &[&Fake]) -> WatchedMaster {
    let (_, redis) = config(fakes);
    let crate::config::Servers::Sentinel(sentinels) = &redis.servers else { panic!("Sentinels") };
    WatchedMaster::new(sentinels, &redis.access, Greeting::default()).unwrap()
}

fn dial(master: &WatchedMaster) -> Wire {
    master.dial(Deadline::after(LIMIT), &|_| Ok(())).unwrap()
}

fn token(last: char) -> Token {
    format!("0011223344556677001122334455667{last}").parse().unwrap()
}

fn take(store: &RedisStore, token: Token) -> Outcome {
    let ttl = Duration::from_secs(30);
    let take = Request::Take { name: b"n", token, ttl, place: Place::Try, block: 1 };
    store.ask(Lane::Caller, take, Deadline::after(LIMIT))
}

fn fence(outcome: &Outcome) -> u64 {
    match outcome {
        Ok(answer) => match answer.reply {
            Reply::Granted { fence, .. } => fence,
            reply => panic!("{reply:?}"),
        },
        Err(failure) => panic!("{}", failure.error),
    }
}

/// As a Sentinel makes it, but for the connections, which live on.
fn demote(old: &Server, new: &Server) {
    let port = new.port().to_string();
    let mut connection = old.connection();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port).exec(&mut connection).unwrap();
    eventually(LIMIT, || old.info("replication").contains("master_link_status:up"));
}

#[test]
fn while_nothing_is_in_doubt_no_sentinel_is_asked() {
    let server = server();
    let fake = Fake::start(&server, 1);
    let master = watched(&[&fake]);
    let wires: Vec<_> = (0..5).map(|_| dial(&master)).collect();
    assert_eq!(fake.asked(), 1);
    assert!(wires.iter().all(|wire| master.is_trusted(wire) && wire.server == wires[0].server));
    master.doubt(&wires[0]);
    assert!(!master.is_trusted(&wires[1]) && master.is_current(&wires[1]));
    let confirmed = dial(&master);
    assert_eq!((fake.asked(), confirmed.server), (2, wires[0].server));
    assert!(master.is_trusted(&wires[1]), "it leads where a new one does");
}

#[test]
fn news_of_another_master_is_heard_without_asking() {
    let [old, new] = [(); 2].map(|()| server());
    let fake = Fake::start(&old, 1);
    let master = watched(&[&fake]);
    let before = dial(&master);
    fake.announces(&old, &new, 2);
    eventually(LIMIT, || !master.is_current(&before));
    let after = dial(&master);
    assert_ne!(after.server, before.server);
    assert!(master.is_trusted(&after) && !master.is_trusted(&before));
    // Doubts about the old one are none about the new one.
    master.doubt(&before);
    assert!(master.is_trusted(&after));
    assert_eq!(fake.asked(), 1);
}

#[test]
fn a_take_that_met_a_demoted_master_is_made_at_the_new_one() {
    let [old, new] = [(); 2].map(|()| server());
    let fake = Fake::start(&old, 1);
    let store = store(&[&fake]);
    let first = fence(&take(&store, token('a')));
    demote(&old, &new);
    fake.says(&new, 2);
    let second = fence(&take(&store, token('b')));
    assert!(second > first);
    assert_eq!(fake.asked(), 2);
    assert_eq!(new.cmd(&["EXISTS", "n"]), redis::Value::Int(1));
}

#[test]
fn a_give_that_nobody_waits_for_follows_the_master_too() {
    let [old, new] = [(); 2].map(|()| server());
    let fake = Fake::start(&new, 1);
    let outbox = Arc::default();
    let store = store_with(&[&fake], &outbox);
    let (mine, ttl) = (token('a'), Duration::from_secs(30));
    let fence_of_mine = fence(&take(&store, mine));
    // The lock is on both, as after a failover; and the connection is to the one that steps down.
    demote(&old, &new);
    eventually(LIMIT, || old.cmd(&["EXISTS", "n"]) == redis::Value::Int(1));
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut old.connection()).unwrap();
    let port = old.port().to_string();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port).exec(&mut new.connection()).unwrap();
    fake.says(&old, 2);
    let identity = Identity { name: Arc::from(&b"n"[..]), token: mine, fence: fence_of_mine, ttl };
    let owed = Owed { identity, until: Moment::now().plus(ttl) };
    assert!(
        store.let_go(&owed, Lane::Give(Deadline::after(LIMIT)), Deadline::after(LIMIT)).is_none()
    );
    // The next request for the name comes behind it, at the new master.
    assert!(fence(&take(&store, token('b'))) > fence_of_mine);
    assert!(outbox.is_empty(), "it was given");
}

/// The caller who reads that it was not done sends it again, for as long as it has time; the
/// keeper, which sees nothing of it meanwhile, is to hear what became of it.
#[test]
fn a_give_that_a_caller_could_not_send_again_is_given_by_the_keeper() {
    let [mine, master] = [(); 2].map(|()| server());
    let fake = Fake::start(&mine, 1);
    let (config, _) = config(&[&fake]);
    let io_timeout = Duration::from_millis(500);
    let client = Client::with_config(config.io_timeout(io_timeout)).unwrap();
    let lease = client.lock("n").ttl(2 * LIMIT).acquire().unwrap();
    // The lock is on both, as after a failover, and the Sentinels do not answer yet.
    demote(&master, &mine);
    eventually(LIMIT, || master.cmd(&["EXISTS", "n"]) == redis::Value::Int(1));
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut master.connection()).unwrap();
    fake.is_ill();
    demote(&mine, &master);
    drop(lease);
    assert!(!matches!(client.lock("n").try_acquire(), Ok(Some(_))));
    fake.says(&master, 2);
    fake.said.lock().is_ill = false;
    eventually(LIMIT, || master.cmd(&["EXISTS", "n"]) == redis::Value::Int(0));
}

#[test]
fn a_server_that_stays_read_only_is_unavailable() {
    unless_starved(STALL, || {
        let [old, new] = [(); 2].map(|()| server());
        let fake = Fake::start(&old, 1);
        let store = store(&[&fake]);
        fence(&take(&store, token('a')));
        demote(&old, &new);
        let ttl = Duration::from_secs(1);
        let take =
            Request::Take { name: b"m", token: token('b'), ttl, place: Place::Try, block: 1 };
        let deadline = Deadline::after(Duration::from_secs(1));
        let failure = store.ask(Lane::Caller, take, deadline).unwrap_err();
        assert_eq!(failure.error.kind(), ErrorKind::Unavailable, "{}", failure.error);
        assert_eq!(failure.sent, None);
        assert!(fake.asked() > 2, "it is looked for until then");
    });
}

#[test]
fn a_sentinel_that_missed_a_failover_is_not_believed_unless_all_say_so() {
    let [old, new] = [(); 2].map(|()| server());
    let fakes = [(); 3].map(|()| Fake::start(&new, 7));
    let master = watched(&[&fakes[0], &fakes[1], &fakes[2]]);
    let wire = dial(&master);
    fakes[0].says(&old, 6);
    master.doubt(&wire);
    let same = dial(&master);
    assert_eq!(same.server, wire.server, "the next one knows better");
    // They were set up anew.
    fakes.iter().for_each(|fake| fake.says(&old, 0));
    master.doubt(&wire);
    assert_ne!(dial(&master).server, wire.server);
}

/// One of their hosts is gone for good, and the master that they had before as well.
#[test]
fn sentinels_that_were_set_up_anew_are_believed_in_a_while_without_one_of_them() {
    unless_starved(STALL, || {
        let (mut before, after) = (server(), server());
        let fakes = [(); 3].map(|()| Fake::start(&before, 5));
        let master = watched(&[&fakes[0], &fakes[1], &fakes[2]]);
        let wire = dial(&master);
        before.kill();
        fakes[0].is_ill();
        fakes.iter().skip(1).for_each(|fake| fake.says(&after, 0));
        master.doubt(&wire);
        let soon = || master.dial(Deadline::after(Duration::from_millis(300)), &|_| Ok(()));
        assert_eq!(soon().err().map(|error| error.kind()), Some(ErrorKind::Refused));
        let long_ago = Moment::now().minus(SETTLED);
        master.sentinels.enter_now().unwrap().majority.as_mut().unwrap().1 = long_ago;
        assert_ne!(dial(&master).server, wire.server);
    });
}

#[test]
fn a_master_that_was_told_of_is_not_left_for_the_one_before() {
    let [old, new] = [(); 2].map(|()| server());
    let fakes = [(); 2].map(|()| Fake::start(&old, 7));
    let master = watched(&[&fakes[0], &fakes[1]]);
    let before = dial(&master);
    fakes[0].announces(&old, &new, 8);
    eventually(LIMIT, || !master.is_current(&before));
    let after = dial(&master);
    // The one that knows is gone, and the other one has not heard of it yet.
    fakes[0].is_ill();
    master.doubt(&after);
    assert_eq!(dial(&master).server, after.server);
}

/// Asked in the midst of a failover, a Sentinel names the new master before it announces it.
#[test]
fn a_failover_that_is_told_of_twice_keeps_no_sentinel_from_being_believed() {
    let [old, new] = [(); 2].map(|()| server());
    let fakes = [(); 2].map(|()| Fake::start(&new, 8));
    let master = watched(&[&fakes[0], &fakes[1]]);
    let wire = dial(&master);
    fakes[0].announces(&old, &new, 8);
    // Behind it, and so heard after it.
    fakes[0].said.lock().listeners.clear();
    fakes[0].is_ill();
    eventually(LIMIT, || {
        master.keep_watch(Moment::now().plus(LIMIT));
        fakes[1].asked() == 1
    });
    fakes[1].announces(&new, &old, 9);
    eventually(LIMIT, || !master.is_current(&wire));
}

#[test]
fn who_may_not_listen_to_a_sentinel_asks_again_while_it_waits() {
    let [old, new] = [(); 2].map(|()| server());
    let fake = Fake::start(&old, 1);
    fake.said.lock().may_listen = false;
    let master = watched(&[&fake]);
    let wire = dial(&master);
    fake.says(&new, 2);
    assert!(master.is_current(&wire));
    eventually(LIMIT, || {
        let due = master.keep_watch(Moment::now().plus(LIMIT));
        assert!(due <= Moment::now().plus(NEWS_EVERY));
        !master.is_current(&wire)
    });
}

#[test]
fn a_sentinel_that_died_is_replaced_by_one_that_tells() {
    let [old, new] = [(); 2].map(|()| server());
    let fakes = [(); 2].map(|()| Fake::start(&old, 1));
    let master = watched(&[&fakes[0], &fakes[1]]);
    let wire = dial(&master);
    fakes[0].said.lock().listeners.clear();
    eventually(LIMIT, || {
        master.keep_watch(Moment::now().plus(LIMIT));
        fakes[0].asked() + fakes[1].asked() == 2
    });
    fakes.iter().for_each(|fake| fake.announces(&old, &new, 2));
    eventually(LIMIT, || !master.is_current(&wire));
    assert_eq!(fakes[0].asked() + fakes[1].asked(), 2);
}

/// It may have been wrong all the time, unnoticed while the others answered.
#[test]
fn a_master_is_used_on_whatever_is_wrong_with_the_only_sentinel_that_answers() {
    let server = server();
    let fakes = [(); 3].map(|()| Fake::start(&server, 1));
    let master = watched(&[&fakes[0], &fakes[1], &fakes[2]]);
    let wire = dial(&master);
    let wrongs =
        ["-NOAUTH Authentication required.\r\n", "-NOPERM no\r\n", "*-1\r\n", "nonsense\r\n"];
    fakes.iter().for_each(Fake::is_ill);
    for wrong in wrongs {
        let mut said = fakes[2].said.lock();
        (said.is_ill, said.always) = (false, Some(wrong));
        drop(said);
        master.doubt(&wire);
        assert_eq!(dial(&master).server, wire.server, "{wrong}");
        assert!(master.is_trusted(&wire), "it said itself that it is a master");
    }
}

#[test]
fn a_master_is_used_on_while_no_sentinel_answers() {
    let server = server();
    let fake = Fake::start(&server, 1);
    let master = watched(&[&fake]);
    let wire = dial(&master);
    fake.is_ill();
    master.doubt(&wire);
    assert_eq!(dial(&master).server, wire.server);
    assert!(master.is_trusted(&wire), "it said itself that it is a master");
}
