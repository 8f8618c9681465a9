//! A frame, and a page where there is no screen, as text.

use std::fmt::Write;
use std::time::Duration;

use console::{Alignment, measure_text_width, pad_str, truncate_str};

use super::keys::{Choices, Mode};
use super::table::{Counts, Line};
use crate::show::seconds;
use leasehold::command::plain;

/// What the last look was like.
#[derive(Default)]
pub(super) struct Status {
    /// How soon the store answers.
    pub(super) latency: Duration,
    /// How long the look took, with all its pages.
    pub(super) took: Duration,
    /// There are more names than one look asks for: it goes on from there.
    pub(super) is_part: bool,
    pub(super) error: Option<String>,
}

pub(super) struct Scene<'a> {
    pub(super) store: &'a str,
    pub(super) clock: String,
    pub(super) pattern: &'a [u8],
    pub(super) status: &'a Status,
    pub(super) counts: Counts,
    pub(super) choices: &'a Choices,
    pub(super) lines: &'a [Line<'a>],
    pub(super) is_coloured: bool,
}

const HELP: &[&str] = &[
    "TURNS/S  turns that were seen in a second: at most one at each look",
    "WAIT     how many wait in the store's queue",
    "SINCE    for how long the holder has had it, where the store can tell",
    "TTL      when it is free unless renewed",
    "",
    "s        sorts by turns, waiting, since, ttl, name",
    "/        shows the names of a pattern: * is anything, ? one character",
    "up down  or k and j select",
    "b        breaks the lock of the selected line: it asks first",
    "q        quits; h shows and leaves this",
];

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const SELECTED: &str = "\x1b[7m";

/// In front of the names.
const NUMBERS: usize = 34;
const FENCE: usize = 17;

fn numbers(line: &Line<'_>) -> String {
    let shown = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), seconds);
    let holder = line.row.holder();
    let waiting = line.row.waiting.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let since = shown(holder.and_then(|holder| holder.held));
    let ttl = shown(holder.map(|holder| holder.ttl));
    format!(" {:>7.2} {waiting:>7} {since:>7} {ttl:>7}  ", line.rate)
}

fn heading() -> String {
    format!(" {:>7} {:>7} {:>7} {:>7}  ", "TURNS/S", "WAIT", "SINCE", "TTL")
}

fn whose(line: &Line<'_>) -> String {
    let Some(holder) = line.row.holder() else { return "free".into() };
    let mut holder = holder.clone();
    holder.held = None;
    holder.to_string()
}

fn fence(line: &Line<'_>) -> String {
    let holder = line.row.holder();
    let fence = holder.map_or(line.row.state.last_fence, |holder| holder.fence);
    fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string())
}

/// Of a name as it is shown. Most are plain, and need no look at each character.
fn width(name: &[u8]) -> usize {
    let is_plain = name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\');
    if is_plain { name.len() } else { measure_text_width(&plain(name)) }
}

fn fit(text: &str, width: usize) -> String {
    pad_str(text, width, Alignment::Left, Some("…")).into_owned()
}

fn summary(scene: &Scene<'_>) -> String {
    let Counts { held, waiting } = scene.counts;
    let Status { latency, took, is_part, error } = scene.status;
    if let Some(error) = error {
        return format!("no look: {error}");
    }
    let latency = latency.as_secs_f64() * 1000.0;
    let part = if *is_part { "; many names: seen in parts, a look each" } else { "" };
    format!(
        "{held} held, {waiting} waiting; the store answers in {latency:.1} ms, a look takes {} ms{part}",
        took.as_millis()
    )
}

/// A page for a pipe: as wide as it gets, without anything that a terminal obeys.
pub(super) fn page(scene: &Scene<'_>, most: usize) -> String {
    let shown = &scene.lines[..scene.lines.len().min(most)];
    let names: Vec<_> = shown.iter().map(|line| plain(line.name)).collect();
    let width = names.iter().map(|name| measure_text_width(name)).max().unwrap_or(0).max(4);
    let mut out = format!("{} {} {}\n", scene.clock, scene.store, summary(scene));
    let _ = writeln!(out, "{}{} {} HOLDER", heading(), fit("LOCK", width), fit("FENCE", FENCE - 1));
    for (line, name) in shown.iter().zip(&names) {
        let (name, fence) = (fit(name, width), fit(&fence(line), FENCE - 1));
        let _ = writeln!(out, "{}{name} {fence} {}", numbers(line), whose(line));
    }
    out
}

