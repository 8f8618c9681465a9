use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;

use super::super::super::dial::Greeting;
use super::super::super::dialect::Batch;
use super::super::super::frame::LONGEST;
use super::super::Carried;
use super::*;
use crate::config::Access;
use crate::store::{Outcome, Request};
use kit::eventually;

const LIMIT: Duration = Duration::from_secs(20);

/// A server that says which servers have the slots, whatever it is asked.
struct Fake {
    address: Address,
    answer: Arc<Mutex<String>>,
}

impl Fake {
    fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let answer = Arc::<Mutex<String>>::default();
        let fake = Fake { address, answer: Arc::clone(&answer) };
        std::thread::spawn(move || {
            for mut asked in listener.incoming().flatten() {
                // One small question each.
                let heard = asked.read(&mut [0; 1024]).unwrap_or(0);
                if heard > 0 {
                    let _ = asked.write_all(answer.lock().as_bytes());
                }
            }
        });
        fake
    }

    /// Slots, their master and its replica.
    fn tells(&self, ranges: &[(u16, u16, [&Fake; 2])]) {
        let mut answer = format!("*{}\r\n", ranges.len());
        for (first, last, nodes) in ranges {
            write!(answer, "*4\r\n:{first}\r\n:{last}\r\n").unwrap();
            for node in nodes {
                let Address::Tcp { host, port } = &node.address else { panic!("TCP") };
                let length = host.len();
                write!(answer, "*3\r\n${length}\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n").unwrap();
            }
        }
        *self.answer.lock() = answer;
    }
}

struct NoGives;

impl Gives for NoGives {
    fn pack<'a>(&self, _: &Request<'a>) -> Batch<'a> {
        Batch::default()
    }

    fn read(&self, _: &Request<'_>, carried: Carried) -> Outcome {
        panic!("nothing was given: {carried:?}")
    }
}

fn map(seeds: &[&Fake]) -> SlotMap {
    let access = Access::default();
    let dialer = Arc::new(Dialer::new(&access, Greeting::default(), &[]).unwrap());
    let seeds: Vec<_> = seeds.iter().map(|seed| seed.address.clone()).collect();
    let map = SlotMap::new(dialer, &seeds, Pools::new(1));
    map.tell(Arc::new(NoGives), Arc::default());
    map
}

fn freshen(map: &SlotMap) {
    map.freshen(Deadline::after(LIMIT)).unwrap();
}

fn owner(map: &SlotMap, slot: u16) -> Option<Address> {
    map.owner(slot).ok().map(|node| node.address.clone())
}

#[test]
fn a_server_that_goes_on_telling_what_was_true_before_is_not_the_only_one_that_is_asked() {
    let [old, new] = [(); 2].map(|()| Fake::start());
    old.tells(&[(0, SLOTS - 1, [&old, &new])]);
    new.tells(&[(0, SLOTS - 1, [&new, &old])]);
    let map = map(&[&old]);
    freshen(&map);
    assert_eq!(owner(&map, 7), Some(old.address.clone()));
    eventually(LIMIT, || {
        // It says each time that the Cluster is down.
        map.doubt();
        freshen(&map);
        owner(&map, 7).as_ref() == Some(&new.address)
    });
}

#[test]
fn a_slot_whose_server_was_not_known_yet_is_asked_for_again() {
    let fake = Fake::start();
    fake.tells(&[(0, 99, [&fake, &fake])]);
    let map = map(&[&fake]);
    freshen(&map);
    assert_eq!((owner(&map, 7), owner(&map, 500)), (Some(fake.address.clone()), None));
    fake.tells(&[(0, SLOTS - 1, [&fake, &fake])]);
    eventually(LIMIT, || {
        freshen(&map);
        owner(&map, 500).is_some()
    });
}

#[test]
fn a_server_that_has_heard_of_some_only_does_not_make_the_others_forgotten() {
    let [all, some, third] = [(); 3].map(|()| Fake::start());
    all.tells(&[(0, 99, [&all, &some]), (100, SLOTS - 1, [&third, &some])]);
    some.tells(&[(0, 49, [&some, &all])]);
    let map = map(&[&all]);
    freshen(&map);
    eventually(LIMIT, || {
        map.doubt();
        freshen(&map);
        owner(&map, 7).as_ref() == Some(&some.address)
    });
    assert_eq!(owner(&map, 77).as_ref(), Some(&all.address));
    assert_eq!(owner(&map, 500).as_ref(), Some(&third.address));
}

