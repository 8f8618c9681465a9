package dev.leasehold.settings;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** What a {@code DataSource} connects to, where it says that. */
final class DataSourceSettings {
    private static final String INSTEAD =
            "give its URL, such as jdbc:postgresql://host:5432/database?user=..&password=..";

    private DataSourceSettings() {}

    static boolean isOne(Object object) {
        return Mirror.isA(object, "javax.sql.CommonDataSource") || Mirror.isA(object, "com.zaxxer.hikari.HikariConfig");
    }

    static StoreUrl url(Object settings) {
        var source = new Mirror(settings, "its library", INSTEAD);
        if (source.isA("com.zaxxer.hikari.HikariConfig")) {
            return ofHikari(source);
        }
        if (source.isA("org.springframework.jdbc.datasource.DelegatingDataSource")) {
            if (source.isA("org.springframework.jdbc.datasource.UserCredentialsDataSourceAdapter")) {
                throw source.refuse("logs in as a user that Leasehold cannot ask for");
            }
            Mirror target = source.get("getTargetDataSource");
            if (target == null) {
                throw source.refuse("has no target");
            }
            return url(target.object());
        }
        if (source.isA("org.springframework.jdbc.datasource.AbstractDriverBasedDataSource")) {
            Map<String, String> more = properties((Properties) source.value("getConnectionProperties"));
            inItsSchema(source, more);
            return checked(source, url(source, source.text("getUrl"), more, source.text("getUsername"), "getPassword"));
        }
        return url(source, new HashMap<>());
    }

    /** A driver of PostgreSQL looks there for tables, as if its URL said it; others have another use for it. */
    private static void inItsSchema(Mirror source, Map<String, String> more) {
        String schema = source.text("getSchema");
        if (!StoreUrl.isNone(schema)) {
            // It is one name. What stands in a URL is a list of names, and is read as one of SQL.
            boolean isPlain = schema.matches("[a-z_][a-z0-9_]*");
            put(source, more, "currentSchema", isPlain ? schema : '"' + schema.replace("\"", "\"\"") + '"');
        }
    }

    /** Drivers of MySQL change the database by these, after they have connected; others ignore the catalog. */
    private static StoreUrl checked(Mirror source, StoreUrl url) {
        if (url.isOf("mysql") && !StoreUrl.isNone(source.text("getCatalog"))) {
            throw source.refuse("has a catalog, by which it changes the database of its URL");
        }
        if (url.isOf("mysql") && !StoreUrl.isNone(source.text("getSchema"))) {
            throw source.refuse("has a schema, by which its driver may change the database of its URL");
        }
        return url;
    }

    private static StoreUrl ofHikari(Mirror pool) {
        if (pool.has("isClosed") && pool.flag("isClosed")) {
            throw pool.refuse("is closed");
        }
        if (pool.valueIfAny("getCredentialsProvider") != null) {
            throw pool.refuseProvider("a provider");
        }
        Map<String, String> more = properties((Properties) pool.value("getDataSourceProperties"));
        inItsSchema(pool, more);
        Mirror inner = pool.get("getDataSource");
        String className = pool.text("getDataSourceClassName");
        if (inner != null) {
            login(pool, more, pool.text("getUsername"), pool.text("getPassword"));
            return checked(pool, url(inner, more));
        }
        if (!StoreUrl.isNone(className)) {
            throw pool.refuse("has a dataSourceClassName in place of a jdbcUrl");
        }
        if (StoreUrl.isNone(pool.text("getJdbcUrl"))) {
            throw pool.refuse("has no jdbcUrl");
        }
        return checked(pool, url(pool, pool.text("getJdbcUrl"), more, pool.text("getUsername"), "getPassword"));
    }

    /** One that a driver or a pool brings; {@code more} is what surrounds it says. */
    private static StoreUrl url(Mirror source, Map<String, String> more) {
        if (source.isA("org.postgresql.ds.common.BaseDataSource")) {
            return url(source, source.text("getUrl"), more, source.text("getUser"), "getPassword");
        }
        if (source.isA("com.mysql.cj.jdbc.MysqlDataSource")) {
            // What was set beside the URL, such as sslMode.
            properties((Properties) source.value("exposeAsProperties"))
                    .forEach((key, value) -> put(source, more, key, value));
            return url(source, source.text("getUrl"), more, source.text("getUser"), "getPassword");
        }
        if (source.isA("org.mariadb.jdbc.MariaDbDataSource") || source.isA("org.mariadb.jdbc.MariaDbPoolDataSource")) {
            String url = url(source);
            // No public method returns the password. Once the source is in use, or its URL was set, that
            // of its URL is "***".
            if (source.has("conf")) {
                Mirror all = source.get("conf");
                login(source, more, all.text("user"), all.text("password"));
                url = url.replaceFirst("(?<=[?&])password=[^&]*&?", "");
            } else {
                url = (String) source.fieldValue("url");
                login(source, more, (String) source.fieldValue("user"), (String) source.fieldValue("password"));
            }
            return JdbcUrl.read(url, more);
        }
        if (source.isA("org.sqlite.SQLiteDataSource")) {
            return JdbcUrl.read(url(source), more);
        }
        if (more.isEmpty() && source.isA("com.zaxxer.hikari.HikariConfig")) {
            return ofHikari(source);
        }
        throw new Refusal("a DataSource of class " + source.object().getClass().getName()
                + " does not tell Leasehold what it connects to: " + INSTEAD);
    }

    private static String url(Mirror source) {
        String url = source.text("getUrl");
        if (StoreUrl.isNone(url)) {
            throw source.refuse("has no URL");
        }
        return url;
    }

    private static StoreUrl url(Mirror source, String url, Map<String, String> more, String user, String password) {
        login(source, more, user, source.text(password));
        if (StoreUrl.isNone(url)) {
            throw source.refuse("has no URL");
        }
        return JdbcUrl.read(url, more);
    }

    private static void login(Mirror source, Map<String, String> more, String user, String password) {
        for (var part : List.of(new String[] {"user", user}, new String[] {"password", password})) {
            if (!StoreUrl.isNone(part[1])) {
                put(source, more, part[0], part[1]);
            }
        }
    }

    private static void put(Mirror source, Map<String, String> more, String key, String value) {
        String other = more.put(key, value);
        if (other != null && !other.equals(value)) {
            throw source.refuse("has two answers to what its " + key + " is");
        }
    }

    private static Map<String, String> properties(Properties given) {
        var found = new HashMap<String, String>();
        if (given != null) {
            given.forEach((key, value) -> found.put(key.toString(), String.valueOf(value)));
        }
        return found;
    }
}
