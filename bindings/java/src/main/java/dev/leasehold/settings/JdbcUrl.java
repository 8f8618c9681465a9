package dev.leasehold.settings;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;

/** A URL of JDBC, as its driver reads it: where to connect, as whom, and how by TLS. */
final class JdbcUrl {
    static final Map<String, String> NOTHING = Map.of();

    private final String driver;
    /** Between the driver and the question mark. */
    private final String body;
    /** Lower-case keys. */
    private final Map<String, String> properties = new HashMap<>();

    private JdbcUrl(String driver, String body) {
        this.driver = driver;
        this.body = body;
    }

    /**
     * The URL of a store.
     *
     * @param url begins with {@code jdbc:}
     * @param more what the driver is told beside its URL
     */
    static StoreUrl read(String url, Map<String, String> more) {
        if (url.contains(",jdbc:")) {
            throw new Refusal("a quorum has no databases: give one URL of JDBC, or several Redis servers,"
                    + " as in redis://a,redis://b,redis://c");
        }
        String[] parts = url.split(":", 3);
        String driver = parts.length < 3 ? "" : parts[1].toLowerCase(Locale.ROOT);
        Function<JdbcUrl, StoreUrl> reader = switch (driver) {
            case "postgresql" -> JdbcUrl::postgres;
            case "mysql" -> JdbcUrl::mysql;
            case "mariadb" -> JdbcUrl::mariadb;
            case "sqlite" -> JdbcUrl::sqlite;
            default -> throw new Refusal("Leasehold keeps no locks in " + describe(driver)
                    + ": give a URL with jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb: or jdbc:sqlite:,"
                    + " or one of another store, such as redis://127.0.0.1");
        };
        String[] rest = parts[2].split("\\?", 2);
        var read = new JdbcUrl(driver, rest[0]);
        if (rest.length > 1) {
            read.addQuery(rest[1]);
        }
        read.add(more);
        return reader.apply(read);
    }

    private static String describe(String driver) {
        return driver.matches("[a-z0-9+-]+") ? "the database of jdbc:" + driver : "what this URL of JDBC names";
    }

    private void addQuery(String query) {
        for (String pair : query.split("&")) {
            String[] halves = pair.split("=", 2);
            if (!halves[0].isEmpty()) {
                properties.put(decode(halves[0]).toLowerCase(Locale.ROOT), halves.length < 2 ? "" : decode(halves[1]));
            }
        }
    }

    private void add(Map<String, String> more) {
        more.forEach((given, value) -> {
            String key = given.toLowerCase(Locale.ROOT);
            String other = properties.put(key, value);
            if (other != null && !other.equals(value)) {
                throw refuse("has " + key + " in its URL, and another one beside it");
            }
        });
    }

