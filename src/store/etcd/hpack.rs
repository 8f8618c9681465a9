//! Header lists of HTTP/2 (RFC 7541), as far as gRPC needs them. We send every field as it is, and
//! forbid the server a table of its own, so that no field refers to an earlier one.

use std::borrow::Cow;

/// Appends a field that neither side remembers.
pub(super) fn write(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    for text in [name, value] {
        write_number(out, text.len());
        out.extend_from_slice(text.as_bytes());
    }
}

/// A length, with seven bits in its first byte.
fn write_number(out: &mut Vec<u8>, number: usize) {
    if number < 127 {
        return out.push(number as u8);
    }
    out.push(127);
    let mut rest = number - 127;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Calls `field` with each name and value of a list, without those that nobody here asks for.
/// `None` if it is no list, or refers to a table.
pub(super) fn read(mut rest: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Option<()> {
    const STATUSES: [&[u8]; 7] = [b"200", b"204", b"206", b"304", b"400", b"404", b"500"];
    const NAMED: usize = 61;
    let named = |index: usize| match index {
        8..=14 => &b":status"[..],
        _ => &b""[..],
    };
    while let Some(first) = rest.first() {
        let bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let index = read_number(&mut rest, bits)?;
        if bits == 5 {
            // The size of the table: we have none.
            continue;
        }
        if index > NAMED {
            return None;
        }
        if bits == 7 {
            let value = index.checked_sub(8).and_then(|at| STATUSES.get(at));
            field(named(index), value.copied().unwrap_or_default());
            continue;
        }
        let name = match index {
            0 => Text::read(&mut rest)?.plain()?,
            _ => Cow::Borrowed(named(index)),
        };
        let value = Text::read(&mut rest)?;
        // To unpack it takes time.
        if !name.is_empty() {
            field(&name, &value.plain()?);
        }
    }
    Some(())
}

fn read_number(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut after) = rest.split_first()?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        for shift in (0..28).step_by(7) {
            let (next, left) = after.split_first()?;
            after = left;
            number += usize::from(next & 127) << shift;
            if next & 128 == 0 {
                *rest = after;
                return Some(number);
            }
        }
        return None;
    }
    *rest = after;
    Some(number)
}

#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    is_packed: bool,
}

impl<'a> Text<'a> {
    fn read(rest: &mut &'a [u8]) -> Option<Text<'a>> {
        let is_packed = rest.first()? & 128 != 0;
        let length = read_number(rest, 7)?;
        let (bytes, after) = rest.split_at_checked(length)?;
        *rest = after;
        Some(Text { bytes, is_packed })
    }

    fn plain(self) -> Option<Cow<'a, [u8]>> {
        if self.is_packed { unpack(self.bytes).map(Cow::Owned) } else { Some(self.bytes.into()) }
    }
}

/// How many bits the code of each byte has. Of the same length, the codes of larger bytes are larger,
/// and longer codes come after shorter ones: that is all of the code.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The bytes in the order of their codes, and how many codes of each length there are: every answer is
/// read with them, and a search among all bytes for each bit took longer than the server.
const CODES: ([u8; 256], [u8; 31]) = {
    let (mut order, mut of_length, mut known, mut length) = ([0; 256], [0; 31], 0, 5);
    while length <= 30 {
        let mut byte = 0;
        while byte < 256 {
            if BITS[byte] as usize == length {
                order[known] = byte as u8;
                of_length[length] += 1;
                known += 1;
            }
            byte += 1;
        }
        length += 1;
    }
    (order, of_length)
};

/// Reads Huffman's code; at its end stand fewer than eight bits, all set.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (order, of_length) = &CODES;
    let bits =
        packed.iter().flat_map(|byte| (0..8).rev().map(move |at| usize::from(byte >> at & 1)));
    let (mut text, mut code, mut length) = (Vec::with_capacity(packed.len() * 8 / 5), 0, 0);
    // The first code of the length that has come so far, and how many codes are shorter.
    let (mut first, mut shorter) = (0, 0);
    for bit in bits {
        (code, first, length) = (code << 1 | bit, first << 1, length + 1);
        let count = usize::from(*of_length.get(length)?);
        if code - first < count {
            text.push(order[shorter + code - first]);
            (code, length, first, shorter) = (0, 0, 0, 0);
        } else {
            (first, shorter) = (first + count, shorter + count);
        }
    }
    (length < 8 && code + 1 == 1 << length).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[u8]) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        read(list, |name, value| found.push((text(name), text(value))))?;
        Some(found)
    }

    #[test]
    fn what_is_written_is_read() {
        let long = "x".repeat(70_000);
        let mut list = Vec::new();
        write(&mut list, "grpc-status", "0");
        write(&mut list, ":path", &long);
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(fields(&list).unwrap(), [own("grpc-status", "0"), own(":path", &long)]);
    }

    /// The examples of the RFC, C.4.1, C.4.3 and C.6.1.
    #[test]
    fn what_others_pack_is_read() {
        let unpacked = |packed: &[u8]| String::from_utf8(unpack(packed).unwrap()).unwrap();
        let packed = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(unpacked(&packed), "www.example.com");
        assert_eq!(unpacked(&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f]), "custom-key");
        assert_eq!(
            unpacked(&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
            "custom-value"
        );
        let date = [
            0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b,
            0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
        ];
        assert_eq!(unpacked(&date), "Mon, 21 Oct 2013 20:13:21 GMT");
        assert_eq!(fields(&[0x88]).unwrap(), [(":status".to_owned(), "200".to_owned())]);
    }

    #[test]
    fn nonsense_is_refused_and_breaks_nothing() {
        for nonsense in [&[0xff][..], &[0x00, 0x05, b'a'], &[0xbf, 0x80], &[0x00, 0x81, 0x00]] {
            assert_eq!(fields(nonsense), None, "{nonsense:?}");
        }
        let mut byte = 7u8;
        for length in 0..64 {
            let mut random = || {
                byte = byte.wrapping_mul(37).wrapping_add(11);
                byte
            };
            let noise: Vec<u8> = (0..length).map(|_| random()).collect();
            let _ = fields(&noise);
        }
    }
}
