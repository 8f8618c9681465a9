package dev.leasehold;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A private redis-server on a free port of the loopback interface. */
final class RedisServer implements AutoCloseable {
    /** Starts servers, and ends them when this process ends. */
    static final String KIT = System.getenv().getOrDefault("KIT_PROGRAM", "../../tests/kit/run");

    private static RedisServer shared;

    private final Process kit;
    private final BufferedReader answers;
    private final int port;

    private RedisServer(String... options) throws IOException {
        List<String> command = new ArrayList<>(List.of(KIT, "redis"));
        command.addAll(List.of(options));
        kit = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        answers = new BufferedReader(new InputStreamReader(kit.getInputStream(), StandardCharsets.UTF_8));
        String line = answers.readLine();
        if (line == null) {
            throw new IOException("the kit's program has ended");
        }
        port = Integer.parseInt(line.substring(line.lastIndexOf('=') + 1));
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
            return new RedisServer(options);
        } catch (IOException e) {
            throw new UncheckedIOException("the kit starts no Redis", e);
        }
    }

    private void tell(String word) throws IOException {
        kit.getOutputStream().write((word + "\n").getBytes(StandardCharsets.UTF_8));
        kit.getOutputStream().flush();
        String answer = answers.readLine();
        if (!"ok".equals(answer)) {
            throw new IOException(word + ": " + answer);
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

    boolean exists(String key) {
        return command("EXISTS", key).equals(":1");
    }

    /** Stops the process, so that it does not answer any more, or lets it go on. */
    void stop(boolean stopped) throws IOException {
        tell(stopped ? "pause" : "resume");
    }

    /** Nobody listens at its port from now on. */
    void kill() throws IOException {
        tell("kill");
    }

    @Override
    public void close() {
        kit.destroyForcibly();
    }
}
