package dev.leasehold;

import java.util.concurrent.atomic.AtomicInteger;

/** Names that no other test uses. */
final class Names {
    private static final AtomicInteger LAST = new AtomicInteger();

    private Names() {}

    static String fresh() {
        return "test:" + ProcessHandle.current().pid() + ":" + LAST.incrementAndGet();
    }
}
