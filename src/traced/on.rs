//! The spans.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::field::Empty;
use tracing::{Span, dispatcher, info_span};

use crate::sync::Mutex;

/// The span of a call, whichever threads go on with it.
pub(crate) struct CallSpan {
    span: Span,
    /// In which the call was made. A lease is part of that, and not of its call.
    outer: Span,
}

/// The span of a lease, while it lasts.
#[derive(Default)]
pub(crate) struct LeaseSpan {
    span: Mutex<Option<Span>>,
}

/// A subscriber is code of the program's. If it panics, the lock goes on without a span. Of what it is
/// told, each thing stands alone: a second panic, of a span that is dropped meanwhile, would abort.
fn contained<T>(tell: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(tell)).map_err(std::mem::forget).ok()
}

fn current() -> Span {
    contained(Span::current).unwrap_or_else(Span::none)
}

fn close(span: Span) {
    contained(|| drop(span));
}

impl CallSpan {
    pub(crate) fn new<'a>(group: impl FnOnce() -> &'a str) -> CallSpan {
        let span = contained(|| {
            info_span!(
                target: "leasehold",
                "leasehold.wait",
                leasehold.group = group(),
                leasehold.outcome = Empty,
            )
        });
        CallSpan { span: span.unwrap_or_else(Span::none), outer: current() }
    }

    pub(crate) fn ended(&self, outcome: &str) {
        contained(|| {
            self.span.record("leasehold.outcome", outcome);
        });
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        close(replace(&mut self.span, Span::none()));
        close(replace(&mut self.outer, Span::none()));
    }
}

impl LeaseSpan {
    /// Within what the call was made in; without one, in what this thread is in.
    pub(crate) fn begin<'a>(
        &self,
        call: Option<&CallSpan>,
        group: impl Fn() -> &'a str,
        fence: u64,
    ) {
        let make = |parent: &Span| {
            info_span!(
                target: "leasehold",
                parent: parent,
                "leasehold.hold",
                leasehold.group = group(),
                leasehold.fence = fence,
                leasehold.outcome = Empty,
                leasehold.reason = Empty,
            )
        };
        let Some(CallSpan { span, outer }) = call else {
            let parent = current();
            *self.span.lock() = contained(|| make(&parent));
            return close(parent);
        };
        // By the subscriber of the call, which this thread need not have.
        let made = contained(|| {
            span.with_subscriber(|(_, its)| dispatcher::with_default(its, || make(outer)))
        });
        *self.span.lock() = made.flatten();
    }

    pub(crate) fn end(&self, outcome: &str) {
        self.over(outcome, None);
    }

    pub(crate) fn lost(&self, reason: &str) {
        self.over("lost", Some(reason));
    }

    fn over(&self, outcome: &str, reason: Option<&str>) {
        let Some(span) = self.span.lock().take() else { return };
        contained(|| {
            span.record("leasehold.outcome", outcome);
        });
        if let Some(reason) = reason {
            contained(|| {
                span.record("leasehold.reason", reason);
            });
        }
        close(span);
    }
}

impl Drop for LeaseSpan {
    fn drop(&mut self) {
        if let Some(span) = self.span.lock().take() {
            close(span);
        }
    }
}
