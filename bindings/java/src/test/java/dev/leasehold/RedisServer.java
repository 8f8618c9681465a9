package dev.leasehold;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** A private redis-server on a free port of the loopback interface. */
final class RedisServer implements AutoCloseable {
    private static RedisServer shared;

    private final Process process;
    private final int port;

    private RedisServer(Process process, int port) {
        this.process = process;
        this.port = port;
    }

    /** One for all tests that do not disturb it. */
    static synchronized RedisServer shared() {
        if (shared == null) {
            shared = start();
        }
        return shared;
    }

    static RedisServer start(String... options) {
        try {
            // A free port can be taken by somebody else before the server has it.
            for (int i = 0; i < 20; i++) {
                RedisServer server = launch(freePort(), options);
                if (server != null) {
                    return server;
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException("redis-server is needed for the tests", e);
        }
        throw new IllegalStateException("no port stayed free for long enough, or redis-server does not start");
    }

    private static RedisServer launch(int port, String... options) throws IOException {
        Path folder = Files.createTempDirectory("leasehold-redis-");
        String program = System.getenv().getOrDefault("REDIS_SERVER", "redis-server");
        List<String> command = new ArrayList<>(List.of(program, "--port", "" + port, "--bind", "127.0.0.1"));
        command.addAll(List.of("--save", "", "--appendonly", "no", "--dir", folder.toString()));
        command.addAll(List.of(options));
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .start();
        // Also when the JVM of the tests is told to end.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            process.destroyForcibly();
            folder.toFile().delete();
        }));
        var server = new RedisServer(process, port);
        Eventually.holds(Duration.ofSeconds(20), () -> !process.isAlive() || server.answers());
        return process.isAlive() ? server : null;
    }

    static int freePort() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** What a command gives, as it comes over the wire: {@code :1}, {@code +OK} and so on. */
    String command(String... words) {
        var request = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) {
            request.append("$").append(word.getBytes(StandardCharsets.UTF_8).length).append("\r\n");
            request.append(word).append("\r\n");
        }
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(5000);
            socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.UTF_8));
            return readLine(socket.getInputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String readLine(InputStream in) throws IOException {
        var line = new StringBuilder();
        for (int c = in.read(); c != '\r' && c != -1; c = in.read()) {
            line.append((char) c);
        }
        return line.toString();
    }

    private boolean answers() {
        try {
            return command("PING").equals("+PONG") || command("PING").startsWith("-NOAUTH");
        } catch (UncheckedIOException e) {
            return false;
        }
    }

    boolean exists(String key) {
        return command("EXISTS", key).equals(":1");
    }

    /** Stops the process, so that it does not answer any more, or lets it go on. */
    void stop(boolean stopped) throws IOException, InterruptedException {
        String signal = stopped ? "-STOP" : "-CONT";
        new ProcessBuilder("kill", signal, "" + process.pid()).start().waitFor();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
