//! What has changed between two looks at a lock, as far as two looks can tell.

use std::time::Instant;

use leasehold::{Error, Holder, LockState, Waiter};
use serde_json::{Value, json};

use crate::show::{client, millis, seconds, who};

/// Whose grant was broken last, and who did it.
#[derive(Clone)]
pub(super) struct Note {
    pub(super) token_prefix: String,
    pub(super) by: String,
}

/// One look.
pub(super) struct Seen {
    pub(super) state: LockState,
    /// The state is that of a moment between these two.
    pub(super) asked: Instant,
    pub(super) answered: Instant,
}

/// One line, for people and for programs.
pub(super) struct Change {
    pub(super) text: String,
    /// Its keys are the same for all changes.
    pub(super) json: Value,
}

impl Change {
    fn new(event: &str, text: String, now: &LockState) -> Change {
        let json = json!({
            "event": event, "fence": null, "token_prefix": null, "ttl_ms": null, "client": null,
            "waiting": in_line(now), "by": null, "error": null,
        });
        Change { text, json }
    }

    /// Of who has it since, or had it until then.
    fn of_holder(event: &str, text: String, now: &LockState, holder: &Holder) -> Change {
        let mut change = Change::new(event, text, now);
        change.json["fence"] = json!(holder.fence);
        change.json["token_prefix"] = json!(holder.fence.map(|_| &holder.token_prefix));
        change.json["ttl_ms"] = json!(millis(holder.ttl));
        change.json["client"] = json!(holder.client.as_ref().map(client));
        change
    }

    fn of_fence(event: &str, text: &str, now: &LockState) -> Change {
        let shown =
            now.last_fence.map_or_else(String::new, |fence| format!(", last fence {fence}"));
        let mut change = Change::new(event, format!("{text}{shown}"), now);
        change.json["fence"] = json!(now.last_fence);
        change
    }

    fn of_waiter(event: &str, what: &str, now: &LockState, waiter: &Waiter) -> Change {
        let mut who = waiter.clone();
        who.waited = None;
        let mut change = Change::new(event, format!("{who} {what}, {} in line", in_line(now)), now);
        change.json["token_prefix"] = json!(waiter.token_prefix);
        change.json["client"] = json!(waiter.client.as_ref().map(client));
        change
    }
}

/// What is known of a lock by the looks so far.
#[derive(Default)]
pub(super) struct Watched {
    last: Option<Seen>,
    is_unseen: bool,
}

impl Watched {
    pub(super) fn has_been_seen(&self) -> bool {
        self.last.is_some()
    }

    /// Told once, until it is seen again.
    pub(super) fn unseen(&mut self, error: &str) -> Option<Change> {
        let is_told = std::mem::replace(&mut self.is_unseen, true);
        let text = format!("cannot be seen: {error}");
        let mut change = Change::new("unseen", text, &LockState::default());
        (change.json["error"], change.json["waiting"]) = (json!(error), Value::Null);
        (!is_told).then_some(change)
    }

    /// `note` is asked for where a grant has ended. It may be of an earlier one.
    /// An error of it leaves all as it was before this look.
    pub(super) fn seen(
        &mut self,
        seen: Seen,
        note: impl FnOnce() -> Result<Option<Note>, Error>,
    ) -> Result<Vec<Change>, Error> {
        let now = &seen.state;
        let mut changes = Vec::new();
        match (&self.last, &now.holder) {
            (None, Some(holder)) => {
                let (who, left) = (who(holder), seconds(holder.ttl));
                let text =
                    format!("{who}, free in {left} unless renewed, {} in line", in_line(now));
                changes.push(Change::of_holder("held", text, now, holder));
            }
            (None, None) => changes.push(Change::of_fence("free", "free", now)),
            (Some(last), _) if grant(&last.state) != grant(now) => {
                let ended = last.state.holder.as_ref().map(|holder| &*holder.token_prefix);
                let note = if ended.is_some() { note()? } else { None };
                let note = note.filter(|it| ended == Some(&*it.token_prefix));
                turn(last, &seen, note.as_ref().map(|note| &*note.by), &mut changes);
            }
            // Free at both looks.
            (Some(last), None)
                if last.state.last_fence.is_some()
                    && now.last_fence.is_some_and(|fence| last.state.last_fence != Some(fence)) =>
            {
                let text = "free again: a turn or more went by unseen";
                changes.push(Change::of_fence("passed_unseen", text, now));
            }
            _ => {}
        }
        if let Some(last) = &self.last {
            line(&last.state, now, &mut changes);
        }
        (self.last, self.is_unseen) = (Some(seen), false);
        Ok(changes)
    }
}

fn in_line(state: &LockState) -> u64 {
    state.waiters.len() as u64 + state.more_waiters
}

