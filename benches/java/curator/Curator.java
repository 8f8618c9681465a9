import java.util.Scanner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** What people lock with on a ZooKeeper. Does what lines of its input say, and tells nanoseconds. */
class Curator {
    static InterProcessMutex open(String server, String path) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(server, new RetryOneTime(100));
        client.start();
        return new InterProcessMutex(client, path);
    }

    public static void main(String[] args) throws Exception {
        InterProcessMutex cycle = open(args[0], "/curator-cycle");
        InterProcessMutex giver = open(args[0], "/curator-pass");
        InterProcessMutex taker = open(args[0], "/curator-pass");
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            long[] got = new long[1];
            long begun;
            if (lines.nextLine().equals("cycle")) {
                begun = System.nanoTime();
                cycle.acquire();
                cycle.release();
                got[0] = System.nanoTime();
            } else {
                giver.acquire();
                Thread waiter = new Thread(() -> {
                    try {
                        taker.acquire();
                        got[0] = System.nanoTime();
                        taker.release();
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                });
                waiter.start();
                Thread.sleep(10);
                begun = System.nanoTime();
                giver.release();
                waiter.join();
            }
            System.out.println(got[0] - begun);
        }
        System.exit(0);
    }
}
