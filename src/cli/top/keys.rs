//! What is typed, and what comes of it.

use super::table::{Line, Sort};
use crate::show::who;
use leasehold::command::plain;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Letter(char),
    Up,
    Down,
    Enter,
    Erase,
    Escape,
}

/// Makes keys of what a terminal sends, which may come in parts.
#[derive(Default)]
pub(super) struct Keyboard {
    rest: Vec<u8>,
}

impl Keyboard {
    pub(super) fn typed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend(bytes);
        let mut keys = Vec::new();
        while let Some((key, length)) = first(&self.rest) {
            self.rest.drain(..length);
            keys.extend(key);
        }
        keys
    }
}

/// The first key and how many bytes it has; `None` where more have to come.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes {
        [] | [0x1b, b'[' | b'O'] => None,
        [0x1b, b'[' | b'O', ref rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            let key = match end.map(|at| rest[at]) {
                Some(b'A') => Some(Key::Up),
                Some(b'B') => Some(Key::Down),
                // None is so long.
                None if rest.len() < 32 => return None,
                _ => None,
            };
            Some((key, end.map_or(bytes.len(), |at| at + 3)))
        }
        // By itself, since what comes behind it comes at once.
        [0x1b, ..] => Some((Some(Key::Escape), 1)),
        [b'\r' | b'\n', ..] => Some((Some(Key::Enter), 1)),
        [0x08 | 0x7f, ..] => Some((Some(Key::Erase), 1)),
        [byte, ..] => {
            let length = match byte {
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf8 => 4,
                _ => 1,
            };
            let text = std::str::from_utf8(bytes.get(..length)?).ok();
            let letter = text.and_then(|text| text.chars().next()).filter(|it| !it.is_control());
            Some((letter.map(Key::Letter), if text.is_some() { length } else { 1 }))
        }
    }
}

/// What the bottom line is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    #[default]
    Plain,
    Help,
    /// A pattern is being typed.
    Filter(String),
    /// Whether this very grant is to be broken; the sentence says whose it is.
    Break {
        name: Vec<u8>,
        fence: u64,
        whose: String,
    },
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum Act {
    Quit,
    Filter(String),
    Break { name: Vec<u8>, fence: u64 },
}

/// What the user has chosen so far.
#[derive(Default)]
pub(super) struct Choices {
    pub(super) sort: Sort,
    pub(super) mode: Mode,
    /// A name, which keeps it where rows move.
    pub(super) selected: Option<Vec<u8>>,
    /// Which one the last frame had selected: what is typed is about that one.
    pub(super) shown: Option<Vec<u8>>,
    pub(super) notice: String,
}