fn grant(state: &LockState) -> Option<(&str, Option<u64>)> {
    state.holder.as_ref().map(|holder| (&*holder.token_prefix, holder.fence))
}

/// Whether both are tokens of one client, whose number their first digits are.
fn is_of(one: &str, other: &str) -> bool {
    one.get(..12) == other.get(..12)
}

fn is_waiting(state: &LockState, token_prefix: &str) -> bool {
    state.waiters.iter().any(|waiter| is_of(&waiter.token_prefix, token_prefix))
}

/// One grant is over, or another one has begun, or both.
fn turn(last: &Seen, seen: &Seen, by: Option<&str>, changes: &mut Vec<Change>) {
    let (old, new) = (last.state.holder.as_ref(), seen.state.holder.as_ref());
    let was_waiting = new.is_some_and(|new| is_waiting(&last.state, &new.token_prefix));
    let mut event = ("taken", "taken");
    if let Some(old) = old {
        let fence = old.fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
        let can_be_over = old.ttl <= seen.answered.saturating_duration_since(last.asked);
        let ends = |event, text: &str| {
            Change::of_holder(event, format!("{text}{fence}"), &seen.state, old)
        };
        // With another fence the same client goes on: that is its next turn.
        let goes_on = new.is_some_and(|new| is_of(&new.token_prefix, &old.token_prefix));
        if let Some(by) = by {
            let mut change = ends("broken", &format!("broken by {by}"));
            change.json["by"] = json!(by);
            changes.push(change);
        } else if can_be_over && !goes_on {
            changes.push(ends("expired", "expired, or released just before that"));
        } else if !was_waiting && !goes_on {
            changes.push(ends("given_back", "released"));
        }
        if was_waiting && !can_be_over {
            event = ("handed_over", "handed over");
        }
    }
    if let Some(new) = new {
        let mut shown = new.clone();
        shown.held = None;
        let text = format!("{}: {}", event.1, who(&shown));
        changes.push(Change::of_holder(event.0, text, &seen.state, new));
    }
}

