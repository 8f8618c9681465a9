//! The keeper's thread: what it does each time it wakes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::book::Book;
use super::core::Core;
use super::register::REFUSED;
use crate::clock::{Deadline, Moment};
use crate::error::ErrorKind;
use crate::events::{EventKind, Loss, LossReason};
use crate::grant::{Ended, Grant, KeeperAction};
use crate::jitter::Jitter;
use crate::said::say;
use crate::store::outbox::{Concern, READ_AFTER};
use crate::store::{Kept, Lane, Reach, Reply};
use crate::sync::MutexGuard;
use crate::token::Token;

/// Requests in one pipeline: small enough to be done well before anything else falls due.
const PIPELINE: usize = 128;
/// However near the next end is, a request gets this long to be answered; cutting it shorter
/// would only make the connection unusable.
const LEAST: Duration = Duration::from_millis(5);
/// The shortest sleep of a thread that only expects another grant like the last ones.
const NAP: Duration = Duration::from_millis(10);

/// The longest sleep while there are leases, or new ones come now and then.
const LONGEST_NAP: Duration = Duration::from_secs(1);

pub(super) fn run(core: &Core) {
    // The program's logger may panic here. Going on without a keeper would grant leases that nobody
    // renews, so the client ends, and says so.
    let work = std::panic::AssertUnwindSafe(|| work(core));
    if std::panic::catch_unwind(work).is_err() {
        let now = Moment::now();
        core.shut(Deadline::at(now));
        let grants = core.book.lock().clear();
        for grant in grants.iter().filter(|grant| grant.end(now) != Ended::Before) {
            core.metrics.of(grant.terms.group).lost.add_one();
            core.observe_hold(grant, now);
            let reason = LossReason::NotRenewed;
            *grant.loss.lock() = Some(Loss { reason, detail: None });
            core.raise(&grant.identity, grant.id, EventKind::Lost(reason), None);
            grant.span.lost(reason.word());
        }
        core.outbox.end(true);
        core.hub.close();
        // Last, and caught: it may be the logger that panicked.
        let _ = std::panic::catch_unwind(|| say!(Error, "client-failed"));
    }
    core.store.close();
}

fn work(core: &Core) {
    let mut jitter = Jitter::seeded(Moment::now().as_nanos());
    let (watch_every, mut noted, mut is_failing) = (core.store.abilities().watch_every, 0, false);
    loop {
        if watch_every.is_some() {
            core.store.watch(&|| lose_all(core));
        }
        let due = {
            let mut book = core.book.lock();
            loop {
                if let Some(deadline) = book.closing {
                    let grants = book.clear();
                    drop(book);
                    close(core, grants, deadline);
                    return;
                }
                let now = Moment::now();
                let due = book.due(now, PIPELINE);
                if !due.is_empty() || core.due() <= now {
                    break due;
                }
                book = sleep(core, book, now, (watch_every, &mut noted));
                if watch_every.is_some() {
                    // `watch` comes next, with the book unlocked: a disk may block it.
                    break Vec::new();
                }
            }
        };
        act_on_due(core, due, &mut jitter, &mut is_failing);
        let now = Moment::now();
        if core.due() <= now {
            core.store.tend(
                now.minus(READ_AFTER / 2),
                &|tokens| relied_on(core, tokens),
                deadline(core),
            );
            core.outbox.were_read(now);
            pay(core, deadline(core));
            register(core, &mut jitter);
        }
    }
}

fn sleep<'a>(
    core: &Core,
    mut book: MutexGuard<'a, Book>,
    now: Moment,
    (watch_every, noted): (Option<Duration>, &mut u64),
) -> MutexGuard<'a, Book> {
    // While the machine is suspended this sleep stands still, and leases run out: a client with
    // leases looks again soon after the machine has woken. And a program that takes one lease after
    // the other need not wake the thread each time: the thread looks before anything can be due for
    // a grant like the last ones, and sleeps for long when none has come.
    let nap =
        book.brief.take().map_or(Duration::MAX, |brief| NAP.max(brief / 4 * 3).min(LONGEST_NAP));
    let before = std::mem::replace(noted, core.outbox.noted());
    let longest = match book.ends.is_empty() {
        _ if *noted != before => READ_AFTER,
        true => Duration::from_secs(3600),
        false => LONGEST_NAP,
    };
    let longest = longest.min(nap).min(watch_every.unwrap_or(longest));
    let until = book.next_due().min(now.plus(longest));
    core.asleep_until.store(until.as_nanos(), Ordering::SeqCst);
    let until = until.min(core.due());
    core.asleep_until.fetch_min(until.as_nanos(), Ordering::SeqCst);
    let book = core.wake.wait_for(book, until.since(now));
    core.asleep_until.store(0, Ordering::SeqCst);
    book
}

