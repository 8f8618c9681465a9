//! What clients are told on their channels, as the scripts write it.

use std::time::Duration;

use super::Words;
use crate::config::limits::MAX_FENCE;
use crate::store::Notice;

/// What the payload of a message says; `None` if it is no notice.
pub(in crate::store::redis) type ReadNotice = Box<dyn Fn(&[u8]) -> Option<Notice> + Send + Sync>;

pub(in crate::store::redis) fn reader(prefix: &[u8]) -> ReadNotice {
    let prefix = prefix.to_vec();
    Box::new(move |payload| read(payload, &prefix))
}

/// Reads what was published; `None` if that is nothing that a client with this prefix is told.
pub(super) fn read(payload: &[u8], prefix: &[u8]) -> Option<Notice> {
    let mut words = Words(Some(payload));
    let (sign, token) = (words.word()?, std::str::from_utf8(words.word()?).ok()?.parse().ok()?);
    // The key is any bytes, spaces too, and so comes last.
    let name = |words: Words<'_>| {
        let name = words.rest().strip_prefix(prefix)?;
        (!name.is_empty()).then(|| name.to_vec())
    };
    match sign {
        b"G" => {
            let (fence, block) = (words.number()?, words.number()?);
            let (server, span) = (words.number()?, Duration::from_millis(words.number()?));
            let last = fence.checked_add(block)?.checked_sub(1)?;
            if fence == 0 || block == 0 || last > MAX_FENCE {
                return None;
            }
            let block = block.try_into().ok()?;
            Some(Notice::Granted { name: name(words)?, token, fence, block, server, span })
        }
        b"F" => Some(Notice::Free { name: name(words)?, token }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKEN: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn a_grant_says_whose_it_is_and_where_its_validity_counts_from() {
        let text = format!("G {TOKEN} 7 64 1795182559483864 1000 blue: a b\0{{}}");
        let granted = |name: &[u8]| Notice::Granted {
            name: name.to_vec(),
            token: TOKEN.parse().unwrap(),
            fence: 7,
            block: 64,
            server: 1_795_182_559_483_864,
            span: Duration::from_secs(1),
        };
        assert_eq!(read(text.as_bytes(), b""), Some(granted(b"blue: a b\0{}")));
        assert_eq!(read(text.as_bytes(), b"blue:"), Some(granted(b" a b\0{}")));
        assert_eq!(read(text.as_bytes(), b"red:"), None, "another client's");
    }

    #[test]
    fn that_a_lock_is_free_is_told_with_its_name() {
        let text = format!("F {TOKEN} any: a b");
        let free = Notice::Free { name: b" a b".to_vec(), token: TOKEN.parse().unwrap() };
        assert_eq!(read(text.as_bytes(), b"any:"), Some(free));
    }

    #[test]
    fn what_no_script_says_is_no_notice() {
        for text in [
            "",
            "G",
            "hello",
            "F T n",
            &format!("F {TOKEN}"),
            &format!("W {TOKEN} n"),
            &format!("G {TOKEN} 1 1 1 1"),
            &format!("G {TOKEN} 0 1 1 1 n"),
            &format!("G {TOKEN} 1 0 1 1 n"),
            &format!("G {TOKEN} 9007199254740991 2 1 1 n"),
            &format!("G {TOKEN} 1 4294967296 1 1 n"),
            &format!("G {TOKEN} 18446744073709551615 18446744073709551615 1 1 n"),
        ] {
            assert_eq!(read(text.as_bytes(), b""), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes, b"p");
        }

        #[test]
        fn nothing_that_looks_like_a_notice_is_a_panic(
            words in proptest::collection::vec("G|F|[0-9]{0,21}|[0-9a-f]{32}|[ -~]{0,4}", 0..9),
        ) {
            let _ = read(words.join(" ").as_bytes(), b"");
        }
    }
}