/// All that the screen shows, from its first cell to its last.
pub(super) fn frame(scene: &Scene<'_>, (rows, columns): (usize, usize)) -> String {
    let Scene { choices, lines, .. } = scene;
    let clock = scene.clock.split('.').next().unwrap_or_default();
    let pattern = plain(scene.pattern);
    let mut text = vec![
        (BOLD, format!("leasehold top  {clock}  {}", scene.store)),
        (if scene.status.error.is_some() { RED } else { "" }, summary(scene)),
        ("", format!("names {pattern}, by {}; h for help", choices.sort.word())),
    ];
    let body = rows.saturating_sub(5);
    if choices.mode == Mode::Help {
        text.push(("", String::new()));
        text.extend(HELP.iter().map(|line| ("", format!("  {line}"))));
    } else {
        let names = columns.saturating_sub(NUMBERS + FENCE) * 2 / 5;
        let longest = lines.iter().take(1000).map(|line| width(line.name)).max();
        let names = longest.unwrap_or(0).clamp(4, names.max(4));
        let whose_width = columns.saturating_sub(NUMBERS + names + FENCE + 2);
        let row = |start: String, name: &str, whose: &str, fence: &str| {
            format!("{start}{} {} {fence}", fit(name, names), fit(whose, whose_width))
        };
        text.push((BOLD, row(heading(), "LOCK", "HOLDER", "FENCE")));
        let at = choices.at(lines);
        let top = at.saturating_sub(body.saturating_sub(1));
        for (place, line) in lines.iter().enumerate().skip(top).take(body) {
            let mut shown = row(numbers(line), &plain(line.name), &whose(line), &fence(line));
            if place == at {
                shown.replace_range(..1, ">");
            }
            text.push((if place == at { SELECTED } else { "" }, shown));
        }
    }
    text.truncate(rows.saturating_sub(1));
    text.resize(rows.saturating_sub(1), ("", String::new()));
    text.push(match &choices.mode {
        Mode::Filter(typed) => ("", format!("names: {}_", plain(typed.as_bytes()))),
        Mode::Break { whose, .. } => {
            // A narrow screen cuts the end.
            (RED, format!("Break {whose}? [y/N] Its holder continues until its next renewal."))
        }
        _ => ("", choices.notice.clone()),
    });
    let mut out = String::new();
    for ((style, line), place) in text.iter().zip(1..) {
        let style = if scene.is_coloured { style } else { "" };
        let end = if style.is_empty() { "" } else { "\x1b[0m" };
        let line = truncate_str(line, columns, "…");
        // It is cleared first: behind a line that is full, the cursor stands on its last cell.
        let _ = write!(out, "\x1b[{place};1H\x1b[K{style}{line}{end}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::keys::{Act, Key};
    use crate::top::table::{
        Sort,
        tests::{Scans, held},
    };

    fn drawn(
        choices: &Choices,
        status: &Status,
        size: (usize, usize),
        is_coloured: bool,
    ) -> String {
        let mut scans = Scans::new();
        scans.scan(&[]);
        let names = ["stock:1", "evil\x1b[2J\u{202e}", "中文字", "d", "e"];
        let seen: Vec<_> =
            names.iter().zip(41..).map(|(name, at)| (*name, held(at, 24), 3)).collect();
        scans.scan(&seen);
        let counts = scans.table.counts();
        let lines = scans.table.sorted(Sort::Name, scans.now);
        let (clock, pattern, store) = ("21:19:02.123".into(), b"*", "redis://127.0.0.1:6379/0");
        let scene =
            Scene { store, clock, pattern, status, counts, choices, lines: &lines, is_coloured };
        if size.0 == 0 { page(&scene, 2) } else { frame(&scene, size) }
    }

    fn rows(frame: &str) -> Vec<&str> {
        let mut rows: Vec<_> = frame.split("\x1b[K").collect();
        // Behind each stands where the next one is.
        for (row, next) in rows.iter_mut().skip(1).zip(2..) {
            *row = row.strip_suffix(&format!("\x1b[{next};1H")).unwrap_or(row);
        }
        assert_eq!(rows.remove(0), "\x1b[1;1H");
        rows
    }

    #[test]
    fn a_frame_fills_the_screen_and_not_a_cell_more() {
        for (height, width) in [(24, 80), (5, 20), (1, 1), (8, 200), (3, 40)] {
            for mode in [Mode::Plain, Mode::Help, Mode::Filter("x".repeat(99))] {
                let choices = Choices { mode, ..Choices::default() };
                let frame = drawn(&choices, &Status::default(), (height, width), false);
                let rows = rows(&frame);
                assert_eq!(rows.len(), height);
                for row in rows {
                    assert!(measure_text_width(row) <= width, "{row:?}");
                    assert!(!row.contains(['\x1b', '\u{202e}']), "{row:?}");
                }
            }
        }
    }

    #[test]
    fn a_name_has_the_width_that_is_shown() {
        for name in ["stock:1", "a b", "a\\b", "evil\x1b[2J", "中文字"] {
            assert_eq!(width(name.as_bytes()), measure_text_width(&plain(name)), "{name}");
        }
    }

    #[test]
    fn a_frame_says_who_has_which_lock() {
        let frame = drawn(&Choices::default(), &Status::default(), (12, 100), false);
        let rows = rows(&frame);
        assert_eq!(rows[0], "leasehold top  21:19:02  redis://127.0.0.1:6379/0");
        assert_eq!(rows[1], "5 held, 15 waiting; the store answers in 0.0 ms, a look takes 0 ms");
        assert_eq!(
            rows[3].trim_end(),
            " TURNS/S    WAIT   SINCE     TTL  LOCK                HOLDER                       FENCE"
        );
        assert!(rows[4].starts_with(">   0.50       3     36s     24s  d  "), "{}", rows[4]);
        assert!(rows[6].contains("  evil\\u{1b}[2J\\u{20… client 00112233aabb"), "{}", rows[6]);
        assert!(rows[8].contains("  中文字  "), "{}", rows[8]);
    }

    #[test]
    fn a_selection_that_is_far_down_is_in_sight() {
        let selected = Some("中文字".as_bytes().to_vec());
        let choices = Choices { selected, ..Choices::default() };
        let frame = drawn(&choices, &Status::default(), (7, 100), true);
        let rows = rows(&frame);
        assert!(rows[4].contains("stock:1") && !rows[4].contains("\x1b["), "{}", rows[4]);
        assert!(rows[5].starts_with("\x1b[7m>") && rows[5].ends_with("\x1b[0m"), "{}", rows[5]);
    }

    #[test]
    fn what_is_wrong_and_what_is_asked_are_said_in_red() {
        let status = Status { error: Some("down".into()), ..Status::default() };
        let mut choices = Choices::default();
        let mut scans = Scans::new();
        scans.scan(&[("n", held(7, 30), 0)]);
        let lines = scans.table.sorted(Sort::Name, scans.now);
        choices.press(Key::Letter('b'), &lines);
        let frame = drawn(&choices, &status, (10, 100), true);
        assert_eq!(rows(&frame)[1], "\x1b[31mno look: down\x1b[0m");
        let asked =
            "\x1b[31mBreak n, held by client 00112233aabb since 30 s, fence 7? [y/N] Its holder";
        assert!(rows(&frame)[9].starts_with(asked), "{}", rows(&frame)[9]);
        let act = Act::Break { name: b"n".into(), fence: 7 };
        assert_eq!(choices.press(Key::Letter('y'), &lines), Some(act));
    }

    #[test]
    fn a_page_is_lines_and_says_no_more_than_was_asked_for() {
        let page = drawn(&Choices::default(), &Status::default(), (0, 0), true);
        let lines: Vec<_> = page.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("21:19:02.123 redis://127.0.0.1:6379/0 5 held, 15 waiting; "));
        assert!(lines[2].contains("  d ") && lines[2].ends_with(" client 00112233aabb"), "{page}");
        assert!(!page.contains('\x1b'), "{page}");
    }
}
