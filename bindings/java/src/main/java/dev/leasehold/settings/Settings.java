package dev.leasehold.settings;

import java.util.Locale;
import java.util.Objects;

/**
 * Makes the URL of a store from what other libraries are configured with. It borrows addresses,
 * database, user, password and files for TLS, and never a connection. For
 * {@code LeaseholdClient.from}; it is no interface for programs.
 */
public final class Settings {
    private Settings() {}

    /**
     * The URL of the store that an object is configured for.
     *
     * @param settings an object of one of the libraries that are known, or a URL
     * @return a URL, which may hold a password
     * @throws Refusal nothing can be made of it
     */
    public static String url(Object settings) {
        Objects.requireNonNull(settings, "settings");
        if (settings instanceof CharSequence text) {
            return text.toString();
        }
        if (JedisSettings.isOne(settings)) {
            return JedisSettings.url(settings).text();
        }
        if (LettuceSettings.isOne(settings)) {
            return LettuceSettings.url(settings).text();
        }
        if (RedissonSettings.isOne(settings)) {
            return RedissonSettings.url(settings).text();
        }
        if (DataSourceSettings.isOne(settings)) {
            return DataSourceSettings.url(settings).text();
        }
        throw new Refusal("an object of class " + settings.getClass().getName()
                + " has no settings that Leasehold knows: give"
                + " one of Jedis, Lettuce or Redisson, a DataSource, or a URL such as redis://127.0.0.1");
    }

    /**
     * The URL of the servers that two objects of one library are configured for.
     *
     * @param address Jedis's {@code HostAndPort}, or several as a collection: those of a Cluster
     * @param config Jedis's {@code JedisClientConfig}
     * @return a URL, which may hold a password
     * @throws Refusal nothing can be made of them
     */
    public static String url(Object address, Object config) {
        return JedisSettings.url(Objects.requireNonNull(address, "address"), Objects.requireNonNull(config, "config"))
                .text();
    }

    /**
     * Whether a URL is one of JDBC.
     *
     * @param url any text
     * @return whether {@link #ofJdbc} reads it
     */
    public static boolean isJdbc(String url) {
        return url.toLowerCase(Locale.ROOT).startsWith("jdbc:");
    }

    /**
     * The URL of the store that a URL of JDBC names.
     *
     * @param url begins with {@code jdbc:}
     * @return a URL, which may hold a password
     * @throws Refusal nothing can be made of it
     */
    public static String ofJdbc(String url) {
        return JdbcUrl.read(url, JdbcUrl.NOTHING).text();
    }
}
