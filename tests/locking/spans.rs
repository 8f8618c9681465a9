//! What a subscriber of `tracing` is told, with the feature of that name.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::stores::{LIMIT, Store, ms, on_each_store};
use kit::eventually;
use kit::futures::block_on;
use leasehold::{Client, Config, ErrorKind};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

on_each_store!(
    a_call_and_a_lease_have_a_span_each,
    a_future_has_them_too,
    a_call_without_a_lease_says_how_it_ended,
    a_loss_ends_the_span_of_the_lease,
    a_subscriber_that_panics_loses_no_lock,
);

/// One span: its name, its fields, the span that it stands in, and whether it has ended.
#[derive(Clone, Default)]
struct Seen {
    name: &'static str,
    metadata: Option<&'static Metadata<'static>>,
    fields: HashMap<&'static str, String>,
    parent: Option<u64>,
    is_over: bool,
}

impl Seen {
    fn said(&self, field: &str) -> &str {
        self.fields.get(&*format!("leasehold.{field}")).map_or("", String::as_str)
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").replace('"', ""));
    }
}

/// Keeps all spans, in the order in which they began.
#[derive(Clone, Default)]
struct Collector(Arc<Kept>);

#[derive(Default)]
struct Kept {
    spans: Mutex<Vec<Seen>>,
    /// The span that the tests' own thread is in.
    current: AtomicU64,
    panics: AtomicBool,
}

impl Collector {
    fn check(&self) {
        assert!(!self.0.panics.load(Ordering::Relaxed), "a subscriber with a mistake");
    }

    fn with<T>(&self, id: &Id, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.0.spans.lock().unwrap()[id.into_u64() as usize - 1])
    }

    /// Those of the library.
    fn seen(&self) -> Vec<Seen> {
        let spans = self.0.spans.lock().unwrap();
        spans.iter().filter(|one| one.name.starts_with("leasehold.")).cloned().collect()
    }

    /// Names and outcomes.
    fn outcomes(&self) -> Vec<(&'static str, String)> {
        self.seen().iter().map(|one| (one.name, one.said("outcome").to_owned())).collect()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.check();
        let current = self.0.current.load(Ordering::Relaxed);
        let contextual = (span.is_contextual() && current != 0).then_some(current);
        let parent = span.parent().map(Id::into_u64).or(contextual);
        let metadata = Some(span.metadata());
        let name = span.metadata().name();
        let mut seen = Seen { name, metadata, parent, ..Seen::default() };
        span.record(&mut seen);
        let mut spans = self.0.spans.lock().unwrap();
        spans.push(seen);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.check();
        self.with(id, |seen| values.record(seen));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.current.store(id.into_u64(), Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {
        self.0.current.store(0, Ordering::Relaxed);
    }

    /// All that follows is in one span: a clone is another handle of it.
    fn try_close(&self, id: Id) -> bool {
        self.check();
        self.with(&id, |seen| seen.is_over = true);
        true
    }

    fn current_span(&self) -> Current {
        let current = self.0.current.load(Ordering::Relaxed);
        if current == 0 {
            return Current::none();
        }
        let id = Id::from_u64(current);
        let metadata = self.with(&id, |seen| seen.metadata);
        metadata.map_or_else(Current::none, |metadata| Current::new(id, metadata))
    }
}

/// A client whose calls are collected, with a group of names.
fn client(store: &Store) -> (Client, Collector) {
    let config = Config::from_url(&store.url()).unwrap().metrics_group("stock:*");
    (Client::with_config(config).unwrap(), Collector::default())
}

fn a_call_and_a_lease_have_a_span_each(store: &Store) {
    let (client, collector) = client(store);
    tracing::subscriber::with_default(collector.clone(), || {
        tracing::info_span!("order").in_scope(|| {
            let lease = client.lock("stock:17").acquire().unwrap();
            let [wait, hold] = &collector.seen()[..] else { panic!("{:?}", collector.outcomes()) };
            assert!(wait.is_over && !hold.is_over);
            assert_eq!([wait.said("group"), wait.said("outcome")], ["stock:*", "granted"]);
            assert_eq!([hold.said("group"), hold.said("outcome")], ["stock:*", ""]);
            assert_eq!(hold.said("fence"), lease.fence().to_string());
            // Beside one another, in what the program does.
            assert_eq!([wait.parent, hold.parent], [Some(1); 2]);
            lease.release().unwrap();
        });
        drop(client.lock("user:anna").acquire().unwrap());
        client.lock("stock:17").acquire().unwrap().let_expire().unwrap();
    });
    let holds: Vec<_> = collector.seen().into_iter().skip(1).step_by(2).collect();
    assert!(holds.iter().all(|hold| hold.is_over));
    let outcomes = holds.iter().map(|hold| [hold.said("group"), hold.said("outcome")]);
    let expected = [["stock:*", "released"], ["*", "released"], ["stock:*", "left_held"]];
    assert!(outcomes.eq(expected));
    let all: Vec<_> = collector.seen().into_iter().flat_map(|one| one.fields).collect();
    assert!(all.iter().all(|(_, value)| !value.contains("17") || value.parse::<u64>().is_ok()));
    assert!(all.iter().all(|(_, value)| !value.contains("anna")));
}

fn a_future_has_them_too(store: &Store) {
    let (client, collector) = client(store);
    tracing::subscriber::with_default(collector.clone(), || {
        tracing::info_span!("order").in_scope(|| {
            block_on(client.lock("n").acquire_async(), LIMIT).unwrap().release().unwrap();
        });
    });
    let expected = [("leasehold.wait", "granted"), ("leasehold.hold", "released")];
    assert_eq!(collector.outcomes(), expected.map(|(name, said)| (name, said.to_owned())));
    assert!(collector.seen().iter().all(|one| one.parent == Some(1)));
    eventually(LIMIT, || collector.seen().iter().all(|one| one.is_over));
}

fn a_call_without_a_lease_says_how_it_ended(store: &Store) {
    let (client, collector) = client(store);
    let held = store.client();
    let held = held.lock("n").acquire().unwrap();
    tracing::subscriber::with_default(collector.clone(), || {
        assert!(client.lock("n").try_acquire().unwrap().is_none());
        let error = client.lock("n").acquire_within(ms(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let error = client.lock("n").acquire_unless(|| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    });
    held.release().unwrap();
    let outcomes: Vec<_> = collector.outcomes().into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, ["busy", "timed_out", "interrupted"]);
}

fn a_loss_ends_the_span_of_the_lease(store: &Store) {
    let (client, collector) = client(store);
    let lease = tracing::subscriber::with_default(collector.clone(), || {
        client.lock("n").ttl(ms(300)).renew(false).acquire().unwrap()
    });
    let hold = || collector.seen().pop().unwrap();
    eventually(LIMIT, || hold().is_over);
    assert_eq!([hold().said("outcome"), hold().said("reason")], ["lost", "expired"]);
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
}

fn a_subscriber_that_panics_loses_no_lock(store: &Store) {
    let (client, collector) = client(store);
    tracing::subscriber::with_default(collector.clone(), || {
        let before = client.lock("n").acquire().unwrap();
        collector.0.panics.store(true, Ordering::Relaxed);
        before.release().unwrap();
        client.lock("n").acquire().unwrap().release().unwrap();
    });
    collector.0.panics.store(false, Ordering::Relaxed);
    assert_eq!((client.counters().granted, client.counters().lost), (2, 0));
}
