package dev.leasehold.bench;

import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdLock;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** What it costs to go from Java to the library and back, where that asks no store. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(1)
public class Crossing {
    private Path folder;
    private LeaseholdClient client;
    private Lease lease;
    private LeaseholdLock lock;

    /** Takes a lock. */
    @Setup
    public void take() throws IOException {
        folder = Files.createTempDirectory("leasehold-bench-");
        client = LeaseholdClient.connect("sqlite:" + folder.resolve("locks.db"));
        lease = client.lock("lease").tryAcquire();
        lock = client.lock("lock").asLock();
    }

    /** Gives it back. */
    @TearDown
    public void close() throws IOException {
        client.close();
        try (var files = Files.list(folder)) {
            for (Path file : files.toList()) {
                Files.delete(file);
            }
        }
        Files.delete(folder);
    }

    /** One crossing, with what the library does to answer. */
    @Benchmark
    public boolean isValid() {
        return lease.isValid();
    }

    /** The same, and an object. */
    @Benchmark
    public Object remaining() {
        return lease.remaining();
    }

    /** None. */
    @Benchmark
    public long fence() {
        return lease.fence();
    }

    /** Taking again what the thread has already: two crossings. */
    @Benchmark
    public int reenter() {
        if (lock.getHoldCount() == 0) {
            lock.lock();
        }
        lock.lock();
        int count = lock.getHoldCount();
        lock.unlock();
        return count;
    }
}
