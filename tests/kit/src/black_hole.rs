//! An address on which connecting neither succeeds nor fails.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// A listener whose queue is full: the kernel drops every further SYN.
pub struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl BlackHole {
    pub fn open() -> BlackHole {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        // The length of the shortest queue differs between kernels.
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            queued.push(stream);
            assert!(queued.len() < 16, "the queue never fills");
        }
        BlackHole { address, _listener: listener, _queued: queued }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}
