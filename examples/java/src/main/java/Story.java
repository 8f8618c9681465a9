import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;

import dev.leasehold.Lease;
import dev.leasehold.LeaseTimeoutException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.util.UUID;

/** The short story: acquire a lock, send its fence to the resource, and release it. */
public final class Story {
    private Story() {}

    /**
     * The resource that the lock protects. It remembers the largest fence that it has seen, and
     * rejects a smaller one. A resource needs nothing more.
     */
    private static final class Till {
        private long largestFence;
        private int charged;

        boolean charge(int amount, long fence) {
            if (fence < largestFence) {
                return false;
            }
            largestFence = fence;
            charged += amount;
            return true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Two clients, as two processes would have them.
        try (var client = LeaseholdClient.fromEnvironment();
                var otherClient = LeaseholdClient.fromEnvironment()) {
            System.out.println("The locks are kept in " + client.store() + ".");

            // A name of its own for each run; yours would be just "stock:sku-17".
            String name = "stock:sku-17:" + UUID.randomUUID();
            NamedLock stock = client.lock(name).ttl(ofSeconds(10)).waitAtMost(ofSeconds(5));
            NamedLock elsewhere = otherClient.lock(name);
            var till = new Till();

            long oldFence;
            try (Lease first = stock.acquire()) {
                oldFence = first.fence();
                System.out.println(name + " was free and is ours, with fence " + oldFence + ".");
                System.out.println("For the next " + first.remaining().toMillis() + " ms that may be relied on.");
                need(till.charge(20, oldFence));

                need(elsewhere.tryAcquire() == null);
                System.out.println("Somebody else tries, and is told at once that it is taken.");
                try (Lease second = elsewhere.acquireWithin(ofMillis(300))) {
                    throw new IllegalStateException("two holders at once: " + second);
                } catch (LeaseTimeoutException e) {
                    System.out.println("The second one waits for 300 ms and is told: " + e.getMessage());
                }
            }

            try (Lease second = elsewhere.acquire()) {
                System.out.println(
                        "We give it back; the second one takes it, with the larger fence " + second.fence() + ".");
                need(second.fence() > oldFence);
                need(till.charge(10, second.fence()));
                need(!till.charge(20, oldFence));
                System.out.println("A charge of ours that was on its way all the time is refused.");
            }
            need(till.charged == 30);
            need(!stock.inspect().isHeld());
            System.out.println("The second lease is closed, and the lock is free.");
        }
    }

    /** Ends the program if a step does not go as the story says. */
    private static void need(boolean so) {
        if (!so) {
            throw new IllegalStateException("the story went another way");
        }
    }
}
