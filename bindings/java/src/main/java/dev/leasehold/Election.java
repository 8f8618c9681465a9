package dev.leasehold;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Consumer;

/**
 * One candidate for the leadership of a name, from {@link LeaseholdClient#election(String)}: one candidate
 * leads, the others stand by. It is a {@link NamedLock} of that name underneath.
 *
 * <pre>{@code
 * client.election("collector").ttl(ofSeconds(15)).runAsLeader(term -> {
 *     while (!term.endedWithin(ofSeconds(1))) {
 *         collect(term.fence()); // the database rejects a smaller fence
 *     }
 * });
 * }</pre>
 *
 * <p>Set options before you run it. One thread runs it, and any other may resign, stop it, or ask whether
 * it leads.
 */
public final class Election {
    /** What a candidate does at this moment. Later versions may add more. */
    public enum State {
        /** It does not stand: it has not begun, its work has ended, or it was stopped. */
        IDLE,
        /** It waits to be elected, or rests first. */
        STANDBY,
        /** It leads. */
        LEADING,
        /** Its leadership has ended and the work was told to stop. No other candidate can be elected yet. */
        STOPPING,
        /** Its lease is over, and the work has still not stopped: another candidate may lead beside it. */
        OVERDUE,
        /** A state that this version of the Java classes does not know. */
        OTHER
    }

    /**
     * What a leader does.
     *
     * @param <E> what it throws
     */
    @FunctionalInterface
    public interface Work<E extends Exception> {
        /**
         * Works until it is done, or until the term ends: then its thread is interrupted.
         *
         * @param term has the fence, and says whether it goes on
         * @throws E what {@link Election#runAsLeader} throws in turn
         * @throws InterruptedException it was interrupted
         */
        void run(Term term) throws E, InterruptedException;
    }

    private final LeaseholdClient client;
    private final Name name;
    private final ElectionHandle handle;
    private volatile boolean standAgain;
    private volatile Consumer<Leadership> listener = change -> { };

    Election(LeaseholdClient client, Name name) {
        this.client = client;
        this.name = name;
        this.handle = new ElectionHandle(Native.election(client.open(), name.bytes()), client.handles());
        this.handle.follow(this);
        if (client.isClosed()) {
            handle.run();
        }
    }

    /**
     * Sets how soon another candidate is elected after the leader died: 30 s by default.
     *
     * @param ttl at least 100 ms
     * @return this
     */
    public Election ttl(Duration ttl) {
        return set(Native.ELECTION_TTL, Times.toMillis("ttl", ttl));
    }

    /**
     * Sets how long the work needs to stop: 10 s by default. If the lease cannot be renewed, the work is
     * interrupted when that much validity is left and half a second more, or a third of the ttl if that is
     * less.
     *
     * @param grace not negative
     * @return this
     */
    public Election grace(Duration grace) {
        return set(Native.ELECTION_GRACE, Times.toMillis("grace", grace));
    }

