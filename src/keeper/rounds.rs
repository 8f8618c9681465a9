//! The keeper's thread: what it does, round by round.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::book::{Book, Debt};
use super::{Core, Owed, SETTLE};
use crate::clock::{Deadline, Moment};
use crate::events::{EventKind, LossReason};
use crate::grant::{Ended, Grant, Step};
use crate::jitter::Jitter;
use crate::store::{Lane, Outcome, Reach, Reply, Request};
use crate::sync::MutexGuard;
use crate::token::Token;

/// Requests in one pipeline: small enough to be done well before anything else falls due.
const PIPELINE: usize = 128;
/// However near the next end is, a request gets this long to be answered; cutting it shorter
/// would only make the connection unusable.
const LEAST: Duration = Duration::from_millis(5);

/// How often it looks while it would have to be woken again and again: waking a thread costs whoever
/// does so more than that.
const OFTEN: Duration = Duration::from_millis(25);

pub(super) fn run(core: &Core) {
    // A logger of the host's may panic here. Going on without a keeper would grant leases that
    // nobody renews, so the client ends, and says so.
    let rounds = std::panic::AssertUnwindSafe(|| rounds(core));
    if std::panic::catch_unwind(rounds).is_err() {
        let now = Moment::now();
        core.gate.close();
        core.room.close();
        if let Some(listener) = core.store.listener() {
            listener.close();
        }
        let grants = {
            let mut book = core.book.lock();
            book.close(Deadline::at(now));
            book.clear()
        };
        for grant in grants.iter().filter(|grant| grant.end(now) != Ended::Before) {
            core.metrics.lost.add_one();
            core.raise(&grant.identity, EventKind::Lost(LossReason::NotRenewed));
        }
        core.hub.close();
        // Last, and caught: it may be the logger that panicked.
        let say = || log::error!("a client's thread has failed; the client is closed");
        let _ = std::panic::catch_unwind(say);
    }
    core.store.close();
}

fn rounds(core: &Core) {
    let mut jitter = Jitter::seeded(Moment::now().as_nanos());
    let watch_every = core.store.watch_every();
    loop {
        if watch_every.is_some() {
            core.store.watch(&|| lose_all(core));
        }
        let (due, debts, settling) = {
            let mut book = core.book.lock();
            loop {
                if let Some(deadline) = book.closing() {
                    let grants = book.clear();
                    drop(book);
                    close(core, grants, deadline);
                    return;
                }
                let now = Moment::now();
                let due = book.due(now, PIPELINE);
                let debts = book.take_owed(now, PIPELINE);
                let settling = book.take_settling(now);
                if !due.is_empty() || !debts.is_empty() || settling {
                    book.asleep_until = Moment::ZERO;
                    break (due, debts, settling);
                }
                book = sleep(core, book, now, watch_every);
                if watch_every.is_some() {
                    // Not while others wait for the book: a disk may stand still.
                    break (Vec::new(), Vec::new(), false);
                }
            }
        };
        let asks = !due.is_empty() || !debts.is_empty();
        tend(core, due, &mut jitter);
        if !debts.is_empty() {
            let left = give(core, debts, deadline(core));
            let (mut book, now) = (core.book.lock(), Moment::now());
            left.into_iter().for_each(|debt| book.owe_again(debt, now));
        }
        if asks {
            // Nobody else may come by for a long time.
            core.look_after();
        }
        if settling {
            settle(core);
        }
    }
}

fn sleep<'a>(
    core: &Core,
    mut book: MutexGuard<'a, Book>,
    now: Moment,
    watch_every: Option<Duration>,
) -> MutexGuard<'a, Book> {
    // This sleep stands still while the machine is suspended, and leases do not: whoever holds
    // some looks again soon after it woke.
    let longest = match book.is_empty() {
        _ if now < book.brisk_until => OFTEN,
        true => Duration::from_secs(3600),
        false => Duration::from_secs(1),
    };
    let longest = longest.min(watch_every.unwrap_or(longest));
    let until = book.next_due().min(now.plus(longest));
    book.asleep_until = until;
    core.wake.wait_for(book, until.since(now))
}

