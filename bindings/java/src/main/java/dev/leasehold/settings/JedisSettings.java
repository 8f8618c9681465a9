package dev.leasehold.settings;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/** What Jedis is configured with: its pools, its clients, and an address with a client's configuration. */
final class JedisSettings {
    private static final String PACKAGE = "redis.clients.jedis.";
    private static final String INSTEAD = "give a URL, such as redis://user:password@host:6379/0,"
            + " or rediss://host?ca=/path/to/ca.pem for TLS";

    private JedisSettings() {}

    static boolean isOne(Object object) {
        for (String known : List.of("UnifiedJedis", "util.Pool", "HostAndPort", "JedisClientConfig", "Jedis")) {
            if (Mirror.isA(object, PACKAGE + known)) {
                return true;
            }
        }
        return false;
    }

    private static Mirror mirror(Object object) {
        return new Mirror(object, "Jedis", INSTEAD);
    }

    static StoreUrl url(Object settings) {
        Mirror jedis = mirror(settings);
        if (jedis.isA(PACKAGE + "UnifiedJedis")) {
            return ofClient(jedis);
        }
        if (jedis.isA(PACKAGE + "JedisSentinelPool")) {
            return ofSentinelPool(jedis);
        }
        if (jedis.isA(PACKAGE + "util.Pool")) {
            return ofPool(jedis, jedis);
        }
        if (jedis.isA(PACKAGE + "HostAndPort")) {
            return new StoreUrl("redis").host(jedis.text("getHost"), jedis.number("getPort"));
        }
        throw jedis.refuse(jedis.isA(PACKAGE + "Jedis")
                ? "is one connection, which does not keep what it was made with"
                : "has no address; call from(hostAndPort, config), or");
    }

    static StoreUrl url(Object address, Object config) {
        Mirror client = mirror(config);
        if (!client.isA(PACKAGE + "JedisClientConfig")) {
            throw client.refuse("is no JedisClientConfig, which comes behind an address");
        }
        if (Mirror.isA(address, PACKAGE + "HostAndPort")) {
            return one(mirror(address), client);
        }
        var nodes = new ArrayList<Mirror>();
        if (address instanceof Collection<?> several) {
            several.forEach(node -> nodes.add(mirror(node)));
        }
        if (nodes.isEmpty() || !nodes.stream().allMatch(node -> node.isA(PACKAGE + "HostAndPort"))) {
            throw mirror(address).refuse("is neither a HostAndPort nor several of them");
        }
        return cluster(nodes, client);
    }

    // ---- pools and clients -------------------------------------------------------------------------

    private static StoreUrl ofClient(Mirror jedis) {
        Mirror provider = jedis.field("provider");
        if (provider == null) {
            throw jedis.refuse("was made from a connection, and does not keep what that was made with");
        }
        if (provider.isA(PACKAGE + "providers.PooledConnectionProvider")) {
            return ofPool(jedis, provider.get("getPool"));
        }
        if (provider.isA(PACKAGE + "providers.SentineledConnectionProvider")) {
            checkOpen(jedis, provider.field("pool"));
            StoreUrl url = sentinel(provider.field("masterClientConfig"), provider.field("sentinelClientConfig"));
            for (Mirror listener : provider.fieldList("sentinelListeners")) {
                Mirror node = listener.field("node");
                url.host(node.text("getHost"), node.number("getPort"));
            }
            return master(url, (String) provider.fieldValue("masterName"), provider.field("masterClientConfig"));
        }
        if (provider.isA(PACKAGE + "providers.ClusterConnectionProvider")) {
            Mirror cache = provider.field("cache");
            // An open one has found some nodes.
            if (((Collection<?>) cache.get("getNodes").value("values")).isEmpty()) {
                throw jedis.refuse("is closed");
            }
            return cluster(cache.fieldList("startNodes"), cache.field("clientConfig"));
        }
        throw jedis.refuse("chooses among servers by its " + provider.kind() + ", which Leasehold cannot do");
    }