    private Election set(int option, long value) {
        try {
            Native.setElection(open(), option, value);
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Sets whether {@link #runAsLeader} stands again when the work has returned by itself.
     *
     * @param again false by default
     * @return this
     */
    public Election standAgain(boolean again) {
        standAgain = again;
        return this;
    }

    /**
     * Calls {@code told} when this candidate is elected, on the thread that runs it, and when its
     * leadership ends, on a daemon thread. It must be quick. What it throws goes to the thread's
     * {@linkplain Thread#setDefaultUncaughtExceptionHandler handler}.
     *
     * @param told is called with each change; another one replaces it
     * @return this
     */
    public Election onChange(Consumer<Leadership> told) {
        listener = Objects.requireNonNull(told, "told");
        return this;
    }

    void tell(Leadership change) {
        try {
            listener.accept(change);
        } catch (Throwable e) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
        }
    }

    // ---- standing and leading ----------------------------------------------------------------------

    /**
     * Stands by, runs {@code work} on this thread when elected, and stands again when the leadership was
     * lost. It waits through outages of the store, also where the store cannot be reached at the start.
     * After a term it rests for about a second, so that other candidates are elected first.
     *
     * <ul>
     *   <li>If the term ends, the thread is interrupted: the work then throws {@link InterruptedException},
     *       or returns. The lock is released, and the candidate stands again.
     *   <li>If the work returns while it leads, the lock is released and this returns. With
     *       {@link #standAgain} the candidate stands again instead.
     *   <li>If the work throws anything else, the lock is released and this throws it.
     *   <li>If the work does not stop, the lock stays held and is renewed if that is possible. Else another
     *       candidate is elected when validity ends, with a larger fence, and {@link #isHealthy()} is false.
     * </ul>
     *
     * <p>It returns, too, once the election was {@linkplain #stop() stopped} and the work has ended.
     *
     * @param work what a leader does
     * @param <E> what the work throws
     * @throws E what the work has thrown
     * @throws InterruptedException other code has interrupted this thread, while it stood by or led. If the work
     *     throws it while the interrupt flag is set, there were two interrupts, and the term sends only one
     * @throws LeaseLostException the work returned while it seemed to lead, and the store says that the
     *     lock was lost before
     * @throws LeaseholdException {@link Status#WOULD_DEADLOCK} if this thread leads already;
     *     {@link Status#CLOSED}, and others that waiting does not mend, such as {@link Status#AUTH}
     */
    public <E extends Exception> void runAsLeader(Work<E> work) throws E, InterruptedException {
        Objects.requireNonNull(work, "work");
        boolean goesOn = true;
        while (goesOn) {
            long term = stand();
            goesOn = term != 0 && lead(Term.of(this, term), work);
        }
    }

    /** The native term; 0 if the election was stopped. */
    private long stand() throws InterruptedException {
        try {
            long election = open();
            // As for NamedLock: a lent thread does not hold what it took.
            return LentThread.isNeeded()
                    ? LentThread.lend(() -> Native.stand(election, Native.FOREVER - 1))
                    : Native.stand(election, Native.FOREVER);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Whether the candidate stands again. */
    private <E extends Exception> boolean lead(Term term, Work<E> work) throws E, InterruptedException {
        boolean ledToItsEnd;
        try {
            term.begin();
            work.run(term);
            ledToItsEnd = term.leads();
        } catch (InterruptedException e) {
            boolean isOurs = term.threwOurInterrupt();
            giveUp(term, e, isOurs);
            if (!isOurs) {
                throw e;
            }
            return true;
        } catch (Throwable e) {
            giveUp(term, e, term.wasInterrupted());
            throw e;
        }
        try {
            term.finish();
        } catch (LeaseholdException e) {
            // Else it is free by its ttl, and the work has done what it had to do, or was told to stop.
            if (e.status() == Status.LOST && ledToItsEnd && !standAgain) {
                throw e;
            }
        }
        return !ledToItsEnd || standAgain;
    }

    /** The work has thrown that, perhaps because the term has interrupted it. */
    private static void giveUp(Term term, Throwable why, boolean wasTold) {
        try {
            term.finish();
        } catch (LeaseholdException e) {
            if (!wasTold) {
                why.addSuppressed(e);
            }
        }
    }

    /**
     * Tells the work to stop, if this candidate leads; the lock is released when it has stopped. Other
     * candidates are elected first: this one rests for about a second before it stands again.
     */
    public void resign() {
        try {
            Native.resignElection(open());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the election for this candidate, for good. It resigns, and {@link #runAsLeader} returns when the
     * work has stopped, or within 100 ms if it stands by.
     */
    public void stop() {
        try {
            Native.stopElection(open());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    // ---- what it is --------------------------------------------------------------------------------

    /**
     * Asks the store who leads now.
     *
     * @return the lock underneath: nobody leads if it is not {@linkplain LockState#isHeld() held}
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}
     */
    public LockState leader() {
        return new NamedLock(client, name, Options.DEFAULT).inspect();
    }

    /**
     * Whether this candidate leads at this moment. It does not contact the store.
     *
     * @return whether it leads
     */
    public boolean isLeader() {
        return state() == State.LEADING;
    }

    /**
     * The fence of the term in which this candidate leads. It does not contact the store.
     *
     * @return empty while it does not lead
     */
    public OptionalLong fence() {
        try {
            long fence = Native.electionFence(handle.get());
            return fence == 0 ? OptionalLong.empty() : OptionalLong.of(fence);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * What this candidate does at this moment. It does not contact the store.
     *
     * @return {@link State#IDLE} also once the client was closed
     */
    public State state() {
        try {
            int code = Native.electionState(handle.get());
            return code < State.OTHER.ordinal() ? State.values()[code] : State.OTHER;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Whether all is well, for an answer to {@code /healthz}: false while the work still runs after its
     * lease has ended, and nothing but the end of the process stops it. A standby is healthy. It does not
     * contact the store.
     *
     * @return false if another candidate may lead beside this one
     */
    public boolean isHealthy() {
        return state() != State.OVERDUE;
    }

    /**
     * The name of the election; where it is not UTF-8, with replacement characters.
     *
     * @return the name as text
     */
    public String name() {
        return name.toString();
    }

    @Override
    public String toString() {
        return "Election(" + name + ")";
    }

    private long open() {
        long election = handle.get();
        if (election == 0) {
            throw LeaseholdException.closed();
        }
        return election;
    }

    private static final class ElectionHandle extends Handle {
        private static final long serialVersionUID = 1;

        private final transient Set<Handle> all;

        ElectionHandle(long handle, Set<Handle> all) {
            super(handle);
            this.all = all;
            all.add(this);
        }

        @Override
        void abandon(long handle) {
            all.remove(this);
            Native.freeElection(handle);
        }
    }
}
