package dev.leasehold.settings;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A URL of a store, put together of parts that may hold any character. */
final class StoreUrl {
    private static final String PLAIN = "-._~";

    private final String scheme;
    private String credentials = "";
    private final List<String> hosts = new ArrayList<>();
    private final StringBuilder path = new StringBuilder();
    private final StringBuilder parameters = new StringBuilder();

    StoreUrl(String scheme) {
        this.scheme = scheme;
    }

    boolean isOf(String expected) {
        return scheme.equals(expected);
    }

    /** Null and an empty text are none. */
    StoreUrl credentials(String user, String password) {
        String secret = isNone(password) ? "" : ":" + escape(password);
        credentials = isNone(user) && secret.isEmpty() ? "" : (isNone(user) ? "" : escape(user)) + secret + "@";
        return this;
    }

    /** An address, once. */
    StoreUrl host(String host, int port) {
        String name = host.startsWith("[") && host.endsWith("]") ? host.substring(1, host.length() - 1) : host;
        String place = (name.contains(":") ? "[" + name.replace("%", "%25") + "]" : escape(name)) + ":" + port;
        if (!hosts.contains(place)) {
            hosts.add(place);
        }
        return this;
    }

    StoreUrl path(String segment) {
        path.append('/').append(escape(segment));
        return this;
    }

    /** A path of this machine. */
    StoreUrl file(String name) {
        String[] segments = name.split("/", -1);
        for (int at = 0; at < segments.length; at++) {
            path.append(at == 0 ? "" : "/").append(escape(segments[at]));
        }
        return this;
    }

    /** Null is none. */
    StoreUrl parameter(String key, String value) {
        if (value != null) {
            parameters.append(parameters.length() == 0 ? '?' : '&').append(key).append('=').append(escape(value));
        }
        return this;
    }

    /** The URL, which may hold a password. */
    String text() {
        String authority = credentials + String.join(",", hosts);
        authority = authority.isEmpty() ? "" : "//" + authority;
        return scheme + ":" + authority + path + parameters;
    }

    static boolean isNone(String text) {
        return text == null || text.isEmpty();
    }

    private static String escape(String text) {
        var escaped = new StringBuilder();
        for (byte unit : text.getBytes(StandardCharsets.UTF_8)) {
            char c = (char) (unit & 0xff);
            if (c < 0x80 && (Character.isLetterOrDigit(c) || PLAIN.indexOf(c) >= 0)) {
                escaped.append(c);
            } else {
                escaped.append(String.format("%%%02X", (int) c));
            }
        }
        return escaped.toString();
    }
}