    private static StoreUrl ofPool(Mirror owner, Mirror pool) {
        checkOpen(owner, pool);
        Mirror factory = pool.get("getFactory");
        if (!factory.isA(PACKAGE + "JedisFactory") && !factory.isA(PACKAGE + "ConnectionFactory")) {
            throw owner.refuse("makes connections by a " + factory.kind() + " of its own");
        }
        // Since Jedis 7, a builder has it.
        Mirror sockets = factory.hasField("connectionBuilder")
                ? factory.field("connectionBuilder").field("socketFactory")
                : factory.field("jedisSocketFactory");
        if (!sockets.object().getClass().getName().equals(PACKAGE + "DefaultJedisSocketFactory")) {
            throw owner.refuse("makes sockets by a " + sockets.kind() + " of its own");
        }
        Mirror config = factory.field("clientConfig");
        if ((boolean) sockets.fieldValue("ssl") != config.flag("isSsl")) {
            throw owner.refuse("has a socket factory and a client configuration that differ in TLS");
        }
        return one(sockets.get("getHostAndPort"), config);
    }

    private static StoreUrl ofSentinelPool(Mirror pool) {
        checkOpen(pool, pool);
        Mirror config = pool.field("factory").field("clientConfig");
        StoreUrl url = sentinel(config, pool.field("sentinelClientConfig"));
        String master = null;
        for (Mirror listener : pool.fieldList("masterListeners")) {
            master = (String) listener.fieldValue("masterName");
            url.host((String) listener.fieldValue("host"), (int) listener.fieldValue("port"));
        }
        return master(url, master, config);
    }

    private static void checkOpen(Mirror owner, Mirror pool) {
        if (pool.flag("isClosed")) {
            throw owner.refuse("is closed");
        }
    }

    // ---- servers -----------------------------------------------------------------------------------

    private static StoreUrl one(Mirror node, Mirror config) {
        check(config);
        return new StoreUrl(isTls(config) ? "rediss" : "redis")
                .credentials(config.text("getUser"), config.text("getPassword"))
                .host(node.text("getHost"), node.number("getPort"))
                .path(Integer.toString(config.number("getDatabase")));
    }

    private static StoreUrl cluster(List<Mirror> nodes, Mirror config) {
        check(config);
        var url = new StoreUrl(isTls(config) ? "rediss+cluster" : "redis+cluster")
                .credentials(config.text("getUser"), config.text("getPassword"));
        nodes.forEach(node -> url.host(node.text("getHost"), node.number("getPort")));
        return url;
    }

    private static StoreUrl sentinel(Mirror config, Mirror sentinels) {
        check(config);
        check(sentinels);
        return new StoreUrl(isTls(config) ? "rediss+sentinel" : "redis+sentinel")
                .credentials(config.text("getUser"), config.text("getPassword"))
                .parameter("sentinel_user", nullIfEmpty(sentinels.text("getUser")))
                .parameter("sentinel_password", nullIfEmpty(sentinels.text("getPassword")))
                .parameter("sentinel_tls", isTls(sentinels) ? "yes" : "no");
    }

    private static StoreUrl master(StoreUrl url, String name, Mirror config) {
        return url.path(name).path(Integer.toString(config.number("getDatabase")));
    }

    private static String nullIfEmpty(String text) {
        return StoreUrl.isNone(text) ? null : text;
    }

    private static boolean isTls(Mirror config) {
        return config.flag("isSsl") || config.valueIfAny("getSslOptions") != null;
    }

    private static void check(Mirror config) {
        if (config.valueIfAny("getAuthXManager") != null) {
            throw config.refuse("has an AuthXManager, whose tokens expire");
        }
        Mirror credentials = config.get("getCredentialsProvider");
        if (credentials != null && !credentials.isA(PACKAGE + "DefaultRedisCredentialsProvider")) {
            throw config.refuseProvider("a " + credentials.kind());
        }
        if (config.value("getHostAndPortMapper") != null) {
            throw config.refuse("maps addresses by a HostAndPortMapper, which Leasehold cannot do");
        }
        if (isTls(config)) {
            checkTls(config);
        }
    }

    private static void checkTls(Mirror config) {
        for (String own : List.of("SslSocketFactory", "HostnameVerifier")) {
            if (config.value("get" + own) != null) {
                throw config.refuse("has a " + own + " of its own, which Leasehold cannot use");
            }
        }
        Tls.check(config, config.value("getSslParameters"));
        if (config.valueIfAny("getSslOptions") == null) {
            return;
        }
        Mirror options = config.get("getSslOptions");
        if (options.fieldValue("keystoreResource") != null || options.fieldValue("truststoreResource") != null) {
            throw options.refuse("has a keystore of Java, and Leasehold reads PEM files");
        }
        Tls.checkMode(options, options.fieldValue("sslVerifyMode"));
        Tls.check(options, options.fieldValue("sslParameters"));
    }
}
