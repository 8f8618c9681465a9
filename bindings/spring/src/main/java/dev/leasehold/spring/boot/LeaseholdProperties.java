package dev.leasehold.spring.boot;

import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The settings {@code leasehold.*}.
 *
 * @param enabled Whether there is a client at all
 * @param url Where the locks are kept, such as redis://127.0.0.1; without it, what
 *     spring.data.redis or a DataSource says
 * @param settingsFrom Which of both to use where both are there: redis by default
 * @param prefix A prefix to every name in the store
 * @param ioTimeout How long the store may take to answer one request: 1 s by default
 * @param pool How many requests may be under way at once: 8 by default
 * @param closeTimeout How long closing keeps releasing leases: 1 s by default
 * @param claimWindow How soon a waiter must confirm a lock that is handed to it: 1 s by default
 * @param maxTtl The longest ttl that a lock may have
 * @param guardDataLoss Whether a server that may have lost data grants no lock for a while
 * @param label A word that others see beside this program's name: spring.application.name by default
 * @param register Whether the store is told who this program is: true by default
 * @param advise Whether the log warns of a store that can lose grants: true by default
 * @param metricsGroups Names, or prefixes with a star, whose locks are counted separately
 * @param checkOnStart Whether the program starts only if the store can be reached: true by default
 * @param initialize Whether the tables of a database are made at the start, if they are missing: false by default
 */
@ConfigurationProperties("leasehold")
public record LeaseholdProperties(
        Boolean enabled,
        String url,
        Source settingsFrom,
        String prefix,
        Duration ioTimeout,
        Integer pool,
        Duration closeTimeout,
        Duration claimWindow,
        Duration maxTtl,
        Boolean guardDataLoss,
        String label,
        Boolean register,
        Boolean advise,
        List<String> metricsGroups,
        Boolean checkOnStart,
        Boolean initialize) {

    /** Whose settings are used. */
    public enum Source {
        /** {@code spring.data.redis.*}. */
        REDIS,
        /** The {@code DataSource}, from {@code spring.datasource.*} or your own bean. */
        DATASOURCE
    }
}
