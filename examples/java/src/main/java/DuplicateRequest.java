import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;

import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A service method that rejects duplicate requests, on any number of servers.
 *
 * <p>A user clicks twice, or a proxy sends a request again. The first request acquires a lock that is
 * named after it. The server rejects the others at once, since the lock is held. After the answer the
 * lock stays held until its ttl has passed, so that the server rejects a late duplicate too.
 */
public final class DuplicateRequest {
    /** How long after an answer the same request counts as a duplicate. */
    private static final Duration REMEMBERED = ofSeconds(2);

    private DuplicateRequest() {}

    /** What the web layer turns into "409 Conflict": {@code @ResponseStatus(HttpStatus.CONFLICT)}. */
    private static final class DuplicateRequestException extends RuntimeException {
        private static final long serialVersionUID = 1;

        DuplicateRequestException(String request) {
            super("request " + request + " is being answered, or was a moment ago");
        }
    }

    private record Receipt(String request, long fence) {}

    /** As a {@code @Service} would be; the client is a {@code @Bean} with {@code destroyMethod = "close"}. */
    private static final class OrderService {
        private final LeaseholdClient locks;

        OrderService(LeaseholdClient locks) {
            this.locks = locks;
        }

        /** Not transactional itself: the lock has to outlive the transaction inside. */
        Receipt place(String request, boolean paid) {
            try (Lease lease = locks.lock("request:" + request).ttl(ofSeconds(10)).tryAcquire()) {
                if (lease == null) {
                    throw new DuplicateRequestException(request);
                }
                // If this throws, the lock is released: the request may be sent again.
                Receipt receipt = store(request, paid, lease.fence());
                lease.letExpireIn(REMEMBERED);
                return receipt;
            }
        }

        /** Where the transaction would be. The database rejects a smaller fence than it has seen. */
        private Receipt store(String request, boolean paid, long fence) {
            if (!paid) {
                throw new IllegalArgumentException("the card was refused");
            }
            return new Receipt(request, fence);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String request = UUID.randomUUID().toString();
        int clicks = 8;
        try (var client = LeaseholdClient.fromEnvironment();
                var otherClient = LeaseholdClient.fromEnvironment()) {
            var server = new OrderService(client);
            var otherServer = new OrderService(otherClient);

            try {
                server.place(request, false);
                throw new IllegalStateException("a refused card was accepted");
            } catch (IllegalArgumentException e) {
                System.out.println("A request fails (" + e.getMessage() + "), so it may be sent again.");
            }

            int accepted = 0;
            for (Future<Receipt> answer : allAtOnce(clicks, request, server, otherServer)) {
                try {
                    System.out.println("Accepted: " + answer.get());
                    accepted++;
                } catch (ExecutionException e) {
                    need(e.getCause() instanceof DuplicateRequestException, e.getCause().toString());
                }
            }
            need(accepted == 1, accepted + " were accepted");
            System.out.println("It was sent " + clicks + " times to two servers at once: one was accepted.");

            try {
                otherServer.place(request, true);
                throw new IllegalStateException("a late duplicate was accepted");
            } catch (DuplicateRequestException e) {
                System.out.println("One comes after the answer: " + e.getMessage() + ".");
            }

            // Waits only to show when a new request may use the name.
            long start = System.nanoTime();
            client.lock("request:" + request).acquireWithin(REMEMBERED.multipliedBy(5)).close();
            Duration took = Duration.ofNanos(System.nanoTime() - start);
            System.out.println("After " + took.toMillis() + " ms more the name is free for another request.");
            need(took.compareTo(ofMillis(1)) > 0, "it was free at once");
        }
    }

    private static List<Future<Receipt>> allAtOnce(int clicks, String request, OrderService... servers)
            throws InterruptedException {
        var go = new CountDownLatch(1);
        var pool = Executors.newFixedThreadPool(clicks);
        try {
            List<Future<Receipt>> answers = new ArrayList<>();
            for (int i = 0; i < clicks; i++) {
                OrderService server = servers[i % servers.length];
                answers.add(pool.submit(() -> {
                    go.await();
                    return server.place(request, true);
                }));
            }
            go.countDown();
            return answers;
        } finally {
            pool.shutdown();
        }
    }

    private static void need(boolean so, String otherwise) {
        if (!so) {
            throw new IllegalStateException(otherwise);
        }
    }
}
