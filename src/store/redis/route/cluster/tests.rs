//! Several servers of a Cluster, and replies that belong to the right calls.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::config::{Access, Address};
use crate::store::net::pool::Pools;
use crate::store::redis::dial::{Dialer, Greeting};
use crate::store::redis::dialect::native::Native;
use crate::store::redis::dialect::{Batch, Dialect, Format, NO_WAKEUP};
use crate::store::{Lane, Outcome, Reach, Request};
use crate::token::Token;

/// Nobody lets go of anything here.
struct NoGives;

impl Gives for NoGives {
    fn pack<'a>(&self, _: &Request<'a>) -> Batch<'a> {
        Batch::default()
    }

    fn read(&self, _: &Request<'_>, _: Carried) -> Outcome {
        panic!()
    }
}

/// Plays a server: what it says to each request that comes in one piece.
fn serve(listener: TcpListener, say: impl Fn(&str) -> String + Send + Sync + 'static) {
    let say = Arc::new(say);
    std::thread::spawn(move || {
        for mut one in listener.incoming().flatten() {
            let say = Arc::clone(&say);
            std::thread::spawn(move || {
                let mut buffer = [0; 65536];
                while let Ok(n @ 1..) = one.read(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    one.write_all(say(&text).as_bytes()).unwrap();
                }
            });
        }
    });
}

/// From the second round on calls are not in the order of the batch by themselves.
#[test]
fn replies_stay_with_their_calls_when_all_are_sent_on() {
    let all: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = all.iter().map(|l| l.local_addr().unwrap().port()).collect();
    let name = |low: bool| {
        (0..).map(|n| format!("n{n}")).find(|n| (slot(n.as_bytes()) < 8192) == low).unwrap()
    };
    let (held, gone) = (name(false), name(true));
    let node = |p: u16| format!("*3\r\n$9\r\n127.0.0.1\r\n:{p}\r\n$2\r\nid\r\n");
    let map_text = format!(
        "*2\r\n*3\r\n:0\r\n:8191\r\n{}*3\r\n:8192\r\n:16383\r\n{}",
        node(ports[0]),
        node(ports[1])
    );
    let third = ports[2];
    let mut all = all.into_iter();
    for which in [&gone, &held] {
        let (map_text, at) = (map_text.clone(), slot(which.as_bytes()));
        serve(all.next().unwrap(), move |text| {
            if text.contains("SLOTS") {
                map_text.clone()
            } else {
                format!("-MOVED {at} 127.0.0.1:{third}\r\n")
            }
        });
    }
    let is_held = format!("\r\n{held}\r\n");
    serve(all.next().unwrap(), move |text| {
        text.split("EVALSHA")
            .skip(1)
            .map(|call| if call.contains(&is_held) { ":1\r\n" } else { ":0\r\n" })
            .collect()
    });
    let access = Access::default();
    let dialer = Arc::new(Dialer::new(&access, Greeting::default(), &[]).unwrap());
    let seed = Address::Tcp { host: "127.0.0.1".into(), port: ports[0] };
    let map = Arc::new(SlotMap::new(dialer, &[seed], Pools::new(2)));
    let cluster = Cluster::new(map, Arc::new(NoGives), Arc::default());
    let token: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let extend = |name| Request::Extend {
        name,
        token,
        fence: 7,
        ttl: Duration::from_secs(9),
        reach: Reach::Grow,
    };
    let requests = [extend(held.as_bytes()), extend(gone.as_bytes())];
    let batch = Native(Format::default()).pack(&requests, &|_| NO_WAKEUP);
    for _ in 0..2 {
        let (lane, deadline) = (Lane::Keeper, Deadline::after(Duration::from_secs(5)));
        let said = cluster.carry_all(&Parcel { lane, batch: &batch, deadline });
        let values: Vec<_> = said.into_iter().map(|one| one.map(|heard| heard.value)).collect();
        let held_or_gone = [Value::Int(1), Value::Int(0)];
        assert!(values.iter().map(|value| value.as_ref().unwrap()).eq(&held_or_gone), "{values:?}");
    }
}
