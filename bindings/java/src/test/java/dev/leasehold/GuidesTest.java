package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The class in docs/how-to/metrics-and-traces.md, compiled and used as it stands there. */
class GuidesTest {
    private static final Path PAGE = Path.of("..", "..", "docs", "how-to", "metrics-and-traces.md");

    /** Compiles the program that the page has for a file. */
    private static void compile(String file, Path folder) throws Exception {
        var block = Pattern.compile("(?ms)^```java\n// " + Pattern.quote(file) + "\n(.*?)^```")
                .matcher(Files.readString(PAGE));
        assertTrue(block.find(), file);
        Path source = folder.resolve(file);
        Files.createDirectories(source.getParent());
        Files.writeString(source, block.group(1));
        int status = ToolProvider.getSystemJavaCompiler()
                .run(null, null, null, "-Werror", "-d", folder.toString(), "-cp",
                        System.getProperty("java.class.path"), source.toString());
        assertEquals(0, status);
    }

    @Test
    void micrometerShowsWhatWasCounted(@TempDir Path folder) throws Exception {
        compile("shop/LockMetrics.java", folder);
        try (var loader = new URLClassLoader(new URL[] {folder.toUri().toURL()});
                var client = LeaseholdClient.configure("sqlite://" + folder.resolve("locks.db"))
                        .metricsGroup("stock:*")
                        .connect()) {
            var made = loader.loadClass("shop.LockMetrics").getConstructor(LeaseholdClient.class);
            var registry = new SimpleMeterRegistry();
            ((MeterBinder) made.newInstance(client)).bindTo(registry);
            var lock = client.lock("stock:17");
            lock.acquire().release();
            try (var held = client.lock("n").acquire()) {
                var acquired = registry.get("leasehold_acquisitions_total").tag("outcome", "granted");
                assertEquals(1, acquired.tag("lock", "stock:*").functionCounter().count());
                assertEquals(2, count(registry, "acquisitions_total"));
                assertEquals(0, count(registry, "released_late_total"));
                assertEquals(1, count(registry, "held"));
                assertEquals(0, count(registry, "waiting"));
            }
            assertEquals(0, count(registry, "held"));
            // Six outcomes, six more counters and three gauges, of a group and of all others.
            assertEquals(2 * (6 + 6 + 3), registry.getMeters().size());
        }
    }

    /** Of all locks together. */
    private static double count(MeterRegistry registry, String name) {
        return registry.get("leasehold_" + name).meters().stream()
                .mapToDouble(meter -> meter.measure().iterator().next().getValue())
                .sum();
    }
}
