/**
 * One lock for programs on many machines: take it, know how long you may rely on it, prove to the
 * resource that you are the latest holder, give it back.
 *
 * <pre>{@code
 * try (var client = LeaseholdClient.connect("redis://127.0.0.1");
 *      var lease = client.lock("stock:sku-17").ttl(ofSeconds(10)).waitAtMost(ofSeconds(5)).acquire()) {
 *     charge(order, lease.fence());   // the database refuses a smaller fence
 * }
 * }</pre>
 *
 * <p>A {@link dev.leasehold.LeaseholdClient} is an open store: Redis or Valkey (one server,
 * a Sentinel group, a Cluster, or a quorum of several), PostgreSQL, MySQL or MariaDB, ZooKeeper, etcd,
 * or an SQLite file. A {@link dev.leasehold.NamedLock} is a name and options. A
 * {@link dev.leasehold.Lease} is one turn of holding it, and the only proof of that. For code that
 * is written against {@link java.util.concurrent.locks.Lock}, there is
 * {@link dev.leasehold.LeaseholdLock}.
 *
 * <p>All objects may be used by any thread. What the library refuses, and what goes wrong with the
 * store, is a {@link dev.leasehold.LeaseholdException}, which is unchecked and has a
 * {@link dev.leasehold.Status}.
 *
 * <p>An argument that is {@code null} is a {@link NullPointerException}, unless something else is
 * said.
 */
package dev.leasehold;