/// The deadline of a request of the keeper.
fn deadline(core: &Core) -> Deadline {
    let now = Moment::now();
    let latest = core.book.lock().request_end(now);
    Deadline::at(latest.min(now.plus(core.config.io_timeout)).max(now.plus(LEAST)))
}

/// Renews, warns and tells losses, and files the grants that live on anew.
fn act_on_due(core: &Core, due: Vec<Arc<Grant>>, jitter: &mut Jitter, is_failing: &mut bool) {
    let now = Moment::now();
    let mut renewals = Vec::with_capacity(due.len());
    let mut rest = Vec::new();
    for grant in due {
        match grant.action(now) {
            KeeperAction::Renew { ttl, reach } => {
                renewals.push((grant, ttl, reach));
                continue;
            }
            KeeperAction::Lose(reason) => core.report_lost(&grant, reason, None),
            KeeperAction::Warn => {
                core.raise_and_log(&grant.identity, grant.id, EventKind::AtRisk, None);
            }
            KeeperAction::Nothing => {}
        }
        rest.push(grant);
    }
    refile(core, rest);
    if renewals.is_empty() {
        return;
    }
    // The ends of what is being renewed still stand in the book, and bound the deadline.
    let requests = renewals.iter().map(|(grant, ttl, reach)| grant.identity.extend(*ttl, *reach));
    let requests: Vec<_> = requests.collect();
    let outcomes = core.store.run(Lane::Keeper, &requests, deadline(core));
    let now = Moment::now();
    let pairs = renewals.iter().zip(&outcomes);
    let failures =
        pairs.filter_map(|((grant, ..), outcome)| Some((grant, outcome.as_ref().err()?)));
    let has_failed = outcomes.iter().any(Result::is_err);
    if let Some((grant, failure)) = failures.clone().next() {
        // One line each time: in an outage there may be as many failures as leases.
        let (count, all) = (failures.count(), renewals.len());
        let (count, all) = (count as u64, all as u64);
        let lock = &*grant.identity.name;
        say!(Warn, "renewals-failed", count = count, of = all, lock = lock, error = failure.error);
        *is_failing = true;
    }
    let mut lost = Vec::new();
    // One pause for all that have failed in this round: they are tried together, and not one by one.
    let shared = jitter.split();
    for ((grant, ttl, reach), outcome) in renewals.iter().zip(outcomes) {
        core.measure(grant.terms.group, &outcome, now);
        match outcome {
            Ok(answer) if answer.reply == Reply::Extended => {
                let (figures, planned) = (core.metrics.of(grant.terms.group), grant.planned());
                if *reach == Reach::Claim {
                    grant.refreshed(answer.sent);
                }
                if grant.extended(answer.sent, *ttl, now) {
                    figures.renewed.add_one();
                    figures.renewal_delay.observe(planned, now);
                }
            }
            Ok(_) => lost.push(Arc::clone(grant)),
            Err(failure) => {
                let lock = &*grant.identity.name;
                say!(Debug, "renewal-failed", lock = lock, error = failure.error);
                grant.renewal_failed(now, |span| shared.clone().around(span));
            }
        }
    }
    core.not_held(&lost, now, Some(deadline(core)));
    refile(core, renewals.into_iter().map(|(grant, ..)| grant));
    let is_well = || !core.book.lock().ends.values().any(|grant| grant.is_failing());
    if *is_failing && !has_failed && is_well() {
        *is_failing = false;
        say!(Info, "renewals-go-on");
    }
}

/// The store has lost what it granted: all leases are lost.
pub(crate) fn lose_all(core: &Core) {
    let now = Moment::now();
    let grants: Vec<_> = {
        let mut book = core.book.lock();
        book.store_lost_at = now;
        core.losses.fetch_add(1, Ordering::Relaxed);
        book.ends.values().cloned().collect()
    };
    core.not_held(&grants, now, None);
    refile(core, grants);
}