/// By when a request of the keeper must be over.
fn deadline(core: &Core) -> Deadline {
    let now = Moment::now();
    let latest = core.book.lock().request_end(now);
    Deadline::at(latest.min(now.plus(core.io_timeout)).max(now.plus(LEAST)))
}

/// Renews, warns and tells losses, and files what lives on anew.
fn tend(core: &Core, due: Vec<Arc<Grant>>, jitter: &mut Jitter) {
    let now = Moment::now();
    let mut renewals = Vec::with_capacity(due.len());
    let mut rest = Vec::new();
    for grant in due {
        match grant.step(now) {
            Step::Renew { ttl, reach } => {
                renewals.push((grant, ttl, reach));
                continue;
            }
            Step::Lose(reason) => core.tell_lost(&grant, reason),
            Step::Warn => core.tell(&grant.identity, EventKind::AtRisk),
            Step::Rest | Step::Forget => {}
        }
        rest.push(grant);
    }
    refile(core, rest);
    if renewals.is_empty() {
        return;
    }
    // The ends of what is being renewed still stand in the book, and bound the deadline.
    let outcomes = {
        let requests: Vec<_> = renewals
            .iter()
            .map(|(grant, ttl, reach)| Request::Extend {
                name: &grant.identity.name,
                token: grant.identity.token,
                fence: grant.identity.fence,
                ttl: *ttl,
                reach: *reach,
            })
            .collect();
        core.store.run(Lane::Keeper, &requests, deadline(core))
    };
    let now = Moment::now();
    let failures = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    if let Some(first) = failures.clone().next() {
        // One line a round: in an outage there may be as many failures as leases.
        let (count, all) = (failures.count(), renewals.len());
        log::warn!("{count} of {all} renewals failed; the first: {}", first.error);
    }
    for ((grant, ttl, reach), outcome) in renewals.iter().zip(outcomes) {
        renewed(core, grant, *ttl, *reach, outcome, now, jitter);
    }
    refile(core, renewals.into_iter().map(|(grant, ..)| grant));
}

fn renewed(
    core: &Core,
    grant: &Grant,
    ttl: Duration,
    reach: Reach,
    outcome: Outcome,
    now: Moment,
    jitter: &mut Jitter,
) {
    match outcome {
        Ok(answer) if answer.reply == Reply::Extended => {
            if reach == Reach::Refresh {
                grant.refreshed(answer.sent);
            }
            if grant.extended(answer.sent, ttl, now) {
                core.metrics.renewed.add_one();
            }
        }
        Ok(answer) if answer.reply == Reply::NotMine => {
            if grant.end(now) != Ended::Before {
                core.tell_lost(grant, LossReason::NotHeld);
            } else {
                core.end_turns(&grant.identity, now);
            }
        }
        Ok(answer) => {
            log::error!("the store answered {:?} to a renewal", answer.reply);
            grant.renewal_failed(now, |span| jitter.around(span));
        }
        Err(failure) => {
            log::debug!(
                "renewing the lease on '{}': {}",
                grant.identity.name.escape_ascii(),
                failure.error
            );
            grant.renewal_failed(now, |span| jitter.around(span));
        }
    }
}

/// Where they were kept is no more.
fn lose_all(core: &Core) {
    let now = Moment::now();
    let grants: Vec<_> = {
        let mut book = core.book.lock();
        book.lost_at = now;
        book.grants().cloned().collect()
    };
    for grant in &grants {
        if grant.end(now) != Ended::Before {
            core.tell_lost(grant, LossReason::NotHeld);
        } else {
            core.end_turns(&grant.identity, now);
        }
    }
    refile(core, grants);
}

/// Files grants under their new moments; those that are over leave the book.
fn refile(core: &Core, grants: impl IntoIterator<Item = Arc<Grant>>) {
    let mut book = core.book.lock();
    for grant in grants {
        book.insert(grant);
    }
}

