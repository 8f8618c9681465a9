package dev.leasehold;

/** The options of a lock; null or {@link Native#NOT_SET} is the default of the native library. */
record Options(
        long ttlMs,
        long waitMs,
        long ioTimeoutMs,
        long maxHoldMs,
        Integer attempts,
        Boolean renew,
        WaitMode waitMode,
        Backoff backoff) {
    static final Options DEFAULT =
            new Options(
                    Native.NOT_SET, Native.NOT_SET, Native.NOT_SET, Native.NOT_SET, null, null, null, null);

    Options withTtl(long ms) {
        return new Options(ms, waitMs, ioTimeoutMs, maxHoldMs, attempts, renew, waitMode, backoff);
    }

    Options withWait(long ms) {
        return new Options(ttlMs, ms, ioTimeoutMs, maxHoldMs, attempts, renew, waitMode, backoff);
    }

    Options withIoTimeout(long ms) {
        return new Options(ttlMs, waitMs, ms, maxHoldMs, attempts, renew, waitMode, backoff);
    }

    Options withMaxHold(long ms) {
        return new Options(ttlMs, waitMs, ioTimeoutMs, ms, attempts, renew, waitMode, backoff);
    }

    Options withAttempts(int most) {
        return new Options(ttlMs, waitMs, ioTimeoutMs, maxHoldMs, most, renew, waitMode, backoff);
    }

    Options withRenew(boolean on) {
        return new Options(ttlMs, waitMs, ioTimeoutMs, maxHoldMs, attempts, on, waitMode, backoff);
    }

    Options withWaitMode(WaitMode mode) {
        return new Options(ttlMs, waitMs, ioTimeoutMs, maxHoldMs, attempts, renew, mode, backoff);
    }

    Options withBackoff(Backoff pauses) {
        return new Options(ttlMs, waitMs, ioTimeoutMs, maxHoldMs, attempts, renew, waitMode, pauses);
    }

    /** Gives a native lock these options. */
    void apply(long lock) {
        if (ttlMs >= 0 || waitMs >= 0 || ioTimeoutMs >= 0 || maxHoldMs >= 0) {
            Native.setTimes(lock, ttlMs, waitMs, ioTimeoutMs, maxHoldMs);
        }
        if (attempts != null) {
            Native.setAttempts(lock, attempts);
        }
        if (renew != null) {
            Native.setRenew(lock, renew);
        }
        if (waitMode != null) {
            Native.setWaitMode(lock, waitMode.code);
        }
        if (backoff != null) {
            long longest =
                    backoff.longest() == null ? Native.FOREVER : Times.toMillis("longest", backoff.longest());
            Native.setBackoff(lock, Times.toMillis("first", backoff.first()), longest);
        }
    }
}
