/**
 * One lock for programs on many machines. Acquire it, know how long you may rely on it, and release
 * it. Its fencing token lets the resource reject a late write.
 *
 * <pre>{@code
 * try (var client = LeaseholdClient.connect("redis://127.0.0.1");
 *      var lease = client.lock("stock:sku-17").ttl(ofSeconds(10)).waitAtMost(ofSeconds(5)).acquire()) {
 *     charge(order, lease.fence());// the database rejects a smaller fence } }</pre>
 *
 * <p>A {@link dev.leasehold.LeaseholdClient} is an open store: Redis or Valkey (one server,
 * a Sentinel group, a Cluster, or a quorum of several), PostgreSQL, MySQL or MariaDB, ZooKeeper, etcd,
 * or an SQLite file. A {@link dev.leasehold.NamedLock} is a name and options. A
 * {@link dev.leasehold.Lease} is what you get each time you acquire the lock, and the only proof
 * that you hold it. For code that is written against {@link java.util.concurrent.locks.Lock}, there
 * is {@link dev.leasehold.LeaseholdLock}.
 *
 * <p>Any thread may use any object. Every failure is a {@link dev.leasehold.LeaseholdException},
 * which is unchecked and has a {@link dev.leasehold.Status}.
 *
 * <p>An argument that is {@code null} throws {@link NullPointerException}, unless the method says
 * otherwise.
 */
package dev.leasehold;