fn line(before: &LockState, now: &LockState, changes: &mut Vec<Change>) {
    // Of so many, the store does not name all.
    if before.more_waiters > 0 || now.more_waiters > 0 {
        if in_line(before) != in_line(now) {
            changes.push(Change::new("waiting", format!("{} in line", in_line(now)), now));
        }
        return;
    }
    for one in &before.waiters {
        let has_it =
            now.holder.as_ref().is_some_and(|it| is_of(&it.token_prefix, &one.token_prefix));
        if !has_it && !is_waiting(now, &one.token_prefix) {
            changes.push(Change::of_waiter("waits_no_more", "waits no more", now, one));
        }
    }
    let came = now.waiters.iter().filter(|one| !is_waiting(before, &one.token_prefix));
    changes.extend(came.map(|one| Change::of_waiter("waits", "waits", now, one)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A look each second: the holder's token, ttl in seconds and fence, and who waits.
    struct Looks {
        watched: Watched,
        at: Instant,
        note: Option<Note>,
    }

    impl Looks {
        fn new() -> Looks {
            Looks { watched: Watched::default(), at: Instant::now(), note: None }
        }

        fn broken(&mut self, token: &str) {
            self.note = Some(Note { token_prefix: token.repeat(16), by: "root@web-3".into() });
        }

        fn see(&mut self, holder: Option<(&str, u64, u64)>, waiters: &[&str]) -> Vec<String> {
            self.see_free(holder, waiters, None)
        }

        fn see_free(
            &mut self,
            holder: Option<(&str, u64, u64)>,
            waiters: &[&str],
            last_fence: Option<u64>,
        ) -> Vec<String> {
            let mut state = LockState::default();
            state.last_fence = last_fence;
            state.holder = holder.map(|(token, ttl, fence)| {
                let mut holder = Holder::default();
                holder.token_prefix = token.repeat(16);
                (holder.ttl, holder.fence) = (Duration::from_secs(ttl), Some(fence));
                holder
            });
            let waiter = |token: &&str| {
                let mut waiter = Waiter::default();
                waiter.token_prefix = token.repeat(16);
                waiter
            };
            state.waiters = waiters.iter().map(waiter).collect();
            self.at += Duration::from_secs(1);
            let (asked, answered) = (self.at, self.at + Duration::from_millis(1));
            let note = self.note.clone();
            let changes = self.watched.seen(Seen { state, asked, answered }, || Ok(note)).unwrap();
            changes.into_iter().map(|change| change.text).collect()
        }
    }

    const A: Option<(&str, u64, u64)> = Some(("a", 30, 7));
    const A_HOLDS: &str = "held by client aaaaaaaaaaaa, fence 7";

    #[test]
    fn a_renewal_is_no_change_and_a_turn_is_taken_and_given_back() {
        let mut looks = Looks::new();
        assert_eq!(looks.see_free(None, &[], Some(3)), ["free, last fence 3"]);
        assert_eq!(looks.see(A, &[]), [format!("taken: {A_HOLDS}")]);
        assert!(looks.see(Some(("a", 29, 7)), &[]).is_empty());
        assert!(looks.see(A, &[]).is_empty());
        assert_eq!(looks.see(None, &[]), ["released, fence 7"]);
        assert!(looks.see(None, &[]).is_empty());
    }

    #[test]
    fn a_lock_is_handed_over_to_one_that_waited_and_else_taken() {
        let mut looks = Looks::new();
        let first = format!("{A_HOLDS}, free in 30s unless renewed, 0 in line");
        assert_eq!(looks.see(A, &[]), [first]);
        assert_eq!(looks.see(A, &["b"]), ["client bbbbbbbbbbbb waits, 1 in line"]);
        let b = Some(("b", 30, 8));
        assert_eq!(
            looks.see(b, &[]),
            ["handed over: held by client bbbbbbbbbbbb, fence 8"],
            "who has its turn has not gone away"
        );
        let c = Some(("c", 30, 9));
        let said = ["released, fence 8", "taken: held by client cccccccccccc, fence 9"];
        assert_eq!(looks.see(c, &[]), said);
        let again = Some(("c", 30, 10));
        assert_eq!(looks.see(again, &[]), ["taken: held by client cccccccccccc, fence 10"]);
    }

    #[test]
    fn a_ttl_that_may_have_run_out_is_not_said_to_be_given_back() {
        let mut looks = Looks::new();
        looks.see(Some(("a", 1, 7)), &["b"]);
        let said = [
            "expired, or released just before that, fence 7",
            "taken: held by client bbbbbbbbbbbb, fence 8",
        ];
        assert_eq!(looks.see(Some(("b", 30, 8)), &[]), said);
    }

    #[test]
    fn a_break_is_told_once_and_not_of_a_later_turn() {
        let mut looks = Looks::new();
        looks.see(A, &["b"]);
        looks.broken("a");
        let b = Some(("b", 30, 8));
        assert_eq!(
            looks.see(b, &[]),
            ["broken by root@web-3, fence 7", "handed over: held by client bbbbbbbbbbbb, fence 8"]
        );
        assert_eq!(looks.see(None, &[]), ["released, fence 8"]);
    }

    #[test]
    fn a_break_of_an_earlier_grant_is_not_told_of_a_later_one() {
        let mut looks = Looks::new();
        looks.see(A, &[]);
        // The store had not answered about it until now; and it is of one that nobody saw.
        looks.broken("c");
        assert_eq!(looks.see(None, &[]), ["released, fence 7"]);
    }

    #[test]
    fn a_turn_that_nobody_saw_is_told_as_far_as_the_fence_tells() {
        let mut looks = Looks::new();
        looks.see_free(None, &[], Some(3));
        assert!(looks.see_free(None, &[], Some(3)).is_empty());
        let said = ["free again: a turn or more went by unseen, last fence 9"];
        assert_eq!(looks.see_free(None, &[], Some(9)), said);
        assert!(looks.see_free(None, &[], None).is_empty(), "the store has forgotten it");
    }

    #[test]
    fn waiters_come_and_go() {
        let mut looks = Looks::new();
        looks.see(A, &["b"]);
        let said = [
            "client bbbbbbbbbbbb waits no more, 1 in line",
            "client cccccccccccc waits, 1 in line",
        ];
        assert_eq!(looks.see(A, &["c"]), said);
    }

    #[test]
    fn a_store_that_does_not_answer_is_told_of_once() {
        let mut looks = Looks::new();
        looks.see(A, &[]);
        let told = |change: Option<Change>| change.map(|change| change.text);
        assert_eq!(told(looks.watched.unseen("down")).unwrap(), "cannot be seen: down");
        assert_eq!(told(looks.watched.unseen("down")), None);
        assert!(looks.see(A, &[]).is_empty());
        assert!(told(looks.watched.unseen("down")).is_some());
    }

    #[test]
    fn every_line_of_json_has_the_same_keys() {
        let mut looks = Looks::new();
        let keys =
            |change: &Change| change.json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let unseen = looks.watched.unseen("down").unwrap();
        let at = Instant::now();
        let seen = Seen { state: LockState::default(), asked: at, answered: at };
        let free = looks.watched.seen(seen, || Ok(None)).unwrap();
        assert_eq!(keys(&unseen), keys(&free[0]));
        assert_eq!(keys(&unseen).len(), 8);
    }
}
