//! The servers, and the ways to them.

use std::sync::Arc;

use redis::Value;

use super::{NAME, NODES, SITES, ms};
use kit::{KeptFile, Link, Offset, Server};

pub struct Node {
    pub server: Server,
    pub links: Vec<Arc<Link>>,
    /// What it comes back with when it comes back with an old file.
    pub kept: Option<KeptFile>,
    /// Its clock jumps, and nothing else is wrong with it.
    pub is_clocked: bool,
}

/// The clock of the first one moves, where that is asked for.
pub fn start(clocked: bool) -> Vec<Node> {
    let node = |number: usize| {
        let is_clocked = clocked && number == 0;
        let builder = Server::builder();
        let server = if is_clocked { builder.clocked().start() } else { builder.start() };
        let links = (0..SITES).map(|_| Arc::new(Link::to(&server))).collect();
        Node { server, links, kept: None, is_clocked }
    };
    (0..NODES).map(node).collect()
}

/// By which ports a site reaches the nodes.
pub fn ports(nodes: &[Node], site: usize) -> Vec<u16> {
    nodes.iter().map(|node| node.links[site % SITES].port()).collect()
}

/// All ways of a site.
pub fn links(nodes: &[Node], site: usize) -> Vec<Arc<Link>> {
    nodes.iter().map(|node| node.links[site].clone()).collect()
}

impl Node {
    /// All is as it was at the start, but for what it has lost.
    pub fn mend(&mut self) {
        for link in &self.links {
            link.slow(ms(0));
            link.slow_replies(ms(0));
            link.heal();
        }
        if self.is_clocked {
            self.server.shift_clock(Offset::Ahead(ms(0)));
        }
    }

    /// Nobody holds the lock as far as this one knows.
    pub fn is_free(&self) -> bool {
        matches!(self.server.try_cmd(&["EXISTS", NAME]), Ok(Value::Int(0)))
    }
}
