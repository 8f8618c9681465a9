package dev.leasehold;

import java.time.Duration;

/**
 * The time for which a candidate leads, in the hands of its {@link Election.Work}.
 *
 * <p>A term ends before its lease does: when only as much validity is left as the work
 * {@linkplain Election#grace needs to stop}. It does not begin again, even if the lease could be renewed
 * after all. No other candidate is elected while the work still stops, unless validity ends before.
 *
 * <p>The work is told once: its thread is interrupted, unless {@link #isLeader()} or
 * {@link #endedWithin} has said it on that thread before.
 */
public final class Term {
    /** Why a term has ended. Later versions may add more. */
    public enum End {
        /** The candidate resigned, or its election was stopped. */
        RESIGNED(1),
        /** The lease could not be renewed, and only what the work needs to stop in is left. */
        AT_RISK(2),
        /** The lease was lost. */
        LOST(3),
        /** A reason that this version of the Java classes does not know. */
        OTHER(-1);

        final int code;

        End(int code) {
            this.code = code;
        }
    }

    /** How soon a thread that waits notices that it was interrupted. */
    private static final long SLICE_MS = 100;
    /** How long the library may take to know why a lease is over. */
    private static final long REASON_MS = 1000;
    private static final long LOOK_MS = 20;
    /** The end of the term ends a wait at once; so this may be long. */
    private static final long WATCH_MS = 60_000;

    private final Election election;
    private final long term;
    private final long fence;
    private final Thread worker = Thread.currentThread();
    private final Thread watcher = new Thread(null, this::watch, "leasehold-term", 0, false);
    /** The work knows that the term has ended, or has returned. */
    private boolean isTold;
    /** The work was interrupted, and by nobody else. */
    private boolean isInterrupted;
    /** Once the work has returned: then nothing else is known of it. */
    private volatile End last;

    private Term(Election election, long term) {
        this.election = election;
        this.term = term;
        this.fence = Native.termFence(term);
        watcher.setDaemon(true);
    }

    /** On the thread of the work, which frees it by {@link #finish}. */
    static Term of(Election election, long term) {
        try {
            return new Term(election, term);
        } catch (Throwable e) { // no memory is left: a term that nothing frees leads for ever
            Native.freeTerm(term);
            throw e;
        }
    }

    /** If it throws, {@link #finish} tells of the end. */
    void begin() {
        election.tell(new Leadership(fence, null, LeaseEvent.Reason.NONE));
        watcher.start();
    }

    /**
     * The fencing token of this term: larger than that of every earlier leader. Send it to the resource
     * with each write, and let the resource reject a smaller one.
     *
     * @return the fence, also after the term has ended
     */
    public long fence() {
        return fence;
    }

    /**
     * Whether the work may go on. It does not contact the store.
     *
     * @return false if the term has ended
     */
    public boolean isLeader() {
        return leads() || !tell();
    }

    /**
     * Sleeps until the term ends, and stops at once when it does. So work that does something at
     * intervals sleeps here.
     *
     * @param limit for how long at most
     * @return whether the term has ended
     * @throws InterruptedException the thread was interrupted by others before or while it slept
     */
    public boolean endedWithin(Duration limit) throws InterruptedException {
        long limitMs = Times.toMillis("the limit", limit);
        long start = System.nanoTime();
        while (true) {
            if (!leads()) {
                return tell();
            }
            if (heardOfTheEnd()) {
                return true;
            }
            long left = limitMs - (System.nanoTime() - start) / 1_000_000;
            if (left <= 0) {
                return false;
            }
            sleep(Math.min(left, SLICE_MS));
        }
    }

    /**
     * Whether an interrupt of ours has said that the term has ended. The watcher cannot interrupt between
     * the two questions: then an interrupt by others would be taken for ours.
     */
    private synchronized boolean heardOfTheEnd() throws InterruptedException {
        if (!Thread.interrupted()) {
            return false;
        }
        if (!isInterrupted || Thread.currentThread() != worker) {
            throw new InterruptedException("interrupted while leading");
        }
        isInterrupted = false;
        return true;
    }

    private void sleep(long waitMs) throws InterruptedException {
        if (LentThread.isNeeded()) {
            LentThread.lend(() -> Native.termLeadsAfter(term, waitMs));
        } else {
            Native.termLeadsAfter(term, waitMs);
        }
    }

    /**
     * Why the term has ended. If a lease was lost, why is known up to a second later than that it was.
     *
     * @return null while it lasts
     */
    public End end() {
        if (last != null) {
            return last;
        }
        int code = Native.termEnd(term);
        if (code == 0) {
            return null;
        }
        for (End end : End.values()) {
            if (end.code == code) {
                return end;
            }
        }
        return End.OTHER;
    }

    /**
     * For how long no other candidate can be elected, by this lease. It does not contact the store.
     *
     * @return zero once it is over
     */
    public Duration remaining() {
        return Duration.ofMillis(Native.termRemaining(term));
    }

    @Override
    public String toString() {
        return "Term(" + election.name() + ", fence " + fence + ")";
    }

    // ---- who tells the work ------------------------------------------------------------------------

    boolean leads() {
        return Native.termLeadsAfter(term, 0);
    }

    /** And has not heard of the end in another way before. */
    synchronized boolean wasInterrupted() {
        return isInterrupted;
    }

    /**
     * The work has thrown {@link InterruptedException}: whether that is our interrupt. If the flag is set as
     * well, there were two interrupts, so one of them is not ours. The exception stands for that one, and the
     * flag is cleared.
     */
    synchronized boolean threwOurInterrupt() {
        isTold = true;
        boolean isOurs = isInterrupted && !Thread.interrupted();
        isInterrupted = false; // a flag that is set from now on is not ours
        return isOurs;
    }

    /** The work hears of the end by what a method returns; always true. */
    private synchronized boolean tell() {
        if (Thread.currentThread() == worker) {
            isTold = true;
            clear();
        }
        return true;
    }

    /** Takes back an interrupt of ours that nothing has noticed. */
    private void clear() {
        if (isInterrupted) {
            isInterrupted = false;
            Thread.interrupted();
        }
    }

    private synchronized void interrupt() {
        if (!isTold && !worker.isInterrupted()) {
            isInterrupted = true;
            worker.interrupt();
        }
        isTold = true;
    }

    private void watch() {
        while (Native.termLeadsAfter(term, WATCH_MS)) {
            continue;
        }
        interrupt();
        long start = System.nanoTime();
        while (loss() == LeaseEvent.Reason.EXPIRED && System.nanoTime() - start < REASON_MS * 1_000_000) {
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException e) {
                break; // by a program that interrupts each of its threads
            }
        }
        election.tell(new Leadership(fence, end(), loss()));
    }

    private LeaseEvent.Reason loss() {
        return LeaseEvent.reason(Native.termLoss(term));
    }

    /**
     * The work has returned: releases the lock, and tells of the end.
     *
     * @throws LeaseLostException another candidate may have led before
     */
    void finish() {
        synchronized (this) {
            isTold = true;
            clear();
        }
        try {
            Native.resignTerm(term);
        } finally {
            join();
            last = end();
            LeaseEvent.Reason loss = loss();
            Native.freeTerm(term);
            if (watcher.getState() == Thread.State.NEW) { // it could not be started
                election.tell(new Leadership(fence, last, loss));
            }
        }
    }

    /** The watcher has told the end, so the next term is told later. */
    private void join() {
        boolean interrupted = false;
        while (watcher.isAlive()) {
            try {
                watcher.join();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
