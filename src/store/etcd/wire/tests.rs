use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// A wire to a peer that says this once something has come.
fn wire(said: Vec<u8>) -> Wire {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    std::thread::spawn(move || {
        let _ = peer.read(&mut [0; 100]);
        let _ = peer.write_all(&said);
        // Until it is closed.
        let _ = peer.read_to_end(&mut Vec::new());
    });
    Wire::new(Stream::new(stream.into()), 0, Vec::new())
}

fn frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], body].concat()
}

fn ask(wire: &mut Wire) -> Result<Vec<u8>, Failure> {
    let by = Deadline::after(Duration::from_secs(20));
    wire.call("/x", &Message::default(), by).map(|(answer, _)| answer)
}

#[test]
fn c7_a_message_without_end_is_cut_off() {
    // A message of one byte less than all that came so far, again and again.
    let mut said = frame(DATA, 0, &[0, 0, 0x40, 0, 0]);
    for _ in 0..10 * LONGEST / LONGEST_FRAME {
        said.extend(frame(DATA, 0, &[7; LONGEST_FRAME]));
    }
    let mut wire = wire(said);
    // The stream is not asked meanwhile, as that of the watches while nobody waits.
    let by = Deadline::after(Duration::from_secs(20));
    let stream = wire.begin("/x");
    wire.send(by).unwrap();
    let ended = std::iter::repeat_with(|| wire.read(by)).find_map(Result::err).unwrap();
    assert_eq!(ended.kind(), ErrorKind::Protocol);
    assert!(wire.is_broken && wire.calls[&stream].inbox.rest().len() < 3 * LONGEST);
    assert!(wire.inbox.len() <= LONGEST_FRAME + FRAME);
}

#[test]
fn a_call_that_begins_after_the_last_that_is_served_is_not_waited_for() {
    let last = frame(GO_AWAY, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let mut wire = wire([last, frame(DATA, END, &[0, 0, 0, 0, 2, 8, 1])].concat());
    assert_eq!(ask(&mut wire).unwrap(), [8, 1]);
    assert!(ask(&mut wire).unwrap_err().sent.is_none());
}

#[test]
fn an_answer_that_just_fills_the_room_is_not_waited_for_twice() {
    let answer = frame(DATA, END, &[0, 0, 0, 0, 2, 8, 1]);
    let filler = vec![0; LONGEST_FRAME - FRAME - answer.len()];
    // A kind of frame that nobody knows.
    let mut wire = wire([frame(99, 0, &filler), answer].concat());
    assert_eq!(ask(&mut wire).unwrap(), [8, 1]);
}

#[test]
fn c4_another_connection_is_made_before_the_numbers_of_streams_end() {
    let mut wire = wire(Vec::new());
    assert!(!wire.is_stale(Moment::now()));
    wire.last = LAST_STREAM + 1;
    assert!(wire.is_stale(Moment::now()));
}
