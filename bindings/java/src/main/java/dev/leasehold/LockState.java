package dev.leasehold;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * Who held a lock, and who waited for it, when {@link NamedLock#inspect()} asked.
 *
 * @param isHeld whether any client held it
 * @param tokenPrefix the first digits of the holder's token: enough to tell holders apart, too few
 *     to release with; empty when the lock was free
 * @param ttl in how long the lock would be free without another renewal; zero if it was free
 * @param fence the holder's fence; 0 when the lock was free, or another program holds it without one
 * @param lastFence the last fence of this name; 0 if the store no longer knows it
 * @param who its holder and since when, as a sentence; empty if the lock was free
 * @param held for how long it has been held, by the store's clock; null if that is not known
 * @param client the holder's client; null if that is not known
 * @param waiters the first 100 waiters of the store's queue, in its order
 * @param moreWaiters how many waiters there are beyond those
 */
public record LockState(
        boolean isHeld,
        String tokenPrefix,
        Duration ttl,
        long fence,
        long lastFence,
        String who,
        Duration held,
        ClientInfo client,
        List<Waiter> waiters,
        long moreWaiters) {

    /** The facts of leasehold.h, in the order of their numbers. */
    private enum Fact {
        WHO,
        TOKEN_PREFIX,
        SINCE_MS,
        CLIENT,
        HOST,
        PID,
        PROGRAM,
        LANGUAGE,
        VERSION,
        LABEL,
        STARTED_MS,
        RUN_BEGAN_MS,
        RUN_ENDED_MS,
        RUN_EXIT_STATUS
    }

    /** All facts of the holder, then those of each waiter. */
    private record Facts(byte[][] all) {
        private static final int EACH = Fact.values().length;

        int places() {
            return all.length / EACH;
        }

        String text(int place, Fact fact) {
            return Name.decode(all[place * EACH + fact.ordinal()]);
        }

        Long number(int place, Fact fact) {
            String text = text(place, fact);
            return text.isEmpty() ? null : Long.valueOf(text);
        }

        Duration since(int place) {
            Long since = number(place, Fact.SINCE_MS);
            return since == null ? null : Duration.ofMillis(since);
        }

        ClientInfo client(int place) {
            if (text(place, Fact.CLIENT).isEmpty()) {
                return null;
            }
            String label = text(place, Fact.LABEL);
            return new ClientInfo(
                    text(place, Fact.CLIENT),
                    text(place, Fact.HOST),
                    number(place, Fact.PID),
                    text(place, Fact.PROGRAM),
                    text(place, Fact.LANGUAGE),
                    text(place, Fact.VERSION),
                    label.isEmpty() ? null : label,
                    moment(place, Fact.STARTED_MS),
                    run(place));
        }

        Instant moment(int place, Fact fact) {
            Long since = number(place, fact);
            return since == null ? null : Instant.ofEpochMilli(since);
        }

        ClientInfo.Run run(int place) {
            Instant began = moment(place, Fact.RUN_BEGAN_MS);
            Long status = number(place, Fact.RUN_EXIT_STATUS);
            return began == null
                    ? null
                    : new ClientInfo.Run(
                            began, moment(place, Fact.RUN_ENDED_MS), status == null ? null : status.intValue());
        }

        Waiter waiter(int place) {
            return new Waiter(
                    text(place, Fact.WHO), text(place, Fact.TOKEN_PREFIX), since(place), client(place));
        }
    }

    /** What the native method brought. */
    static LockState of(byte[][] all, long[] figures) {
        var facts = new Facts(all);
        var waiters = new ArrayList<Waiter>();
        for (int place = 1; place < facts.places(); place++) {
            waiters.add(facts.waiter(place));
        }
        return new LockState(
                figures[0] != 0,
                facts.text(0, Fact.TOKEN_PREFIX),
                Duration.ofMillis(figures[1]),
                figures[2],
                figures[3],
                facts.text(0, Fact.WHO),
                facts.since(0),
                facts.client(0),
                List.copyOf(waiters),
                figures[4]);
    }
}
