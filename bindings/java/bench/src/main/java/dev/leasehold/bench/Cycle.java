package dev.leasehold.bench;

import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdLock;
import dev.leasehold.NamedLock;
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

/**
 * Taking and releasing a lock that nobody else wants, on the store that LEASEHOLD_URL names, or else
 * the embedded one. Compare with `cargo bench`, which measures the bare limit beside it.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(1)
public class Cycle {
    private LeaseholdClient client;
    private NamedLock lock;
    private LeaseholdLock asLock;

    /** Connects. */
    @Setup
    public void open() {
        client = LeaseholdClient.fromEnvironment();
        lock = client.lock("bench:java");
        asLock = lock.asLock();
    }

    /** Closes the client. */
    @TearDown
    public void close() {
        client.close();
    }

    /** By a lease. */
    @Benchmark
    public void lease() {
        try (Lease lease = lock.tryAcquire()) {
            if (lease == null) {
                throw new IllegalStateException("somebody else uses this lock");
            }
        }
    }

    /** By a lease, with a wait that can be interrupted. */
    @Benchmark
    public void acquire() throws Exception {
        try (Lease lease = lock.acquire()) {
            assert lease.isValid();
        }
    }

    /** By java.util.concurrent's interface. */
    @Benchmark
    public void lock() {
        asLock.lock();
        asLock.unlock();
    }
}
