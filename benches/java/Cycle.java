import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/**
 * Takes and releases one lock, as often as it is told to, and says how long each time took.
 *
 * <p>Its argument is the name of the lock, and LEASEHOLD_URL names the store. Each line of standard
 * input is a number of cycles; each line of standard output has as many figures, in nanoseconds. So
 * `cargo bench -- cycle --also java=benches/java/cycle` measures it in turn with the bare limit.
 */
public final class Cycle {
    /** What the JIT compiler needs to have seen all of it. */
    private static final int WARM_UP = 20_000;

    private static final long SETTLE_MS = 1000;

    private Cycle() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        try (var client = LeaseholdClient.fromEnvironment()) {
            NamedLock lock = client.lock(arguments[0]);
            var input = new BufferedReader(new InputStreamReader(System.in));
            // Not before it is this program's turn.
            boolean warm = false;
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                if (!warm) {
                    warmUp(lock);
                    warm = true;
                }
                long[] figures = new long[Integer.parseInt(line.trim())];
                measure(lock, figures);
                System.out.println(text(figures));
                System.out.flush();
            }
        }
    }

    private static void warmUp(NamedLock lock) throws InterruptedException {
        long[] figures = new long[WARM_UP];
        measure(lock, figures);
        for (int i = 0; i < 100; i++) {
            text(figures);
        }
        // The compiler works in the background, perhaps on the only core that is ours.
        Thread.sleep(SETTLE_MS);
    }

    private static void measure(NamedLock lock, long[] figures) {
        for (int i = 0; i < figures.length; i++) {
            long start = System.nanoTime();
            try (Lease lease = lock.tryAcquire()) {
                if (lease == null) {
                    throw new IllegalStateException("somebody else uses this lock");
                }
            }
            figures[i] = System.nanoTime() - start;
        }
    }

    private static String text(long[] figures) {
        var line = new StringBuilder();
        for (long figure : figures) {
            line.append(line.isEmpty() ? "" : " ").append(figure);
        }
        return line.toString();
    }
}
