import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;

import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;

/**
 * A scheduled job that one node of many runs, once per interval.
 *
 * <p>Every node has the same timetable and tries the same lock. The node that acquires it runs the job
 * and leaves the lock held until the interval is over, even if the node stops before that.
 */
public final class ScheduledJob {
    private static final int NODES = 4;
    private static final int RUNS = 3;
    private static final Duration INTERVAL = ofSeconds(1);

    private ScheduledJob() {}

    /** What the scheduler of each node calls: that of a web framework, or cron. */
    private static final class OncePerInterval implements Runnable {
        private final NamedLock lock;
        private final Duration interval;
        private final LongConsumer job;

        OncePerInterval(NamedLock lock, Duration interval, LongConsumer job) {
            this.lock = lock;
            this.interval = interval;
            this.job = job;
        }

        @Override
        public void run() {
            try (Lease lease = lock.tryAcquire()) {
                if (lease == null) {
                    return; // it runs on another node, or has been run in this interval
                }
                // Renewed in the background for as long as it takes. If it throws, the lock is
                // released, and another node tries when the job is due there.
                job.accept(lease.fence());
                lease.letExpireIn(interval);
            }
        }
    }

    private record Run(int node, long fence, long at) {}

    public static void main(String[] arguments) throws Exception {
        String name = "report:" + UUID.randomUUID();
        BlockingQueue<Run> runs = new LinkedBlockingQueue<>();
        List<AutoCloseable> nodes = new ArrayList<>();
        for (int node = 1; node <= NODES; node++) {
            nodes.add(start(node, name, runs));
        }
        System.out.println(
                NODES + " nodes have " + name + " on their timetables, once per " + INTERVAL.toMillis() + " ms.");

        Run last = null;
        for (int i = 0; i < RUNS; i++) {
            Run run = runs.poll(30, TimeUnit.SECONDS);
            need(run != null, "nobody ran the job");
            System.out.println("Node " + run.node + " runs it, with fence " + run.fence + ".");
            if (last != null) {
                need(run.fence > last.fence, "the fence has not grown");
                Duration between = Duration.ofNanos(run.at - last.at);
                // A little less than the interval, for the clocks of two machines.
                need(between.compareTo(INTERVAL.multipliedBy(9).dividedBy(10)) > 0, "again after " + between);
            }
            last = run;
        }
        for (AutoCloseable node : nodes) {
            node.close();
        }
        System.out.println(RUNS + " intervals, " + RUNS + " runs.");
    }

    /** One node, as a process of its own would be. */
    private static AutoCloseable start(int node, String name, BlockingQueue<Run> runs) {
        LeaseholdClient client = LeaseholdClient.fromEnvironment();
        ScheduledExecutorService scheduler = Executors.newSingleThreadScheduledExecutor();
        LongConsumer job = fence -> runs.add(new Run(node, fence, System.nanoTime()));
        var task = new OncePerInterval(client.lock(name).ttl(ofSeconds(10)), INTERVAL, job);
        // Due more often than the interval, so that it is seen that most of them do nothing.
        long period = ofMillis(100).toMillis();
        scheduler.scheduleAtFixedRate(task, 0, period, TimeUnit.MILLISECONDS);
        return () -> {
            scheduler.shutdown();
            need(scheduler.awaitTermination(10, TimeUnit.SECONDS), "a node does not end");
            client.close();
        };
    }

    private static void need(boolean so, String otherwise) {
        if (!so) {
            throw new IllegalStateException(otherwise);
        }
    }
}
