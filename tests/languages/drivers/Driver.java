import dev.leasehold.Election;
import dev.leasehold.Lease;
import dev.leasehold.LeaseEvent;
import dev.leasehold.LeaseEvents;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import dev.leasehold.MemoryStore;
import dev.leasehold.NamedLock;
import dev.leasehold.WaitMode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The driver of Java; see README.md here. */
public final class Driver {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static final Map<String, NamedLock> LOCKS = new ConcurrentHashMap<>();
    private static final Map<String, String> NAMES = new ConcurrentHashMap<>();
    private static final Map<String, Lease> LEASES = new ConcurrentHashMap<>();
    private static final LinkedBlockingQueue<LeaseEvent> CALLS = new LinkedBlockingQueue<>();
    private static LeaseholdClient client;
    private static LeaseEvents events;
    private static volatile Election candidate;
    private static Thread begun;
    private static volatile String ended;

    private Driver() {}

    public static void main(String[] arguments) throws Exception {
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            String[] words = line.trim().split(" +");
            switch (words[0]) {
                case "begin" -> {
                    String[] rest = Arrays.copyOfRange(words, 1, words.length);
                    begun = new Thread(() -> ended = obey(rest));
                    begun.start();
                    say("begun");
                }
                case "end" -> {
                    begun.join();
                    say(ended);
                }
                case "interrupt" -> {
                    begun.interrupt();
                    say("ok");
                }
                default -> say(obey(words));
            }
        }
    }

    private static void say(String answer) {
        System.out.println("@@ " + answer);
        System.out.flush();
    }

    private static String obey(String[] words) {
        try {
            return act(words);
        } catch (InterruptedException stopped) {
            return "interrupted";
        } catch (LeaseholdException failed) {
            return failed.status().name().toLowerCase(Locale.ROOT);
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }

    private static String act(String[] word) throws InterruptedException, IOException {
        switch (word[0]) {
            case "open" -> {
                if (word[1].startsWith("memory:")) {
                    MemoryStore.named(word[1].split("[:?]")[1]);
                }
                client = LeaseholdClient.connect(word[1]);
            }
            case "lock" -> {
                NAMES.put(word[1], word[2]);
                LOCKS.put(word[1], lock(word));
            }
            case "try" -> {
                Lease lease = LOCKS.get(word[2]).tryAcquire();
                return lease == null ? "busy" : keep(word[1], lease);
            }
            case "acquire" -> {
                return keep(word[1], LOCKS.get(word[2]).acquire());
            }
            case "acquire_within" -> {
                return keep(word[1], LOCKS.get(word[2]).acquireWithin(ms(word[3])));
            }
            case "attach" -> {
                return keep(word[1], LOCKS.get(word[2]).attach(word[3], Long.parseLong(word[4])));
            }
            case "extend" -> {
                if (word.length > 2) {
                    LEASES.get(word[1]).extend(ms(word[2]));
                } else {
                    LEASES.get(word[1]).extend();
                }
            }
            case "release" -> LEASES.get(word[1]).release();
            case "let_expire" -> LEASES.get(word[1]).letExpireIn(ms(word[2]));
            case "detach" -> {
                var handover = LEASES.get(word[1]).detach();
                return "ok " + handover.token() + " " + handover.fence();
            }
            case "valid" -> {
                return LEASES.get(word[1]).isValid() ? "yes" : "no";
            }
            case "remaining" -> {
                return "ok " + LEASES.get(word[1]).remaining().toMillis();
            }
            case "events" -> events = client.events();
            case "event" -> {
                return nextEvent();
            }
            case "on_lost" -> LEASES.get(word[1]).onLost(CALLS::add);
            case "called" -> {
                return spelled(CALLS.poll(word.length > 1 ? Long.parseLong(word[1]) : 20_000, TimeUnit.MILLISECONDS));
            }
            case "inspect" -> {
                var seen = LOCKS.get(word[1]).inspect();
                return seen.isHeld() ? "held " + seen.fence() : "free";
            }
            case "break" -> {
                var lock = LOCKS.get(word[1]);
                var broken = word.length > 2 ? lock.breakHeld("java", Long.parseLong(word[2])) : lock.breakHeld("java");
                return broken.isPresent() ? "ok " + broken.getAsLong() : "none";
            }
            case "elect" -> {
                candidate = client.election(decoded(NAMES.get(word[1]))).ttl(ms(word[2]));
                candidate.runAsLeader(term -> Thread.sleep(Long.MAX_VALUE));
            }
            case "leads" -> {
                return leads();
            }
            case "leader" -> {
                var leader = candidate.leader();
                return leader.isHeld() ? "held " + leader.fence() : "free";
            }
            case "withdraw" -> candidate.stop();
            case "metric" -> {
                var lines = client.metricsText().lines().filter(line -> line.startsWith(word[1] + " "));
                return lines.findFirst().map(line -> "ok " + line.substring(word[1].length() + 1)).orElse("none");
            }
            case "take_empty_name" -> {
                return take(new byte[0]);
            }
            case "take_long_name" -> {
                return take(new byte[Integer.parseInt(word[1])]);
            }
            case "close" -> client.close();
            case "forget" -> {
                client.close();
                LOCKS.clear();
                LEASES.clear();
                CALLS.clear();
                candidate = null;
            }
            case "contend" -> {
                return contend(word);
            }
            default -> {
                return "unsupported";
            }
        }
        return "ok";
    }

    private static String leads() throws InterruptedException {
        for (int asked = 0; asked < 4000; asked++) {
            Election election = candidate;
            OptionalLong fence = election == null ? OptionalLong.empty() : election.fence();
            if (fence.isPresent()) {
                return "ok " + fence.getAsLong();
            }
            Thread.sleep(5);
        }
        return "timeout";
    }

    private static Duration ms(String count) {
        return Duration.ofMillis(Long.parseLong(count));
    }

    private static String keep(String key, Lease lease) {
        LEASES.put(key, lease);
        return "ok " + lease.fence();
    }

    private static NamedLock lock(String[] word) {
        NamedLock lock = client.lock(decoded(word[2]));
        for (String option : Arrays.copyOfRange(word, 3, word.length)) {
            String value = option.substring(option.indexOf('=') + 1);
            lock = switch (option.substring(0, option.indexOf('='))) {
                case "ttl" -> lock.ttl(ms(value));
                case "wait" -> lock.waitAtMost(ms(value));
                case "io_timeout" -> lock.ioTimeout(ms(value));
                case "wait_mode" -> lock.waitMode(WaitMode.valueOf(value.toUpperCase(Locale.ROOT)));
                case "renew" -> lock.renew(!value.equals("no"));
                default -> throw new IllegalArgumentException(option);
            };
        }
        return lock;
    }

    private static byte[] decoded(String name) {
        var bytes = new ByteArrayOutputStream();
        for (int at = 0; at < name.length(); at++) {
            if (name.charAt(at) == '%') {
                bytes.write(Integer.parseInt(name.substring(at + 1, at + 3), 16));
                at += 2;
            } else {
                bytes.write(name.charAt(at));
            }
        }
        return bytes.toByteArray();
    }

    private static String take(byte[] name) {
        Lease lease = client.lock(name).tryAcquire();
        if (lease == null) {
            return "busy";
        }
        lease.release();
        return "ok";
    }

    private static String nextEvent() throws InterruptedException {
        return spelled(events.nextWithin(Duration.ofSeconds(20)));
    }

    private static String spelled(LeaseEvent event) {
        if (event == null) {
            return "timeout";
        }
        String kind = event.kind().name().toLowerCase(Locale.ROOT);
        String reason = event.kind() == LeaseEvent.Kind.LOST ? event.reason().name().toLowerCase(Locale.ROOT) : "-";
        return kind + " " + reason + " " + event.fence();
    }

    private static String contend(String[] word) throws InterruptedException, IOException {
        int turns = Integer.parseInt(word[1]);
        int names = word.length - 2;
        int start = (int) (ProcessHandle.current().pid() % names);
        for (int turn = start; turn < start + turns; turn++) {
            String name = word[2 + turn % names];
            NamedLock lock = client.lock(name).ttl(Duration.ofSeconds(10)).waitAtMost(Duration.ofSeconds(60));
            try (Lease lease = lock.acquire()) {
                String entered = name + " " + lease.fence();
                say("enter " + entered);
                long value = Long.parseLong(INPUT.readLine().trim());
                say("leave " + entered + " " + (value + 1));
                INPUT.readLine();
            }
        }
        return "done";
    }
}
