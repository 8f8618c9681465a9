package dev.leasehold.spring.boot;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.springframework.core.env.Environment;

/** {@code spring.data.redis.*}, which has the same names in Spring Boot 3 and 4. */
record RedisSettings(
        String url,
        String host,
        Integer port,
        String username,
        String password,
        Integer database,
        Ssl ssl,
        Sentinel sentinel,
        Cluster cluster) {
    record Ssl(Boolean enabled, String bundle) {}

    record Sentinel(String master, List<String> nodes, String username, String password) {}

    record Cluster(List<String> nodes) {}

    private static final String PREFIX = "spring.data.redis";

    /** Whether they say anything of where the server is. */
    boolean isSet() {
        return hasUrl() || host != null || sentinel != null || cluster != null;
    }

    /**
     * The URL of the same server.
     *
     * @throws IllegalStateException Spring Boot would use a server that no URL of ours can name for sure
     */
    String toUrl(Environment environment) {
        if (hasUrl() && (sentinel != null || cluster != null)) {
            // Spring Boot asks the Sentinels or the cluster, with what the url says of user, password
            // and database. A guess would lock on another server than the one that Spring uses.
            boolean isSentinel = sentinel != null;
            throw new IllegalStateException(PREFIX + ".url is set together with " + PREFIX + "."
                    + (isSentinel ? "sentinel" : "cluster") + ".*: remove the url, or say where the locks are kept with"
                    + " leasehold.url, such as "
                    + (isSentinel ? "redis+sentinel://host:26379/master/0" : "redis+cluster://host:6379"));
        }
        boolean isTls = ssl != null && (Boolean.TRUE.equals(ssl.enabled()) || ssl.bundle() != null);
        String files = isTls && ssl.bundle() != null ? files(environment) : "";
        if (hasUrl()) {
            // It wins over host and the like, as in Spring Boot.
            return (isTls ? url.replaceFirst("^redis:", "rediss:") : url) + query(files);
        }
        String scheme = isTls ? "rediss" : "redis";
        if (sentinel != null) {
            String master = sentinel.master();
            if (master == null || master.isEmpty()) {
                throw new IllegalStateException(PREFIX + ".sentinel.master is not set: name the master");
            }
            return scheme + "+sentinel://" + login() + hosts("sentinel.nodes", sentinel.nodes()) + "/" + escape(master)
                    + "/" + number()
                    + query(parameter("sentinel_user", sentinel.username())
                            + parameter("sentinel_password", sentinel.password()) + files);
        }
        if (cluster != null) {
            return scheme + "+cluster://" + login() + hosts("cluster.nodes", cluster.nodes()) + query(files);
        }
        return scheme + "://" + login() + bracketed(host) + ":" + (port == null ? 6379 : port) + "/" + number()
                + query(files);
    }

    /** A profile takes the one of another file back with an empty one. */
    private boolean hasUrl() {
        return url != null && !url.isEmpty();
    }

    private int number() {
        return database == null ? 0 : database;
    }

    private String login() {
        boolean hasUser = username != null && !username.isEmpty();
        if (password == null || password.isEmpty()) {
            return hasUser ? escape(username) + "@" : "";
        }
        return (hasUser ? escape(username) : "") + ":" + escape(password) + "@";
    }

    private static String hosts(String key, List<String> nodes) {
        if (nodes == null || nodes.isEmpty()) {
            throw new IllegalStateException(PREFIX + "." + key + " is not set: name some host:port");
        }
        return String.join(",", nodes);
    }

    private static String bracketed(String host) {
        return host.contains(":") && !host.startsWith("[") ? "[" + host + "]" : host;
    }

    private static String query(String parameters) {
        return parameters.isEmpty() ? "" : "?" + parameters.substring(1);
    }

    private static String parameter(String key, String value) {
        return value == null || value.isEmpty() ? "" : "&" + key + "=" + escape(value);
    }

    /** The PEM files of a bundle. */
    private String files(Environment environment) {
        String pem = "spring.ssl.bundle.pem." + ssl.bundle() + ".";
        String files = parameter("ca", file(environment, pem + "truststore.certificate"))
                + parameter("cert", file(environment, pem + "keystore.certificate"))
                + parameter("key", file(environment, pem + "keystore.private-key"));
        if (files.isEmpty()) {
            throw new IllegalStateException(PREFIX + ".ssl.bundle is '" + ssl.bundle() + "', and " + pem
                    + "* names no PEM file, which Leasehold reads: set leasehold.url,"
                    + " such as rediss://host?ca=/path/to/ca.pem");
        }
        return files;
    }

    private static String file(Environment environment, String key) {
        String place = environment.getProperty(key);
        if (place != null && (place.startsWith("classpath:") || place.contains("-----BEGIN"))) {
            throw new IllegalStateException(key + " is no file, and Leasehold reads PEM files: name one");
        }
        return place == null ? null : place.replaceFirst("^file:(//)?", "");
    }

    private static String escape(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
