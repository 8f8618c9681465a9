//! The table, read.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    behaviour: Vec<Behaviour>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Behaviour {
    pub(crate) name: String,
    steps: String,
    /// Language and reason.
    #[serde(default)]
    not_in: BTreeMap<String, String>,
}

/// `who: command => answer`
pub(crate) struct Step<'a> {
    pub(crate) who: &'a str,
    pub(crate) command: &'a str,
    pub(crate) answer: Option<&'a str>,
}

pub(crate) fn read() -> Vec<Behaviour> {
    let table: Table = toml::from_str(include_str!("table.toml")).unwrap();
    table.behaviour
}

impl Behaviour {
    /// The name of its tests, as functions are named.
    pub(crate) fn test(&self) -> String {
        let words = self.name.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_").to_lowercase()
    }

    /// Why a language cannot play it.
    pub(crate) fn why_not_in(&self, language: &str) -> Option<&str> {
        self.not_in.get(language).map(String::as_str)
    }

    /// Whether several drivers take part, each of them a process, or whoever plays is at the store, too.
    pub(crate) fn needs_a_shared_store(&self) -> bool {
        let mut parts: Vec<_> = self.steps().map(|step| step.who).collect();
        parts.retain(|who| !matches!(*who, "sleep" | "check"));
        parts.sort_unstable();
        parts.dedup();
        parts.len() > 1
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.steps.lines().filter(|line| !line.trim().is_empty()).map(|line| {
            let (who, rest) = line.split_once(':').unwrap_or_else(|| panic!("no step: {line}"));
            let (command, answer) = match rest.split_once("=>") {
                Some((command, answer)) => (command, Some(answer.trim())),
                None => (rest, None),
            };
            Step { who: who.trim(), command: command.trim(), answer }
        })
    }
}
