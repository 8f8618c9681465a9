//! "Did you mean ...?"

/// The known word that somebody who wrote `given` may have meant: at most two letters are wrong,
/// missing, too many, or have changed places, and fewer than half of them.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let far = |word: &&str| distance(given.as_bytes(), word.as_bytes());
    known
        .into_iter()
        .filter(|word| far(word) <= 2.min(word.len().saturating_sub(1) / 2))
        .min_by_key(far)
}

fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for (i, byte) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in to.iter().enumerate() {
            let changed = rows[i][j] + usize::from(!byte.eq_ignore_ascii_case(other));
            let mut least = changed.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && from[i - 1] == *other && *byte == to[j - 1] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_recognised_and_another_word_is_not() {
        let known = ["io_timeout", "pool", "prefix", "close_timeout", "ca"];
        for (given, meant) in [
            ("io_timout", Some("io_timeout")),
            ("io_tiemout", Some("io_timeout")),
            ("iotimeout", Some("io_timeout")),
            ("POOL", Some("pool")),
            ("poll", Some("pool")),
            ("timeout", None),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
    }
}
