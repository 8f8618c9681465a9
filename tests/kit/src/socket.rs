//! A bare socket that speaks to a server, for tests that look at single replies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::proxy::End;

const LIMIT: Duration = Duration::from_secs(10);

/// A socket whose reads fail instead of hanging.
pub fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

pub fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

/// One line.
pub fn answer(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Nothing arrives, not even an end of stream, for a while.
#[track_caller]
pub fn assert_mute(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = stream.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
}

#[track_caller]
pub fn assert_end(stream: &mut TcpStream, end: End) {
    match (stream.read(&mut [0; 16]), end) {
        (Ok(0), End::Fin) => {}
        (Err(error), End::Reset) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        (other, end) => panic!("expected {end:?}, got {other:?}"),
    }
}
