package dev.leasehold;

import java.io.BufferedReader;
import java.io.IOException;
import java.util.List;
import java.util.stream.Stream;

/** Servers of a kind, on the loopback interface: they end when this is closed. */
public final class Kit implements AutoCloseable {
    private final Process process;
    private final BufferedReader answers;
    private final String url;
    private final List<Integer> ports;

    /**
     * Starts them.
     *
     * @param kind as the kit's program calls it: postgres, sentinel and so on
     */
    public Kit(String kind) throws IOException {
        process = new ProcessBuilder(RedisServer.KIT, kind)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        answers = process.inputReader();
        String line = answers.readLine();
        if (line == null) {
            throw new IOException("the kit starts no " + kind);
        }
        url = line.split("[= ]")[1];
        ports = Stream.of(line.substring(line.lastIndexOf('=') + 1).split(",")).map(Integer::valueOf).toList();
    }

    /** The URL of the store. */
    public String url() {
        return url;
    }

    /** Of each server; for Sentinels those of master and replica first. */
    public List<Integer> ports() {
        return ports;
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
    }
}
