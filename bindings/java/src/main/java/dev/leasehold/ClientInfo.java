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
 */
public record ClientInfo(
        String id,
        String host,
        long pid,
        String program,
        String language,
        String version,
        String label,
        Instant started) {}
