package dev.leasehold;

/**
 * What a client has counted since it was opened: from {@link LeaseholdClient#counters()}.
 *
 * @param attempts requests to a store for a lock, every try of a wait included
 * @param granted leases acquired
 * @param busy tries that found the lock held by another client
 * @param timedOut waits that timed out
 * @param unknown requests whose outcome stayed unknown
 * @param renewed renewals that the store confirmed
 * @param lost leases that were lost while held
 * @param releasedLate releases that found the lease lost, or got no answer
 */
public record Counters(
        long attempts,
        long granted,
        long busy,
        long timedOut,
        long unknown,
        long renewed,
        long lost,
        long releasedLate) {

    /** By the numbers that C knows them by. */
    static Counters read(long client) {
        return new Counters(
                Native.counter(client, 1),
                Native.counter(client, 2),
                Native.counter(client, 3),
                Native.counter(client, 4),
                Native.counter(client, 5),
                Native.counter(client, 6),
                Native.counter(client, 7),
                Native.counter(client, 8));
    }
}
