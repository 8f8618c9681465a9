package dev.leasehold.settings;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** What Lettuce is configured with: its URIs, and clients that were made from them. */
final class LettuceSettings {
    private static final String PACKAGE = "io.lettuce.core.";
    private static final String INSTEAD = "give a URL, such as redis://user:password@host:6379/0,"
            + " or rediss://host?ca=/path/to/ca.pem for TLS";

    private LettuceSettings() {}

    static boolean isOne(Object object) {
        return Mirror.isA(object, PACKAGE + "RedisURI") || Mirror.isA(object, PACKAGE + "AbstractRedisClient");
    }

    static StoreUrl url(Object settings) {
        var lettuce = new Mirror(settings, "Lettuce", INSTEAD);
        if (lettuce.isA(PACKAGE + "RedisURI")) {
            return ofUri(lettuce);
        }
        if (((java.util.concurrent.atomic.AtomicBoolean) lettuce.fieldValue("shutdown")).get()) {
            throw lettuce.refuse("is shut down");
        }
        if (!lettuce.get("getResources").get("socketAddressResolver").kind().equals("SocketAddressResolver")) {
            throw lettuce.refuse("maps addresses by a SocketAddressResolver of its own, which Leasehold cannot do");
        }
        boolean isCluster = lettuce.isA(PACKAGE + "cluster.RedisClusterClient");
        List<Mirror> uris = isCluster ? lettuce.fieldList("initialUris") : List.of(lettuce.field("redisURI"));
        if (uris.stream().anyMatch(LettuceSettings::isTls)) {
            checkTls(lettuce);
        }
        return isCluster ? cluster(uris) : ofUri(uris.get(0));
    }

    private static StoreUrl ofUri(Mirror uri) {
        check(uri);
        String[] login = login(uri);
        String database = Integer.toString(uri.number("getDatabase"));
        if (!uri.list("getSentinels").isEmpty()) {
            return sentinel(uri, login, database);
        }
        if (!StoreUrl.isNone(uri.text("getSocket"))) {
            return new StoreUrl("unix")
                    .file("//" + uri.text("getSocket"))
                    .parameter("user", login[0])
                    .parameter("password", login[1])
                    .parameter("db", database);
        }
        return place(new StoreUrl(isTls(uri) ? "rediss" : "redis").credentials(login[0], login[1]), uri).path(database);
    }

    private static StoreUrl sentinel(Mirror uri, String[] login, String database) {
        List<Mirror> sentinels = uri.list("getSentinels");
        Mirror first = sentinels.get(0);
        String[] theirs = login(first);
        var url = new StoreUrl(isTls(uri) ? "rediss+sentinel" : "redis+sentinel").credentials(login[0], login[1]);
        for (Mirror sentinel : sentinels) {
            check(sentinel);
            if (!List.of(own(theirs), isTls(first)).equals(List.of(own(login(sentinel)), isTls(sentinel)))) {
                throw uri.refuse("has Sentinels that differ in their credentials or in TLS, which a URL cannot say");
            }
            place(url, sentinel);
        }
        return url.path(uri.text("getSentinelMasterId"))
                .path(database)
                .parameter("sentinel_user", theirs[0])
                .parameter("sentinel_password", theirs[1])
                .parameter("sentinel_tls", isTls(first) ? "yes" : "no");
    }

    private static StoreUrl cluster(List<Mirror> uris) {
        Mirror first = uris.get(0);
        String[] login = login(first);
        var url = new StoreUrl(isTls(first) ? "rediss+cluster" : "redis+cluster").credentials(login[0], login[1]);
        for (Mirror uri : uris) {
            check(uri);
            if (!List.of(own(login), isTls(first)).equals(List.of(own(login(uri)), isTls(uri)))) {
                throw uri.refuse("differs from another one of its client in credentials or TLS,"
                        + " which a URL cannot say");
            }
            place(url, uri);
        }
        return url;
    }

    private static List<String> own(String[] login) {
        return List.of(Objects.toString(login[0], ""), Objects.toString(login[1], ""));
    }

    private static StoreUrl place(StoreUrl url, Mirror uri) {
        if (StoreUrl.isNone(uri.text("getHost"))) {
            throw uri.refuse("has no host (a RedisClient that was made without one knows it per connection)");
        }
        return url.host(uri.text("getHost"), uri.number("getPort"));
    }

    /** User and password, null where there is none. */
    private static String[] login(Mirror uri) {
        Mirror provider = uri.get("getCredentialsProvider");
        if (provider == null) {
            return new String[2];
        }
        // The builder of later versions has functions for the credentials that it was given.
        boolean isBuilt = provider.object().getClass().getName().startsWith(PACKAGE + "RedisURI$Builder$$Lambda");
        if (!isBuilt && !provider.isA(PACKAGE + "StaticCredentialsProvider")) {
            throw uri.refuseProvider("a " + provider.kind());
        }
        Mirror credentials = provider.get("resolveCredentials").get("block");
        var login = new ArrayList<String>();
        for (String part : List.of("Username", "Password")) {
            login.add(credentials.flag("has" + part) ? credentials.text("get" + part) : null);
        }
        return login.toArray(new String[0]);
    }

    private static boolean isTls(Mirror uri) {
        return uri.flag("isSsl");
    }

    private static void check(Mirror uri) {
        if (!isTls(uri)) {
            return;
        }
        if (uri.flag("isStartTls")) {
            throw uri.refuse("begins TLS by STARTTLS, which Leasehold does not speak");
        }
        Tls.checkMode(uri, uri.value("getVerifyMode"));
    }

    /** What a client has of TLS beside its URIs: keystores and functions. */
    private static void checkTls(Mirror client) {
        Mirror options = client.get("getOptions").get("getSslOptions");
        try {
            Object fresh = options.object().getClass().getMethod("create").invoke(null);
            if (options.isLike(fresh, "handshakeTimeout", "sslProvider")) {
                return;
            }
        } catch (ReflectiveOperationException e) {
            throw client.refuse("has SslOptions that Leasehold cannot read");
        }
        throw client.refuse("has SslOptions of its own, which Leasehold cannot read");
    }
}
