package dev.leasehold;

import java.time.Instant;

/**
 * A client, as it has said itself: of nothing more is it a proof. In no text is anything that a
 * terminal obeys.
 *
 * @param id 12 hex digits: another number in each process
 * @param host the machine's name
 * @param pid the process
 * @param program what runs there
 * @param language what that is written in
 * @param version the version of this library there
 * @param label what {@link ClientBuilder#label(String)} has set there, or null
 * @param started when it was opened, by its machine's clock; null where that is not known
 * @param run what it has run under a lock that stays taken for an interval, or null
 */
public record ClientInfo(
        String id,
        String host,
        long pid,
        String program,
        String language,
        String version,
        String label,
        Instant started,
        Run run) {

    /**
     * A command that {@code leasehold run --once-per} has run, by the clock of its machine.
     *
     * @param began when it was started
     * @param ended when it ended; null while it runs, and where its machine died meanwhile
     * @param exitStatus what it ended with, 128 + n where signal n ended it; null where that is not known
     */
    public record Run(Instant began, Instant ended, Integer exitStatus) {}
}
