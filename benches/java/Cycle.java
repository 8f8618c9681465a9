import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/**
 * Takes and releases one lock, as often as it is told to, and says how long each time took.
 *
 * <p>Arguments: the URL of a store and the name of a lock. Each line of standard input is a number of
 * cycles; each line of standard output has as many figures, in nanoseconds.
 */
public final class Cycle {
    /** What the JIT compiler needs to have seen all of it. */
    private static final int WARM_UP = 20_000;

    private Cycle() {}

    public static void main(String[] arguments) throws IOException {
        try (var client = LeaseholdClient.connect(arguments[0])) {
            NamedLock lock = client.lock(arguments[1]);
            measure(lock, new long[WARM_UP]);
            var input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                long[] figures = new long[Integer.parseInt(line.trim())];
                measure(lock, figures);
                print(figures);
            }
        }
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

    private static void print(long[] figures) {
        var line = new StringBuilder();
        for (long figure : figures) {
            line.append(line.isEmpty() ? "" : " ").append(figure);
        }
        System.out.println(line);
        System.out.flush();
    }
}
