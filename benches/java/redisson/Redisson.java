import java.util.Scanner;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock. Its argument is the name of a lock; LEASEHOLD_URL names the server. For a line with a number it
 * makes so many cycles, and tells the nanoseconds of each; for "pass N" it hands the lock over to another client that
 * has waited for N nanoseconds.
 */
class Redisson {
    /** What the JIT compiler needs to have seen all of it. */
    private static final int WARM_UP = 20_000;

    static RLock open(String name) {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("LEASEHOLD_URL"));
        RedissonClient client = org.redisson.Redisson.create(config);
        return client.getLock(name);
    }

    static long cycle(RLock lock) {
        long begun = System.nanoTime();
        lock.lock();
        lock.unlock();
        return System.nanoTime() - begun;
    }

    static long pass(RLock held, RLock wanted, long waited) throws InterruptedException {
        long[] got = new long[1];
        held.lock();
        Thread waiter = new Thread(() -> {
            wanted.lock();
            got[0] = System.nanoTime();
            wanted.unlock();
        });
        waiter.start();
        Thread.sleep(waited / 1_000_000);
        long begun = System.nanoTime();
        held.unlock();
        waiter.join();
        return got[0] - begun;
    }

    public static void main(String[] arguments) throws Exception {
        RLock one = open(arguments[0]);
        RLock other = open(arguments[0]);
        boolean isWarm = false;
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            String line = lines.nextLine();
            for (int i = 0; i < WARM_UP && !isWarm; i++) {
                cycle(one);
            }
            isWarm = true;
            StringBuilder answer = new StringBuilder();
            if (line.startsWith("pass ")) {
                answer.append(pass(one, other, Long.parseLong(line.substring(5))));
            } else {
                for (int left = Integer.parseInt(line.trim()); left > 0; left--) {
                    answer.append(cycle(one)).append(' ');
                }
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