#[test]
fn who_has_told_comes_last_and_who_is_there_no_more_is_not_asked() {
    let [a, b, c, gone, new] = [1, 2, 3, 4, 5].map(|port| tcp("h", port));
    let order = VecDeque::from([a.clone(), b.clone(), c.clone(), gone]);
    let mut asking = Asking { order, asked: Moment::ZERO };
    asking.told(&a, [&c, &new, &b, &a].into_iter());
    assert_eq!(asking.order, [b.clone(), c.clone(), new, a.clone()]);
    // It need not know by which address it was asked.
    asking.told(&b, [&a, &c].into_iter());
    assert_eq!(asking.order, [c, a, b]);
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

#[test]
fn redirections_are_read_with_and_without_a_host() {
    let asked = tcp("db.example", 7000);
    let read = |code, details| elsewhere(code, details, &asked);
    let moved = |host, port| Some(Elsewhere::Moved(3999, tcp(host, port)));
    assert_eq!(read("MOVED", "3999 127.0.0.1:6381"), moved("127.0.0.1", 6381));
    assert_eq!(read("MOVED", "3999 ::1:6381"), moved("::1", 6381));
    assert_eq!(read("MOVED", "3999 :6381"), moved("db.example", 6381));
    assert_eq!(read("MOVED", "3999 ?:6381"), moved("db.example", 6381));
    let ask = Some(Elsewhere::Ask(tcp("h", 1)));
    assert_eq!(read("ASK", "3999 h:1"), ask);
    for (code, details) in
        [("MOVED", ""), ("MOVED", "x h:1"), ("ASK", "1 h"), ("ASK", "1 h:99999"), ("ERR", "1 h:1")]
    {
        assert_eq!(read(code, details), None, "{code} {details}");
    }
}

#[test]
fn the_map_is_read_whatever_else_stands_in_it() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
    let entry = |first, last, master| {
        let replica = node(text("other"), 9);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    };
    let asked = tcp("asked", 1);
    let told = Value::Array(vec![
        entry(0, 99, node(text("h"), 7)),
        entry(100, 200, node(text(""), 8)),
        entry(201, 16383, node(Value::Nil, 9)),
    ]);
    let both = |host, port| vec![tcp(host, port), tcp("other", 9)];
    let ranges =
        [(0, 99, both("h", 7)), (100, 200, both("asked", 8)), (201, 16383, both("asked", 9))];
    assert_eq!(read(&told, &asked).unwrap(), ranges);
    for nonsense in [Value::Okay, Value::Array(vec![Value::Nil]), entry(0, 1, Value::Nil)] {
        assert_eq!(read(&nonsense, &asked), None);
    }
    let far = Value::Array(vec![entry(0, 70_000, node(text("h"), 7))]);
    assert_eq!(read(&far, &asked), None);
}

/// 1,000 servers, half of them replicas, each master with three ranges of slots.
#[test]
fn the_map_of_a_large_cluster_is_no_reply_that_is_too_long() {
    let fake = Fake::start();
    let mut answer = "*1500\r\n".to_owned();
    for range in 0..1500 {
        write!(answer, "*4\r\n:{}\r\n:{}\r\n", range * 10, range * 10 + 9).unwrap();
        for role in ["master", "replica"] {
            let host = format!("{role}-{}.redis.eu-central-1.example.com", range % 500);
            let (length, id) = (host.len(), "0123456789".repeat(4));
            write!(answer, "*4\r\n$13\r\n192.168.100.1\r\n:6379\r\n$40\r\n{id}\r\n").unwrap();
            write!(answer, "*2\r\n$8\r\nhostname\r\n${length}\r\n{host}\r\n").unwrap();
        }
    }
    assert!(answer.len() < LONGEST / 2, "{}", answer.len());
    *fake.answer.lock() = answer;
    let ranges = map(&[&fake]).ask_one(&fake.address, Deadline::after(LIMIT)).unwrap();
    assert_eq!(ranges.len(), 1500);
}
