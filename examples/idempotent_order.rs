//! An order that is placed once, although the client sends it again and a server is paused.
//!
//! The lock keeps two servers from working on one order at the same time. The table makes it safe. It
//! remembers the result, so that a repeated request gets the same answer. It remembers the largest
//! fence too, so that a server that was paused beyond the end of its lease can no longer write.
//!
//! `cargo run --features sqlite --example idempotent_order` uses the store that `LEASEHOLD_URL`
//! names, or else the embedded one.

use std::collections::HashMap;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use leasehold::{Client, ErrorKind};

/// A table of orders. In a database, each of its two writes is one statement such as
/// `UPDATE orders SET fence = :fence, ... WHERE id = :id AND fence <= :fence`.
#[derive(Default)]
struct Orders {
    rows: HashMap<String, Row>,
    shipped: u32,
}

#[derive(Default)]
struct Row {
    fence: u64,
    receipt: Option<String>,
}

impl Orders {
    /// A worker shows its fence first. From then on the table rejects earlier holders. Returns the
    /// receipt if the order has been placed before.
    fn begin(&mut self, order: &str, fence: u64) -> Result<Option<String>, String> {
        let row = self.rows.entry(order.to_owned()).or_default();
        if fence < row.fence {
            return Err(format!("fence {fence} is older than {}", row.fence));
        }
        row.fence = fence;
        Ok(row.receipt.clone())
    }

    fn place(&mut self, order: &str, fence: u64) -> Result<String, String> {
        if let Some(receipt) = self.begin(order, fence)? {
            return Ok(receipt);
        }
        self.shipped += 1;
        let receipt = format!("receipt {}", self.shipped);
        self.rows.entry(order.to_owned()).or_default().receipt = Some(receipt.clone());
        Ok(receipt)
    }
}

/// A server handles an order.
fn handle(client: &Client, orders: &mut Orders, order: &str) -> Result<String, Box<dyn Error>> {
    let lease = client.lock(format!("order:{order}")).acquire()?;
    let receipt = match orders.begin(order, lease.fence())? {
        Some(receipt) => {
            println!("  fence {}: placed before, so only answered again", lease.fence());
            receipt
        }
        None => {
            println!("  fence {}: placed now", lease.fence());
            orders.place(order, lease.fence())?
        }
    };
    lease.release()?;
    Ok(receipt)
}

fn main() -> Result<(), Box<dyn Error>> {
    let suffix = format!("{:08x}", RandomState::new().hash_one(0) as u32);
    let (one_server, other_server) = (Client::from_env()?, Client::from_env()?);
    let mut orders = Orders::default();

    let order = format!("1-{suffix}");
    println!("The answer to an order is lost, and the client sends it again to another server.");
    let receipt = handle(&one_server, &mut orders, &order)?;
    let again = handle(&other_server, &mut orders, &order)?;
    assert_eq!((receipt, orders.shipped), (again, 1));
    println!("Both times the answer is the same, and one parcel was shipped.\n");

    let order = format!("2-{suffix}");
    println!("A server takes the lock for 200 ms and then stands still (paused, swapped out).");
    let lock = one_server.lock(format!("order:{order}"));
    let late = lock.ttl(Duration::from_millis(200)).renew(false).acquire()?;
    let late_fence = late.fence();
    println!("  fence {late_fence}: begun");
    assert_eq!(orders.begin(&order, late_fence)?, None);

    println!("The client asks another server, which waits until the lock is free by its ttl.");
    let lease = other_server.lock(format!("order:{order}")).acquire()?;
    println!("  fence {}: begun", lease.fence());
    assert_eq!(orders.begin(&order, lease.fence())?, None);

    println!("The first server wakes up.");
    assert!(!late.is_valid());
    println!("  If it looks at its lease, it sees that nothing of it remains.");
    let refused = orders.place(&order, late_fence);
    println!("  If it writes without looking, the table says: {refused:?}");
    assert!(refused.is_err());
    match late.release() {
        Err(error) if error.kind() == ErrorKind::Lost => println!("  Its release says: {error}"),
        other => return Err(format!("a lost lease was released: {other:?}").into()),
    }

    let receipt = orders.place(&order, lease.fence())?;
    lease.release()?;
    assert_eq!(orders.shipped, 2);
    println!("The other server has placed the order: {receipt}. One parcel for each order.");
    Ok(())
}
