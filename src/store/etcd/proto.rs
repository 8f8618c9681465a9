//! Messages of protobuf, as far as etcd's need them: fields of numbers and of bytes.

/// A message that is being written.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    /// A field of this number; what is zero is not said.
    pub(super) fn number(mut self, field: u32, value: i64) -> Message {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value.cast_unsigned());
        }
        self
    }

    pub(super) fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        // With what comes before and behind it, so that short messages grow but once.
        self.0.reserve(value.len() + 64);
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn number(self) -> i64 {
        match self {
            Field::Number(number) => number,
            Field::Bytes(_) => 0,
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => b"",
        }
    }

    pub(super) fn count(self) -> u64 {
        u64::try_from(self.number()).unwrap_or(0)
    }
}

/// Calls `field` with each field's number and what it holds; `None` if this is no message.
pub(super) fn read<'a>(mut rest: &'a [u8], mut field: impl FnMut(u32, Field<'a>)) -> Option<()> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => field(number, Field::Number(varint(&mut rest)?.cast_signed())),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                rest = after;
                field(number, Field::Bytes(bytes));
            }
            // Numbers of a fixed length, of which etcd has none.
            1 => rest = rest.get(8..)?,
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let written = Message::default()
            .number(1, i64::MAX)
            .number(2, 0)
            .bytes(64, b"")
            .message(3, &Message::default().number(5, 300))
            .number(4, -1);
        let mut found = Vec::new();
        read(&written.0, |number, field| {
            found.push((number, field.number(), field.bytes().to_vec()));
        })
        .unwrap();
        let none = Vec::new();
        assert_eq!(
            found,
            [
                (1, i64::MAX, none.clone()),
                (64, 0, none.clone()),
                (3, 0, vec![5 << 3, 0xac, 2]),
                (4, -1, none)
            ]
        );
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = Message::default().number(1, 1 << 40).bytes(2, b"some bytes").0;
        let is_message = |bytes: &[u8]| read(bytes, |_, _| {}).is_some();
        let whole_ones = (0..=whole.len()).filter(|end| is_message(&whole[..*end]));
        assert_eq!(whole_ones.collect::<Vec<_>>(), [0, 7, whole.len()]);
        assert!(!is_message(&[0xff; 11]) && !is_message(&[3]));
    }
}
