package dev.leasehold;

import java.nio.charset.StandardCharsets;

/**
 * The native methods, and what they call in turn. They are written in C, in {@code src/main/c}.
 *
 * <p>Handles are numbers here, and 0 is none. A wrong one does no harm: it is an exception. What a
 * method is for is said by those who call it.
 */
final class Native {
    /** An option that was not set, or a wait of the length that was set. */
    static final long NOT_SET = -1;
    /** A time without limit. */
    static final long FOREVER = Long.MAX_VALUE;

    /** By their numbers in C. */
    private static final System.Logger.Level[] LOG_LEVELS = {
        System.Logger.Level.OFF,
        System.Logger.Level.ERROR,
        System.Logger.Level.WARNING,
        System.Logger.Level.INFO,
        System.Logger.Level.DEBUG,
        System.Logger.Level.TRACE,
    };

    /** What {@link #setConfig} sets, in the order of {@code set_config} in client.c. */
    static final int IO_TIMEOUT = 0;

    static final int POOL = 1;
    static final int CLOSE_TIMEOUT = 2;
    static final int CLAIM_WINDOW = 3;
    static final int MAX_TTL = 4;
    static final int GUARD_DATA_LOSS = 5;
    static final int REGISTER = 6;
    static final int ADVISE = 7;

    /** What {@link #setText} sets, in the order of {@code set_text} there. */
    static final int LABEL = 0;

    static final int LANGUAGE = 1;
    static final int PROGRAM = 2;
    static final int METRICS_GROUP = 3;

    /** What {@link #setElection} sets, in the order of {@code set_election} in election.c. */
    static final int ELECTION_TTL = 0;

    static final int ELECTION_GRACE = 1;

    static {
        NativeLibrary.load();
        // Needed again when an application goes: its class loader may be closed by then, while the
        // threads of listeners still have to learn that their client is.
        LeaseholdException.closed();
    }

    private Native() {}

    // client.c
    static native long config(byte[] url);

    static native void setPrefix(long config, byte[] prefix);

    static native void setText(long config, int option, byte[] text);

    static native void setConfig(long config, int option, long value);

    static native void freeConfig(long config);

    static native long open(long config);

    static native void initialize(long client, boolean force);

    static native byte[] store(long client);

    static native void ping(long client);

    static native long counter(long client, int which);

    static native byte[] metrics(long client);

    static native long lock(long client, byte[] name);

    static native long subscribe(long client);

    static native void close(long client, long timeoutMs);

    static native void freeClient(long client);

    static native void abandonClient(long client);

    static native boolean isRetriable(int status);

    static native long handleCount();

    // credentials.c
    static native void setCredentials(long config, CredentialsSource source);

    // lock.c
    static native void setTimes(
            long lock, long ttlMs, long waitMs, long ioTimeoutMs, long maxHoldMs);

    static native void setAttempts(long lock, int most);

    static native void setRenew(long lock, boolean renew);

    static native void setWaitMode(long lock, int mode);

    static native void setBackoff(long lock, long firstMs, long longestMs);

    static native long tryAcquire(long lock);

    static native long acquire(long lock, long waitMs, boolean interruptible)
            throws InterruptedException;

    static native long attach(long lock, byte[] token, long fence);

    static native byte[][] inspect(long lock, long[] figures);

    static native long breakHeld(long lock, long ifFence, byte[] by);

    static native void freeLock(long lock);

    // waits.c
    static native long openWaits();

    static native void startWait(long waits, long lock, long waitMs, long number);

    static native long nextWait(long waits);

    static native long takeWait(long waits, long number);

    static native void stopWait(long waits, long number);

    static native void freeWaits(long waits);

    // lease.c
    static native long fence(long lease);

    static native byte[] token(long lease);

    static native long remaining(long lease);

    static native boolean isValid(long lease);

    static native void extend(long lease, long ttlMs);

    static native long watch(long lease, long events);

    static native void release(long lease);

    static native void closeLease(long lease);

    static native void letExpire(long lease);

    static native void letExpireIn(long lease, long afterMs);

    static native void detach(long lease);

    static native void abandonLease(long lease);

    // election.c
    static native long election(long client, byte[] name);

    static native void setElection(long election, int option, long value);

    static native long stand(long election, long waitMs) throws InterruptedException;

    static native int electionState(long election);

    static native long electionFence(long election);

    static native void resignElection(long election);

    static native void stopElection(long election);

    static native void freeElection(long election);

    static native long termFence(long term);

    static native boolean termLeadsAfter(long term, long waitMs);

    static native long termRemaining(long term);

    static native int termEnd(long term);

    static native int termLoss(long term);

    static native void resignTerm(long term);

    static native void freeTerm(long term);

    // testing.c
    static native long openMemory(byte[] name);

    static native byte[] memoryUrl(long memory);

    static native void loseHeld(long memory, byte[] name);

    static native long makeBusy(long memory, byte[] name);

    static native void failNext(long memory, int status);

    static native long failing(long memory, int status);

    static native void pauseMemory(long memory, boolean paused);

    static native void advanceMemory(long memory, long byMs);

    static native byte[][] heldNames(long memory);

    static native void freeMemory(long memory);

    static native void freeEffect(long effect);

    // events.c
    static native byte[] nextEvent(long events, long waitMs, long[] figures, byte[][] detail);

    static native long dropped(long events);

    static native void freeEvents(long events);

    /** Called from C when a call did not succeed: throws what Java sees of that. */
    private static void raise(int code, byte[] message) throws InterruptedException {
        String text = new String(message, StandardCharsets.UTF_8);
        Status status = Status.of(code);
        // Without a switch, which would need a class of its own.
        if (status == Status.TIMEOUT) {
            throw new LeaseTimeoutException(text);
        }
        if (status == Status.LOST) {
            throw new LeaseLostException(text);
        }
        if (status == Status.INTERRUPTED) {
            // The code that throws this exception clears the flag.
            Thread.interrupted();
            throw new InterruptedException(text);
        }
        if (status == Status.HANDLE) {
            // Java keeps the handles, so one that is wrong was freed by another thread meanwhile.
            throw new LeaseholdException(Status.CLOSED, "closed by another thread");
        }
        throw new LeaseholdException(status, text);
    }

    /** Called from C, on a thread that reads the library's log. */
    private static void log(int level, byte[] message) {
        System.getLogger("dev.leasehold").log(LOG_LEVELS[level], new String(message, StandardCharsets.UTF_8));
    }

    /** Called from C, on the thread that waits: true ends the wait. */
    private static boolean interrupted() {
        return Thread.currentThread().isInterrupted();
    }
}
