//! A future that is told of a loss.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Lease;
use crate::error::Error;
use crate::events::Event;
use crate::sync::Mutex;

/// The future of [`Lease::losing`]: the event of a loss, or `None` if the lease ended in another way.
///
/// It needs no executor of its own, and dropping it changes nothing. In a forked child, a future of the
/// parent's lease stays pending: nobody tells it there.
#[must_use = "a future does nothing before it is polled"]
pub struct Losing(Arc<Mutex<End>>);

enum End {
    Awaited(Option<Waker>),
    Come(Option<Event>),
}

/// What the client calls, or drops uncalled where the lease ends in another way.
struct Teller(Arc<Mutex<End>>);

impl Teller {
    fn tell(&self, event: Option<Event>) {
        let mut end = self.0.lock();
        let waker = match &mut *end {
            End::Awaited(waker) => waker.take(),
            End::Come(_) => return,
        };
        *end = End::Come(event);
        drop(end);
        // With no mutex held: it runs code of the program's.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(None);
    }
}

impl Future for Losing {
    type Output = Option<Event>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloning and dropping a waker runs code of the program's, so not with the mutex.
        let mut waker = Some(context.waker().clone());
        let mut end = self.0.lock();
        let former = match &mut *end {
            End::Awaited(place) => std::mem::replace(place, waker.take()),
            End::Come(event) => return Poll::Ready(event.clone()),
        };
        drop(end);
        drop(former);
        Poll::Pending
    }
}

impl Lease {
    /// A future that ends when this lease does: with the event if it was lost, at once if that was before,
    /// and with `None` if it was released, dropped, left to expire or detached, or its client closed.
    ///
    /// Any executor can run it. Let the loss cancel what the lease protects:
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn either<A: Future, B: Future>(_: A, _: B) {}
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let lease = client.lock("reindex").acquire_async().await?;
    /// either(work(), lease.losing()?).await;               // as tokio::select! and futures::select do
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It stands in the place of [`on_lost`](Lease::on_lost): the later one of both counts. A future whose
    /// place is taken ends with `None`.
    ///
    /// # Errors
    /// As [`on_lost`](Lease::on_lost).
    pub fn losing(&self) -> Result<Losing, Error> {
        let end = Arc::new(Mutex::new(End::Awaited(None)));
        let teller = Teller(Arc::clone(&end));
        self.on_lost(move |event| teller.tell(Some(event)))?;
        Ok(Losing(end))
    }
}
