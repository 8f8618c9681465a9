//! Patterns of names, as people type them.

/// `*` stands for anything, `?` for one character, and a backslash takes the next byte as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Glob(Vec<Part>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Any,
    One,
    Byte(u8),
}

impl Glob {
    pub(crate) fn new(pattern: &[u8]) -> Glob {
        let (mut parts, mut bytes) = (Vec::with_capacity(pattern.len()), pattern.iter());
        while let Some(byte) = bytes.next() {
            let part = match byte {
                b'*' => Part::Any,
                b'?' => Part::One,
                b'\\' => Part::Byte(*bytes.next().unwrap_or(byte)),
                byte => Part::Byte(*byte),
            };
            // Two in a row mean the same as one, and cost twice as much.
            if part != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(part);
            }
        }
        Glob(parts)
    }

    /// What every name begins with that it stands for.
    pub(crate) fn head(&self) -> Vec<u8> {
        let byte = |part: &Part| match part {
            Part::Byte(byte) => Some(*byte),
            Part::Any | Part::One => None,
        };
        self.0.iter().map_while(byte).collect()
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Behind the last `*`, and how much of the name it stands for so far.
        let mut back: Option<(usize, usize)> = None;
        loop {
            let taken = match (self.0.get(part), name.get(at)) {
                (None, None) => return true,
                (Some(Part::Any), _) => {
                    part += 1;
                    back = Some((part, at));
                    continue;
                }
                (Some(Part::Byte(wanted)), Some(byte)) if wanted == byte => 1,
                (Some(Part::One), Some(_)) => character(&name[at..]),
                _ => match back {
                    Some((behind, from)) if from < name.len() => {
                        back = Some((behind, from + 1));
                        (part, at) = (behind, from + 1);
                        continue;
                    }
                    _ => return false,
                },
            };
            (part, at) = (part + 1, at + taken);
        }
    }
}

/// How many bytes the first character has; a byte that is no text stands for itself.
fn character(bytes: &[u8]) -> usize {
    let chunk = bytes[..bytes.len().min(4)].utf8_chunks().next();
    chunk.and_then(|chunk| chunk.valid().chars().next()).map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_stand_for_what_people_mean() {
        for (pattern, name, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("stock:*", "stock:17", true),
            ("stock:*", "stick:17", false),
            ("*:17", "stock:17", true),
            ("s*k:*7", "stock:17", true),
            ("s*k:*7", "stock:18", false),
            ("?", "größe", false),
            ("gr??e", "größe", true),
            ("*?", "", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("a\\", "a\\", true),
            ("[ab]", "a", false),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(glob.matches(name.as_bytes()), is_match, "{pattern} {name}");
        }
        assert!(Glob::new(b"a?").matches(b"a\xff"), "a byte that is no text");
        assert_eq!(Glob::new(b"stock:\\*1*").head(), b"stock:*1");
    }

    fn slow(parts: &[Part], name: &[u8]) -> bool {
        match (parts, name) {
            ([], []) => true,
            ([Part::Any, rest @ ..], _) => (0..=name.len()).any(|at| slow(rest, &name[at..])),
            ([Part::One, rest @ ..], [_, ..]) => slow(rest, &name[character(name)..]),
            ([Part::Byte(wanted), rest @ ..], [byte, name @ ..]) => {
                wanted == byte && slow(rest, name)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(
            pattern in proptest::collection::vec(prop_oneof![Just(b'*'), Just(b'?'), Just(b'a'), Just(b'b')], 0..7),
            name in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..9),
        ) {
            let glob = Glob::new(&pattern);
            prop_assert_eq!(glob.matches(&name), slow(&glob.0, &name));
            prop_assert!(!glob.matches(&name) || name.starts_with(&glob.head()));
        }
    }
}