/// Files grants under their new moments; those that are over leave the book.
fn refile(core: &Core, grants: impl IntoIterator<Item = Arc<Grant>>) {
    let mut book = core.book.lock();
    for grant in grants {
        book.insert(grant);
    }
}

/// Which of these tokens have leases that are relied on.
fn relied_on(core: &Core, tokens: &[Token]) -> Vec<Kept> {
    let tokens: HashSet<_> = tokens.iter().collect();
    let is_asked = |grant: &&Arc<Grant>| tokens.contains(&grant.identity.token);
    let grants: Vec<_> = core.book.lock().ends.values().filter(is_asked).cloned().collect();
    let now = Moment::now();
    let kept = |grant: &Arc<Grant>| {
        Some(Kept { identity: grant.identity.clone(), span: grant.kept_for(now)? })
    };
    grants.iter().filter_map(kept).collect()
}

/// Sends the gives that are due, and tells of releases that came too late. False if no give was
/// due.
fn pay(core: &Core, deadline: Deadline) -> bool {
    let due = core.outbox.take_due(Moment::now(), PIPELINE);
    if !due.is_empty() {
        let requests: Vec<_> = due.iter().map(|one| one.identity.give()).collect();
        let outcomes = core.store.run(Lane::Keeper, &requests, deadline);
        core.outbox.tried(&due, &outcomes);
    }
    let late = core.outbox.take_late();
    let asked: Vec<_> =
        late.iter().filter(|one| !one.is_unknown).map(|one| &one.identity).collect();
    let mut breaches = core.breaches(Lane::Keeper, &asked, deadline).into_iter();
    for late in &late {
        if late.is_unknown {
            core.figures(&late.identity.name).unknown.add_one();
            core.report_late(&late.identity, None);
        } else {
            core.report_late(&late.identity, breaches.next().flatten());
        }
    }
    !due.is_empty()
}

/// Tells the store who this client is, if it is time; the first time it also asks whether the store
/// could lose grants. Errors are only logged.
fn register(core: &Core, jitter: &mut Jitter) {
    let now = Moment::now();
    let next = core.register.next(now, jitter);
    let is_busy = || core.room.is_occupied() || !core.book.lock().ends.is_empty();
    if !core.register.begins(now, next, is_busy) {
        return;
    }
    // Renewals wait meanwhile, and may go to another server.
    let by = deadline(core).min(Deadline::after(core.config.io_timeout / 4));
    if core.register.take_ask() {
        match core.store.weakness(by) {
            Ok(None) => {}
            Ok(Some(why)) => {
                // Not a warning: nothing has happened, and it is so for as long as the store stands.
                let store = core.config.display_store();
                say!(Info, "unguarded", store = &*store, why = &*why);
            }
            Err(error) => say!(Debug, "guard-unknown", error = error),
        }
    }
    if !core.register.tells_or_rests() {
        return;
    }
    if let Err(error) = core.introduce_client(by) {
        say!(Debug, "record-untold", error = error);
        if matches!(error.kind(), ErrorKind::Permission | ErrorKind::WrongType) {
            core.register.rests(now.plus(REFUSED));
        }
    }
}

/// Makes every lease invalid, then sends their gives and all that are owed, until the deadline.
fn close(core: &Core, grants: Vec<Arc<Grant>>, deadline: Deadline) {
    let (now, outbox) = (Moment::now(), &core.outbox);
    outbox.close(now);
    for grant in &grants {
        if grant.end(now) != Ended::Before {
            core.observe_hold(grant, now);
            outbox.owe(grant.owed(now), Concern::Doubt, now);
        }
    }
    loop {
        let until = deadline.min(Deadline::after(core.config.io_timeout));
        core.store.tend(Moment::NEVER, &|_| Vec::new(), until);
        let has_paid = pay(core, until);
        let is_over = deadline.has_passed();
        if (is_over || core.store.due() == Moment::NEVER) && outbox.end(is_over) {
            break;
        }
        if !has_paid {
            let pause = if outbox.has_unread(Moment::NEVER) { 1 } else { 10 };
            // Explorations know this sleep, and have those go on meanwhile that have sent a give.
            let pause = deadline.left().min(Duration::from_millis(pause));
            drop(core.wake.wait_for(core.book.lock(), pause));
        }
    }
    if !deadline.has_passed()
        && core.register.is_forgotten()
        && let Err(error) = core.store.unregister(core.client)
    {
        say!(Debug, "record-left", error = error);
    }
    core.hub.close();
}