/// Sends gives and returns those that must be sent again: a give that found nothing proves
/// nothing, since the request that it answers can still be on its way.
fn give(core: &Core, debts: Vec<Debt>, deadline: Deadline) -> Vec<Debt> {
    let outcomes = {
        let requests: Vec<_> = debts.iter().map(|debt| debt.owed.identity.give()).collect();
        core.store.run(Lane::Keeper, &requests, deadline)
    };
    let settled = |outcome: &Outcome| matches!(outcome, Ok(answer) if answer.reply == Reply::Given);
    debts
        .into_iter()
        .zip(outcomes)
        .filter(|(_, outcome)| !settled(outcome))
        .map(|(mut debt, outcome)| {
            if outcome.is_err() {
                debt.unanswered(Moment::now());
            }
            debt
        })
        .collect()
}

/// Reads the replies to gives that nobody waited for, and comes back for those that are not there
/// yet. It comes back once more after something was let go of, so that a program that goes on doing
/// so need not wake this thread each time.
fn settle(core: &Core) {
    let again = core.settling.swap(false, Ordering::AcqRel);
    // A connection in use from cycle to cycle is read by whoever uses it.
    let before = Moment::now().minus(SETTLE / 2);
    conclude(core, before, deadline(core));
    let held = |tokens: &[Token]| {
        let (mut held, mut behind) = (Vec::new(), Some((Moment::ZERO, 0)));
        while let Some(last) = behind {
            behind = core.book.lock().held(tokens, last, &mut held);
        }
        held
    };
    core.store.mend(&held, deadline(core));
    let now = Moment::now();
    let at = match core.store.owed_since().map(|since| since.plus(SETTLE)) {
        Some(due) if due > now => due,
        None if !again => return,
        _ => now.plus(SETTLE),
    };
    core.book.lock().settle_at(at);
}

fn conclude(core: &Core, before: Moment, deadline: Deadline) {
    for (owed, outcome) in core.store.settle(before, deadline) {
        core.conclude(owed, outcome);
    }
}

/// Makes every lease invalid, then gives all of them and what is owed, until the deadline.
fn close(core: &Core, grants: Vec<Arc<Grant>>, deadline: Deadline) {
    let now = Moment::now();
    let mut book = Book::default();
    for grant in &grants {
        if grant.end(now) != Ended::Before {
            let until = grant.kept_until(now);
            book.owe(Owed { identity: grant.identity.clone(), until }, now);
        }
    }
    for debt in core.book.lock().settle() {
        book.owe(debt.owed, now);
    }
    // A give that was answered is done with, whatever the answer: there is no time to wait for
    // delayed requests, and the ttl ends those.
    let mut unheard = true;
    loop {
        if unheard {
            // What fails is owed in the core's own book.
            conclude(core, Moment::NEVER, request_deadline(core, deadline));
            unheard = core.store.owed_since().is_some();
        }
        let left: Vec<_> = core.book.lock().settle().collect();
        left.into_iter().for_each(|debt| book.owe(debt.owed, now));
        if (book.owes_nothing() && !unheard) || deadline.has_passed() {
            break;
        }
        let debts = book.take_owed(Moment::now(), PIPELINE);
        if debts.is_empty() {
            let pause = Duration::from_millis(if unheard { 1 } else { 10 });
            std::thread::sleep(deadline.left().min(pause));
            continue;
        }
        let requests: Vec<_> = debts.iter().map(|debt| debt.owed.identity.give()).collect();
        let outcomes = core.store.run(Lane::Keeper, &requests, request_deadline(core, deadline));
        unheard |= core.store.owed_since().is_some();
        let now = Moment::now();
        let unanswered = debts.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.is_err());
        for (mut debt, _) in unanswered {
            debt.unanswered(now);
            book.owe_again(debt, now);
        }
    }
    core.hub.close();
}

fn request_deadline(core: &Core, deadline: Deadline) -> Deadline {
    deadline.min(Deadline::after(core.io_timeout))
}
