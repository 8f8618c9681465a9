package dev.leasehold;

/**
 * What a client has counted since it was opened: from {@link LeaseholdClient#counters()}.
 *
 * @param attempts requests to a store for a lock, every try of a wait included
 * @param granted leases taken
 * @param busy tries that found the lock taken
 * @param timedOut waits that ran out
 * @param unknown requests whose outcome stayed unknown
 * @param renewed renewals that the store confirmed
 * @param lost leases that were lost while held
 * @param releasedLate releases that found the lease gone, or could not tell
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
