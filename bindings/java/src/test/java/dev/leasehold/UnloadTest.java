package dev.leasehold;

import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A class loader that goes, as that of a web application does, takes everything with it. */
class UnloadTest {
    private final RedisServer redis = RedisServer.shared();

    @TempDir
    Path scratch;

    private void run(String guest, String name) throws Exception {
        String output = ChildJvm.of(Host.class, guest, redis.url() + "?advise=no", name)
                .option("-Djava.io.tmpdir=" + scratch)
                .run()
                .succeeded();
        assertEquals("", output);
    }

    @Test
    void applicationsComeAndGo() throws Exception {
        String name = Names.fresh();
        run("tidy", name);
        for (int round = 0; round < Host.ROUNDS; round++) {
            assertTrue(!redis.exists(name + round));
        }
    }

    @Test
    void applicationsThatForgetEverythingReleaseNothing() throws Exception {
        String name = Names.fresh();
        run("forgetful", name);
        for (int round = 0; round < Host.ROUNDS; round++) {
            assertTrue(redis.exists(name + round));
        }
    }

    /** A callback is of a class of the application, and is called again and again. */
    @Test
    void applicationsThatLookUpCredentialsGoToo() throws Exception {
        String name = Names.fresh();
        run("lookingUp", name);
        for (int round = 0; round < Host.ROUNDS; round++) {
            assertTrue(redis.exists(name + round));
        }
    }

    /** What even the cleaner does not know of is closed when the library is unloaded. */
    @Test
    void theLibraryClosesWhatIsLeft() throws Exception {
        String name = Names.fresh();
        run("lawless", name);
        for (int round = 0; round < Host.ROUNDS; round++) {
            assertTrue(redis.exists(name + round));
        }
    }

    /** Lets guests come and go, each in a class loader of its own. */
    static final class Host {
        static final int ROUNDS = 8;

        public static void main(String[] arguments) throws Exception {
            long threads = Thread.activeCount();
            List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
            for (int round = 0; round < ROUNDS; round++) {
                loaders.add(new WeakReference<>(visit(arguments[0], arguments[1], arguments[2] + round)));
            }
            Eventually.holds(ofSeconds(60), () -> {
                System.gc();
                return loaders.stream().allMatch(loader -> loader.get() == null);
            });
            Eventually.holds(ofSeconds(60), () -> {
                System.gc();
                return nativeThreads().isEmpty();
            });
            Eventually.holds(ofSeconds(60), () -> Thread.activeCount() <= threads);
        }

        private static ClassLoader visit(String guest, String url, String name) throws Exception {
            URL[] places = {ChildJvm.CLASSES.toUri().toURL(), ChildJvm.TEST_CLASSES.toUri().toURL()};
            var loader = new URLClassLoader(places, ClassLoader.getPlatformClassLoader());
            Class<?> visitor = loader.loadClass("dev.leasehold.UnloadTest$Guest");
            visitor.getMethod(guest, String.class, String.class).invoke(null, url, name);
            loader.close();
            return loader;
        }

        private static List<String> nativeThreads() throws IOException {
            var found = new ArrayList<String>();
            try (var tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
                for (Path task : tasks) {
                    try {
                        String name = Files.readString(task.resolve("comm"));
                        if (name.startsWith("leasehold")) {
                            found.add(name);
                        }
                    } catch (IOException e) {
                        continue; // it has ended meanwhile
                    }
                }
            }
            return found;
        }
    }

    /** What an application does. It needs no class of JUnit. */
    public static final class Guest {
        private Guest() {}

        public static void tidy(String url, String name) throws Exception {
            try (var client = LeaseholdClient.connect(url)) {
                client.onEvent(event -> {});
                var threads = new ArrayList<Thread>();
                for (int i = 0; i < 10; i++) {
                    threads.add(new Thread(() -> {
                        LeaseholdLock lock = client.lock(name).asLock();
                        lock.lock();
                        lock.unlock();
                    }));
                }
                threads.forEach(Thread::start);
                for (Thread thread : threads) {
                    thread.join();
                }
            }
        }

        public static void forgetful(String url, String name) throws Exception {
            var client = LeaseholdClient.connect(url);
            client.onEvent(event -> {});
            client.events();
            client.lock(name).acquire().onLost(event -> {});
            client.lock(name).tryAcquire();
            // And one on a thread that goes.
            var thread = new Thread(() -> client.lock(name + ":lock").asLock().lock());
            thread.start();
            thread.join();
        }

        public static void lookingUp(String url, String name) throws Exception {
            var circle = new LeaseholdClient[1];
            var calls = new CountDownLatch(3);
            circle[0] = LeaseholdClient.connect(url, endpoint -> {
                calls.countDown();
                String user = circle.length == 1 ? "default" : null;
                return new Credentials.Login(user, "any", Instant.now().plusMillis(800));
            });
            circle[0].lock(name).acquire();
            calls.await();
        }

        public static void lawless(String url, String name) {
            long config = Native.config(url.getBytes());
            long client = Native.open(config);
            Native.freeConfig(config);
            long lock = Native.lock(client, name.getBytes());
            long lease = Native.tryAcquire(lock);
            if (lease == 0) {
                throw new IllegalStateException("taken");
            }
            Native.abandonLease(lease);
            Native.freeLock(lock);
        }
    }
}
