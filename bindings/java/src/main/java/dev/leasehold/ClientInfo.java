package dev.leasehold;

import java.time.Instant;

/**
 * What a client has written to the store about itself, which proves nothing. No text contains
 * control characters that a terminal would obey.
 *
 * @param id 12 hexadecimal digits, different in each process
 * @param host the machine's name
 * @param pid the process ID
 * @param program the program that runs there
 * @param language the language of its binding
 * @param version its version of this library
 * @param label its {@link ClientBuilder#label(String)}, or null
 * @param started when it was opened, by its machine's clock; null if that is not known
 * @param run the command that it has run with {@code leasehold run --once-per}, or null
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
     * A command that {@code leasehold run --once-per} has run, with times by the clock of its
     * machine.
     *
     * @param began when it was started
     * @param ended when it ended; null while it runs, or if its machine died before it ended
     * @param exitStatus its exit status, 128 + n if signal n ended it; null if that is not known
     */
    public record Run(Instant began, Instant ended, Integer exitStatus) {}
}