impl Choices {
    /// Where the selected one stands: the first, where it is not there any more.
    pub(super) fn at(&self, lines: &[Line<'_>]) -> usize {
        place(self.selected.as_deref(), lines).unwrap_or(0)
    }

    /// A frame is shown with these lines.
    pub(super) fn show(&mut self, lines: &[Line<'_>]) {
        self.shown = lines.get(self.at(lines)).map(|line| line.name.to_vec());
    }

    pub(super) fn press(&mut self, key: Key, lines: &[Line<'_>]) -> Option<Act> {
        self.notice.clear();
        match (std::mem::take(&mut self.mode), key) {
            (Mode::Filter(text), Key::Enter) => return Some(Act::Filter(text)),
            (Mode::Filter(_), Key::Escape) => {}
            (Mode::Filter(mut text), key) => {
                match key {
                    Key::Letter(letter) => text.push(letter),
                    Key::Erase => _ = text.pop(),
                    _ => {}
                }
                self.mode = Mode::Filter(text);
            }
            (Mode::Break { name, fence, .. }, Key::Letter('y' | 'Y')) => {
                return Some(Act::Break { name, fence });
            }
            (Mode::Break { .. }, _) => self.notice = "not broken".into(),
            (Mode::Help, _) => {}
            (Mode::Plain, key) => return self.command(key, lines),
        }
        None
    }

    fn command(&mut self, key: Key, lines: &[Line<'_>]) -> Option<Act> {
        let at = place(self.shown.as_deref(), lines).unwrap_or_else(|| self.at(lines));
        let mut select = |at: usize| {
            self.selected = lines.get(at).map(|line| line.name.to_vec());
            self.shown.clone_from(&self.selected);
        };
        match key {
            Key::Letter('q') => return Some(Act::Quit),
            Key::Letter('s') => self.sort = self.sort.next(),
            Key::Letter('/') => self.mode = Mode::Filter(String::new()),
            Key::Letter('h' | '?') => self.mode = Mode::Help,
            Key::Letter('k') | Key::Up => select(at.saturating_sub(1)),
            Key::Letter('j') | Key::Down => select((at + 1).min(lines.len().saturating_sub(1))),
            Key::Letter('b') => {
                let holder = lines.get(at).and_then(|line| Some((line.name, line.row.holder()?)));
                match holder.and_then(|(name, holder)| Some((name, holder, holder.fence?))) {
                    Some((name, holder, fence)) => {
                        let whose = format!("{}, {}", plain(name), who(holder));
                        self.mode = Mode::Break { name: name.to_vec(), fence, whose };
                    }
                    None => self.notice = "it has no holder with a fence".into(),
                }
            }
            _ => {}
        }
        None
    }
}

fn place(name: Option<&[u8]>, lines: &[Line<'_>]) -> Option<usize> {
    lines.iter().position(|line| Some(line.name) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::table::tests::{Scans, held};

    #[test]
    fn keys_are_read_whole_whatever_parts_they_come_in() {
        let bytes = "jk\x1b[A\x1bOBö\r\x7f\x1b[3~/".as_bytes();
        let all = Keyboard::default().typed(bytes);
        let letter = Key::Letter;
        let expected =
            [letter('j'), letter('k'), Key::Up, Key::Down, letter('ö'), Key::Enter, Key::Erase];
        assert_eq!(all[..7], expected);
        assert_eq!(all[7..], [letter('/')], "a key that means nothing is none");
        let mut keyboard = Keyboard::default();
        // ESC alone is a key, so an arrow is told by its first two bytes.
        let parts = bytes.chunk_by(|one, _| *one == 0x1b);
        let parts: Vec<_> = parts.flat_map(|part| keyboard.typed(part)).collect();
        assert_eq!(parts, all);
        assert_eq!(keyboard.typed(b"\x1b"), [Key::Escape]);
        assert_eq!(keyboard.typed(b"\xff\x00a"), [letter('a')]);
        assert_eq!(keyboard.typed(&[&b"\x1b["[..], &[b'0'; 100]].concat()), []);
        assert_eq!(keyboard.typed(b"q"), [letter('q')]);
    }

    fn press(choices: &mut Choices, keys: &str) -> Vec<Act> {
        let mut scans = Scans::new();
        let mut foreign = held(0, 20);
        foreign.holder.as_mut().unwrap().fence = None;
        scans.scan(&[("a", held(7, 30), 0), ("b", foreign, 0)]);
        let lines = scans.table.sorted(Sort::Name, scans.now);
        let keys = Keyboard::default().typed(keys.as_bytes());
        keys.into_iter().filter_map(|key| choices.press(key, &lines)).collect()
    }

    fn selected(choices: &Choices) -> Option<&str> {
        choices.selected.as_deref().map(|name| std::str::from_utf8(name).unwrap())
    }

    #[test]
    fn a_break_is_of_what_was_shown_and_only_after_a_yes() {
        let mut choices = Choices::default();
        assert_eq!(press(&mut choices, "b"), []);
        let Mode::Break { name, fence: 7, .. } = &choices.mode else {
            panic!("{:?}", choices.mode)
        };
        assert_eq!(name, b"a");
        assert_eq!(press(&mut choices, "n"), []);
        assert_eq!((&choices.mode, &*choices.notice), (&Mode::Plain, "not broken"));
        let broken = Act::Break { name: b"a".into(), fence: 7 };
        assert_eq!(press(&mut choices, "by"), [broken]);
        // What has no fence, could be another one's at the next moment.
        assert_eq!(press(&mut choices, "jby"), []);
    }

    #[test]
    fn what_is_typed_is_about_the_line_that_was_shown_as_selected() {
        let mut scans = Scans::new();
        scans.scan(&[("a", held(7, 30), 0), ("b", held(8, 20), 5)]);
        let mut choices = Choices::default();
        choices.show(&scans.table.sorted(Sort::Name, scans.now));
        let lines = scans.table.sorted(Sort::Waiting, scans.now);
        choices.press(Key::Letter('b'), &lines);
        assert!(matches!(choices.mode, Mode::Break { fence: 7, .. }), "{:?}", choices.mode);
        choices.press(Key::Escape, &lines);
        choices.press(Key::Up, &lines);
        choices.press(Key::Letter('b'), &lines);
        assert!(matches!(choices.mode, Mode::Break { fence: 8, .. }), "{:?}", choices.mode);
    }

    #[test]
    fn the_selection_stays_in_the_list_and_with_its_lock() {
        let mut choices = Choices::default();
        for (keys, at) in [("k", "a"), ("j", "b"), ("j", "b"), ("\x1b[A", "a"), ("\x1b[B", "b")] {
            press(&mut choices, keys);
            assert_eq!(selected(&choices), Some(at), "{keys:?}");
        }
        let mut scans = Scans::new();
        scans.scan(&[("b", held(7, 30), 0), ("c", held(7, 30), 0)]);
        assert_eq!(choices.at(&scans.table.sorted(Sort::Name, scans.now)), 0);
        assert_eq!(choices.press(Key::Down, &[]), None);
        assert_eq!(choices.at(&[]), 0);
    }

    #[test]
    fn a_pattern_is_typed_and_may_be_taken_back() {
        let mut choices = Choices::default();
        assert_eq!(press(&mut choices, "/qsö\x7f*\r"), [Act::Filter("qs*".into())]);
        assert_eq!(press(&mut choices, "/abc\x1b"), []);
        assert_eq!(choices.mode, Mode::Plain);
        assert_eq!(press(&mut choices, "hq"), [], "any key leaves the help");
        assert_eq!(press(&mut choices, "q"), [Act::Quit]);
    }
}
