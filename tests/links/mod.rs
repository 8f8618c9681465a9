//! A long way to a server: what travels there arrives in its order and a fixed time later, and as
//! much as one likes can be on its way at once.

#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Starts it and returns the port of its near end. Each connection in turn has the next of these
/// delays, for each direction; it goes on until the process ends.
pub fn long_way(server_port: u16, delays: &'static [Duration]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (client, delay) in listener.incoming().zip(delays.iter().cycle()) {
            let (client, server) =
                (client.unwrap(), TcpStream::connect(("127.0.0.1", server_port)));
            let Ok(server) = server else { continue };
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            carry(client.try_clone().unwrap(), server.try_clone().unwrap(), *delay);
            carry(server, client, *delay);
        }
    });
    port
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = [0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
