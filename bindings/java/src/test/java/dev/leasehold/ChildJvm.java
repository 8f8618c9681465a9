package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/** Runs a main class in a JVM of its own, which checks our use of JNI. */
final class ChildJvm {
    static final Path CLASSES = Path.of("target", "classes").toAbsolutePath();
    static final Path TEST_CLASSES = Path.of("target", "test-classes").toAbsolutePath();
    private static final Duration LIMIT = Duration.ofSeconds(120);

    private final List<String> options = new ArrayList<>();
    private final List<String> arguments = new ArrayList<>();
    private final Map<String, String> environment = new TreeMap<>();
    private final Class<?> main;
    private String classPath = CLASSES + ":" + TEST_CLASSES + ":" + junit();

    private ChildJvm(Class<?> main) {
        this.main = main;
    }

    static ChildJvm of(Class<?> main, String... arguments) {
        var child = new ChildJvm(main);
        child.arguments.addAll(List.of(arguments));
        return child;
    }

    ChildJvm option(String option) {
        options.add(option);
        return this;
    }

    ChildJvm env(String name, String value) {
        environment.put(name, value);
        return this;
    }

    ChildJvm classPath(Path... paths) {
        classPath = String.join(":", List.of(paths).stream().map(Path::toString).toList());
        return this;
    }

    ChildJvm jarsOf(Path folder) {
        classPath += ":" + folder.toAbsolutePath() + "/*";
        return this;
    }

    /** The tests use assertions in their main classes too. */
    private static String junit() {
        return System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    }

    /** How it ended. */
    record Result(int code, String output, Duration took) {
        String succeeded() {
            assertEquals(0, code, output);
            return output;
        }
    }

    Process start(Path output) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-Xcheck:jni", "-Xshare:auto", "-cp", classPath));
        if (Runtime.version().feature() >= 24) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        command.addAll(options);
        command.add(main.getName());
        command.addAll(arguments);
        var builder = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output.toFile());
        builder.environment().remove("LEASEHOLD_URL");
        builder.environment().putAll(environment);
        try {
            return builder.start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Result run() throws IOException, InterruptedException {
        Path file = Files.createTempFile("leasehold-child-", ".txt");
        try {
            long start = System.nanoTime();
            Process process = start(file);
            boolean ended = process.waitFor(LIMIT.toSeconds(), TimeUnit.SECONDS);
            var took = Duration.ofNanos(System.nanoTime() - start);
            if (!ended) {
                process.destroyForcibly().waitFor();
            }
            String output = Files.readString(file);
            assertTrue(ended, "it did not end; it said: " + output);
            checkOutput(output);
            return new Result(process.exitValue(), output, took);
        } finally {
            Files.delete(file);
        }
    }

    /** What a JVM says that finds fault with our use of JNI, or crashes. */
    static void checkOutput(String output) {
        for (String fault : List.of("WARNING in native method", "FATAL ERROR in native method", "A fatal error")) {
            assertTrue(!output.contains(fault), output);
        }
    }
}
