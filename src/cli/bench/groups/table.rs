//! What was measured, for programs and for people.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::report::{self, rounded};
use super::quorum::{Figures, OneDead};

pub(in super::super) struct Report {
    pub(super) rows: Vec<(&'static str, Measured)>,
}

pub(super) enum Measured {
    Cycle(report::Report),
    /// And from the first word of a new master until a waiter had the lock, sorted.
    Sentinel(report::Report, Vec<Duration>),
    Quorum {
        same: Option<Figures>,
        cross: Option<Figures>,
    },
}

/// What should be reached; a figure at most as large is good.
const ACQUIRE: f64 = 1.3;
const ONE_DEAD: f64 = 1.1;
const COMMANDS: f64 = 1.0;
const FAILOVER_MS: f64 = 1000.0;

impl Report {
    pub(in super::super) fn json(&self) -> Value {
        let rows = self.rows.iter();
        Value::Object(rows.map(|(name, row)| ((*name).to_owned(), row.json())).collect())
    }

    pub(in super::super) fn text(&self) -> String {
        let rows = self.rows.iter();
        rows.map(|(name, row)| format!("{name}\n{}", row.text())).collect::<Vec<_>>().join("\n")
    }
}

impl Measured {
    fn json(&self) -> Value {
        match self {
            Measured::Cycle(report) => report.json(),
            Measured::Sentinel(report, took) => {
                let mut json = report.json();
                json["failover_ms"] = json!({
                    "p50": rounded(took.get(took.len() / 2).map(millis)),
                    "max": rounded(took.last().map(millis)),
                    "times": took.len(),
                });
                json
            }
            Measured::Quorum { same, cross } => {
                let place = |place: &Option<Figures>| place.as_ref().map(Figures::json);
                json!({ "same": place(same), "cross": place(cross) })
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Measured::Cycle(report) => report.text(),
            Measured::Sentinel(report, took) => {
                let of = |took: Option<&Duration>| took.map(millis).unwrap_or_default();
                let (p50, max) = (of(took.get(took.len() / 2)), of(took.last()));
                format!(
                    "{}from a new master to a waiter's lock, of {}: p50 {p50:.0} ms, max {max:.0} \
                     ms (at most {FAILOVER_MS})\n",
                    report.text(),
                    took.len(),
                )
            }
            Measured::Quorum { same, cross } => quorum_text(&[same.as_ref(), cross.as_ref()]),
        }
    }
}

fn quorum_text(places: &[Option<&Figures>; 2]) -> String {
    let mut text = format!("{:<44}{:>10}{:>10}\n", "", "same core", "cross");
    let mut row = |title: &str, column: &dyn Fn(&Figures) -> Option<f64>, decimals: usize| {
        let figures = places.map(|place| place.and_then(column));
        if figures.iter().all(Option::is_none) {
            return;
        }
        let cells = figures.map(|figure| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
        });
        text += &format!("{title:<44}{:>10}{:>10}\n", cells[0], cells[1]);
    };
    let at_most = |title: &str, bar: f64| format!("{title} (at most {bar})");
    row("the bare limit of an acquire, µs", &|figures| figures.limit_acquire, 1);
    row("our acquire, µs", &|figures| Some(figures.acquire), 1);
    row(&at_most("  over the limit", ACQUIRE), &Figures::acquire_ratio, 2);
    row("the bare limit of a cycle, µs", &|figures| figures.limit_cycle, 1);
    row("our cycle, µs", &|figures| figures.cycle, 1);
    row("  over the limit", &Figures::cycle_ratio, 2);
    row(
        &at_most("scripts a node and acquire", COMMANDS),
        &|figures| figures.commands_per_acquire,
        2,
    );
    row("our acquire with one dead, µs", &|figures| Some(figures.one_dead.as_ref()?.acquire), 1);
    row(&at_most("  over all alive", ONE_DEAD), &Figures::one_dead_ratio, 2);
    row(
        "the first acquire more than all alive, µs",
        &|figures| Some(figures.one_dead.as_ref()?.first_extra),
        0,
    );
    row("  at worst", &|figures| Some(figures.one_dead.as_ref()?.first_extra_worst), 0);
    text
}

impl Figures {
    fn acquire_ratio(&self) -> Option<f64> {
        over(self.acquire, self.limit_acquire?)
    }

    fn cycle_ratio(&self) -> Option<f64> {
        over(self.cycle?, self.limit_cycle?)
    }

    fn one_dead_ratio(&self) -> Option<f64> {
        over(self.one_dead.as_ref()?.acquire, self.acquire)
    }

    fn json(&self) -> Value {
        let mut json = Map::new();
        let mut key = |key: &str, figure| {
            json.insert(key.to_owned(), json!(rounded(figure)));
        };
        key("acquire_us", Some(self.acquire));
        match &self.one_dead {
            None => {
                key("limit_acquire_us", self.limit_acquire);
                key("acquire_ratio", self.acquire_ratio());
                key("limit_cycle_us", self.limit_cycle);
                key("cycle_us", self.cycle);
                key("cycle_ratio", self.cycle_ratio());
                key("scripts_per_node_and_acquire", self.commands_per_acquire);
            }
            Some(OneDead { acquire, first_extra, first_extra_worst }) => {
                key("one_dead_acquire_us", Some(*acquire));
                key("one_dead_ratio", self.one_dead_ratio());
                key("first_extra_us", Some(*first_extra));
                key("first_extra_worst_us", Some(*first_extra_worst));
            }
        }
        Value::Object(json)
    }
}

fn over(figure: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| figure / base)
}

fn millis(time: &Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