    /** That of MariaDB takes what stands there as it is. */
    private String decode(String text) {
        if (driver.equals("mariadb")) {
            return text;
        }
        try {
            return URLDecoder.decode(text, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            throw refuse("has a '%' without two hex digits behind it");
        }
    }

    private Refusal refuse(String why) {
        return new Refusal("this jdbc:" + driver + ": URL " + why);
    }

    private Refusal refuseProperty(String key) {
        return refuse("has " + key + ", which Leasehold cannot follow: give a URL of Leasehold's own, such as "
                + (driver.equals("postgresql") ? "postgres" : "mysql") + "://user:password@host/database");
    }

    private String property(String key) {
        String value = properties.get(key);
        return StoreUrl.isNone(value) ? null : value;
    }

    /** What decides where the connection goes, or as whom, in a way that only the driver can go. */
    private void reject(String... keys) {
        for (String key : keys) {
            if (property(key) != null) {
                throw refuseProperty(key);
            }
        }
    }

    /** Who gives these wants TLS, and would have plain text without a mode. */
    private void needMode(String mode, String example, String... keys) {
        for (String key : keys) {
            if (mode == null && property(key) != null) {
                throw refuse("has " + key + " and does not say whether to use TLS: say " + example);
            }
        }
    }

    // ---- PostgreSQL --------------------------------------------------------------------------------

    private StoreUrl postgres() {
        reject("socketfactory", "authenticationpluginclassname", "service", "pghost", "pgport", "pgdbname",
                "kerberosservername", "requireauth");
        if ("require".equalsIgnoreCase(property("gssencmode"))) {
            throw refuseProperty("gssencmode=require");
        }
        String target = property("targetservertype");
        if (target != null && !List.of("any", "primary", "master").contains(target.toLowerCase(Locale.ROOT))) {
            throw refuse("has targetServerType=" + target + ", and locks are written: leave it out, or say primary");
        }
        // jdbc:postgresql:database, jdbc:postgresql://hosts/database
        boolean hasHosts = body.startsWith("//");
        String[] parts = (hasHosts ? body.substring(2) : "/" + stripSlash(body)).split("/", 2);
        String database = parts.length < 2 ? "" : decode(parts[1]);
        var url = new StoreUrl("postgres").credentials(user(), property("password"));
        places(url, parts[0], 5432);
        url.path(database.isEmpty() ? user() : database);
        postgresTls(url);
        String schema = property("currentschema");
        String options = property("options");
        if (schema != null) {
            String path = "-csearch_path=" + schema.replaceAll("([\\\\ ])", "\\\\$1");
            options = options == null ? path : options + " " + path;
        }
        return url.parameter("options", options).parameter("channel_binding", property("channelbinding"));
    }

    private static String stripSlash(String path) {
        return path.startsWith("/") ? path.substring(1) : path;
    }

    private void postgresTls(StoreUrl url) {
        // Its own, which the driver writes into the URL of a DataSource.
        properties.remove("sslfactory", "org.postgresql.ssl.LibPQFactory");
        String mode = property("sslmode");
        if (mode == null && properties.containsKey("ssl") && !"false".equalsIgnoreCase(properties.get("ssl"))) {
            mode = "verify-full";
        }
        if (!properties.containsKey("ssl")) {
            needMode(mode, "sslmode=verify-full", "sslrootcert", "sslcert", "sslkey", "sslfactory",
                    "sslhostnameverifier", "sslpassword", "sslpasswordcallback");
        }
        if (mode == null || mode.equalsIgnoreCase("disable")) {
            return;
        }
        mode = mode.toLowerCase(Locale.ROOT);
        reject("sslfactory", "sslhostnameverifier", "sslpasswordcallback", "sslpassword");
        String key = property("sslkey");
        if (key != null && key.toLowerCase(Locale.ROOT).matches(".*\\.(pk8|p12|pfx|der)")) {
            throw refuse("has sslkey=" + key + ", and Leasehold reads PEM files: give a URL such as"
                    + " postgres://user@host/database?sslmode=verify-full&sslcert=cert.pem&sslkey=key.pem");
        }
        String root = property("sslrootcert");
        Path usual = Path.of(System.getProperty("user.home"), ".postgresql", "root.crt");
        if (root == null && mode.startsWith("verify-") && Files.exists(usual)) {
            root = usual.toString();
        }
        url.parameter("sslmode", mode)
                .parameter("sslrootcert", root)
                .parameter("sslcert", property("sslcert"))
                .parameter("sslkey", key);
    }

    // ---- MySQL and MariaDB -------------------------------------------------------------------------

    private StoreUrl mysql() {
        reject("socketfactory", "authenticationplugins", "defaultauthenticationplugin", "propertiestransform",
                "dnssrv", "password1", "password2", "password3");
        StoreUrl url = databases();
        String mode = property("sslmode");
        if (mode == null && property("usessl") != null) {
            mode = !isOn("usessl") ? "disabled"
                    : isOn("verifyservercertificate") ? "verify_ca"
                    : isOn("requiressl") ? "required" : "preferred";
        }
        // Without a mode, this driver uses TLS as well.
        if (!"disabled".equalsIgnoreCase(mode)) {
            reject("trustcertificatekeystoreurl", "clientcertificatekeystoreurl");
        }
        if (mode != null && !mode.equalsIgnoreCase("disabled")) {
            url.parameter("ssl-mode", mode.toLowerCase(Locale.ROOT));
        }
        return url;
    }

    private StoreUrl mariadb() {
        reject("socketfactory", "credentialtype", "pipe");
        if (property("localsocket") != null) {
            return new StoreUrl("mysql").credentials(user(), property("password")).path(database())
                    .parameter("socket", property("localsocket"));
        }
        StoreUrl url = databases();
        String mode = property("sslmode");
        if (mode == null && isOn("usessl")) {
            mode = isOn("trustservercertificate") ? "trust"
                    : isOn("disablesslhostnameverification") ? "verify-ca" : "verify-full";
        }
        if (property("usessl") == null) {
            needMode(mode, "sslMode=verify-full", "serversslcert", "truststore", "keystore", "clientsslcert");
        }
        if (mode == null || List.of("disable", "disabled", "false", "0").contains(mode.toLowerCase(Locale.ROOT))) {
            return url;
        }
        reject("truststore", "keystore", "clientsslcert");
        String ours = switch (mode.toLowerCase(Locale.ROOT).replace('_', '-')) {
            case "trust", "required" -> "required";
            case "verify-ca" -> "verify_ca";
            case "verify-full", "verify-identity", "true", "1" -> "verify_identity";
            default -> mode;
        };
        String authority = property("serversslcert");
        if (authority != null && (authority.startsWith("classpath:") || authority.startsWith("-----BEGIN"))) {
            throw refuse("has no file in serverSslCert: give the path of a PEM file");
        }
        return url.parameter("ssl-mode", ours)
                .parameter("ssl-ca", authority == null ? null : authority.replaceFirst("^file:(//)?", ""));
    }

    private boolean isOn(String key) {
        String value = properties.getOrDefault(key, "false").toLowerCase(Locale.ROOT);
        return !List.of("false", "0").contains(value);
    }

    /** {@code //hosts/database}: with a way to choose among the hosts, only the usual one. */
    private StoreUrl databases() {
        String plain = body.replaceFirst("^sequential:", "");
        if (!plain.startsWith("//")) {
            throw refuse("chooses among its hosts, or finds them, in a way of the driver's: give the hosts in one URL,"
                    + " as in mysql://user:password@host1,host2/database");
        }
        String hosts = plain.substring(2).split("/", 2)[0];
        if (hosts.contains("(") || hosts.contains("=")) {
            throw refuse("has hosts in brackets: write them as host:3306,host2:3306");
        }
        int at = hosts.lastIndexOf('@');
        if (at >= 0) {
            String before = hosts.substring(0, at);
            String[] login = before.split(":", 2);
            if (before.contains("@") || before.contains(",")) {
                throw refuse("has a user for each host: put one into ?user= and ?password=");
            }
            add(Map.of("user", decode(login[0])));
            if (login.length > 1) {
                add(Map.of("password", decode(login[1])));
            }
            hosts = hosts.substring(at + 1);
        }
        var url = new StoreUrl("mysql").credentials(user(), property("password"));
        places(url, hosts, 3306);
        return url.path(database());
    }

    private String database() {
        String[] parts = body.substring(body.indexOf("//") + 2).split("/", 2);
        if (parts.length < 2 || parts[1].isEmpty()) {
            throw refuse("names no database: write one behind the host, as in jdbc:" + driver + "://host/database");
        }
        return decode(parts[1]);
    }

    // ---- SQLite ------------------------------------------------------------------------------------

    private StoreUrl sqlite() {
        if (body.isEmpty() || body.startsWith(":") || body.startsWith("file:") || "memory".equals(property("mode"))) {
            throw refuse("names no file: write jdbc:sqlite:/path/to/file, or memory: for a store in memory");
        }
        return new StoreUrl("sqlite").file(body);
    }

    // ------------------------------------------------------------------------------------------------

    private String user() {
        String user = property("user");
        if (user == null) {
            throw refuse("names no user: add ?user=, or set the user beside it");
        }
        return user;
    }

    /** {@code host[:port][,host...]}; a host that is left out is this machine. */
    private void places(StoreUrl url, String hosts, int port) {
        for (String place : hosts.split(",", -1)) {
            int colon = place.lastIndexOf(':');
            // That of an IPv6 address is not one before a port.
            boolean hasPort = colon >= 0 && colon > place.lastIndexOf(']');
            String host = hasPort ? place.substring(0, colon) : place;
            String number = hasPort ? place.substring(colon + 1) : "";
            if (!number.matches("\\d{0,5}")) {
                throw refuse("has a port that is not a number");
            }
            url.host(host.isEmpty() ? "localhost" : host, number.isEmpty() ? port : Integer.parseInt(number));
        }
    }
}
