//! How locks are written in a server: keys, scripts, and how their replies read. Knows no
//! topology.

pub(super) mod native;

use std::sync::LazyLock;

/// A script in a file of its own, and the digest that it is called by.
pub(super) struct Script {
    pub(super) source: &'static str,
    digest: LazyLock<String>,
}

impl Script {
    const fn new(source: &'static str, digest: fn() -> String) -> Script {
        Script { source, digest: LazyLock::new(digest) }
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }
}

/// A batch of calls, packed to be sent in one write.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: Vec<Call>,
}

/// One call of a script within a batch's bytes.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Batch {
    /// Room for so many calls with everyday names, so that packing them copies nothing twice.
    fn with_room_for(calls: usize) -> Batch {
        Batch { bytes: Vec::with_capacity(calls * 320), calls: Vec::with_capacity(calls) }
    }

    fn push(&mut self, script: &'static Script, pack: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        pack(&mut self.bytes);
        self.calls.push(Call { script, start, end: self.bytes.len() });
    }

    /// Some of the calls of this batch as a batch of their own.
    pub(super) fn only(&self, indices: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for index in indices {
            let call = &self.calls[*index];
            batch.push(call.script, |bytes| bytes.extend(&self.bytes[call.start..call.end]));
        }
        batch
    }
}
