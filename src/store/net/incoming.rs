//! Bytes that have come and are taken out piece by piece.

/// What was taken is dropped only where it is the larger part: however small the pieces are, no byte is
/// moved often.
#[derive(Default)]
pub(in crate::store) struct Incoming {
    bytes: Vec<u8>,
    taken: usize,
}

impl Incoming {
    pub(in crate::store) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub(in crate::store) fn came(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// No more than the rest has.
    pub(in crate::store) fn taken(&mut self, count: usize) {
        self.taken = self.bytes.len().min(self.taken + count);
        if self.taken * 2 >= self.bytes.len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_stays_in_its_order() {
        let (mut incoming, mut expected) = (Incoming::default(), Vec::new());
        for (number, take) in (0u8..=200).zip([0, 1, 0, 3, 2].into_iter().cycle()) {
            incoming.came(&[number, !number]);
            expected.extend([number, !number]);
            incoming.taken(take);
            expected.drain(..take.min(expected.len()));
            assert_eq!(incoming.rest(), expected);
        }
        incoming.taken(usize::from(u16::MAX));
        assert_eq!(incoming.rest(), b"");
    }
}
