package dev.leasehold.settings;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.List;
import java.util.Objects;

/** What Redisson is configured with: one server, Sentinels or a Cluster. */
final class RedissonSettings {
    private static final String PACKAGE = "org.redisson.";
    private static final String INSTEAD = "give a URL, such as redis://user:password@host:6379/0,"
            + " or rediss://host?ca=/path/to/ca.pem for TLS";

    private RedissonSettings() {}

    static boolean isOne(Object object) {
        return Mirror.isA(object, PACKAGE + "config.Config") || Mirror.isA(object, PACKAGE + "api.RedissonClient");
    }

    static StoreUrl url(Object settings) {
        var redisson = new Mirror(settings, "Redisson", INSTEAD);
        if (redisson.isA(PACKAGE + "config.Config")) {
            return ofConfig(redisson);
        }
        if (redisson.flag("isShutdown")) {
            throw redisson.refuse("is shut down");
        }
        return ofConfig(redisson.get("getConfig"));
    }

    private static StoreUrl ofConfig(Mirror config) {
        Mirror single = config.get("getSingleServerConfig");
        Mirror sentinels = config.get("getSentinelServersConfig");
        Mirror cluster = config.get("getClusterServersConfig");
        if (single != null) {
            return single(config, single);
        }
        if (sentinels != null) {
            return sentinels(config, sentinels);
        }
        if (cluster != null) {
            List<URI> nodes = addresses(cluster, cluster.value("getNodeAddresses"));
            return places(login(config, cluster, scheme("+cluster", nodes, cluster)), nodes);
        }
        throw config.refuse("names neither one server nor Sentinels nor a Cluster");
    }

    private static StoreUrl single(Mirror config, Mirror single) {
        if (StoreUrl.isNone(single.text("getAddress"))) {
            throw single.refuse("has no address");
        }
        List<URI> server = addresses(single, List.of(single.text("getAddress")));
        String database = Integer.toString(single.number("getDatabase"));
        return places(login(config, single, scheme("", server, single)), server).path(database);
    }

    private static StoreUrl sentinels(Mirror config, Mirror group) {
        List<URI> sentinels = addresses(group, group.value("getSentinelAddresses"));
        if (StoreUrl.isNone(group.text("getMasterName"))) {
            throw group.refuse("has no master name");
        }
        return places(login(config, group, scheme("+sentinel", sentinels, group)), sentinels)
                .path(group.text("getMasterName"))
                .path(Integer.toString(group.number("getDatabase")))
                .parameter("sentinel_user", group.text("getSentinelUsername"))
                .parameter("sentinel_password", group.text("getSentinelPassword"));
    }

    private static StoreUrl login(Mirror config, Mirror servers, String scheme) {
        for (Mirror owner : List.of(config, servers)) {
            Object resolver = owner.valueIfAny("getCredentialsResolver");
            if (resolver != null && !Mirror.isA(resolver, PACKAGE + "client.DefaultCredentialsResolver")) {
                throw owner.refuseProvider("a CredentialsResolver");
            }
            if (scheme.startsWith("rediss")) {
                checkTls(owner);
            }
        }
        Object mapper = servers.valueIfAny("getNatMapper");
        if (mapper != null && !Mirror.isA(mapper, PACKAGE + "config.DefaultNatMapper")
                && !Mirror.isA(mapper, PACKAGE + "api.DefaultNatMapper")) {
            throw servers.refuse("maps addresses by a NatMapper, which Leasehold cannot do");
        }
        return new StoreUrl(scheme)
                .credentials(own(config, servers, "getUsername"), own(config, servers, "getPassword"));
    }

    /** Later versions have it for all kinds of servers, earlier ones for each. */
    private static String own(Mirror config, Mirror servers, String what) {
        String one = servers.text(what);
        String all = (String) config.valueIfAny(what);
        if (one != null && all != null && !one.equals(all)) {
            throw config.refuse("has two answers to " + what + "(), its own and that of its servers");
        }
        return Objects.requireNonNullElse(one, Objects.toString(all, ""));
    }

    private static void checkTls(Mirror owner) {
        for (String own : List.of("Keystore", "Truststore", "KeyManagerFactory", "TrustManagerFactory")) {
            if (owner.valueIfAny("getSsl" + own) != null) {
                throw owner.refuse("has a " + own + " of Java, and Leasehold reads PEM files");
            }
        }
        Tls.checkMode(owner, owner.valueIfAny("getSslVerificationMode"));
    }

    private static String scheme(String kind, List<URI> servers, Mirror owner) {
        var withTls = List.of("rediss", "valkeys");
        long encrypted = servers.stream().filter(server -> withTls.contains(server.getScheme())).count();
        if (encrypted != 0 && encrypted != servers.size()) {
            throw owner.refuse("has some addresses with TLS and some without, which a URL cannot say");
        }
        return (encrypted == 0 ? "redis" : "rediss") + kind;
    }

    private static StoreUrl places(StoreUrl url, List<URI> servers) {
        servers.forEach(server -> url.host(server.getHost(), server.getPort()));
        return url;
    }

    private static List<URI> addresses(Mirror owner, Object texts) {
        List<URI> found = ((List<?>) texts).stream().map(text -> address(owner, text.toString())).toList();
        if (found.isEmpty()) {
            throw owner.refuse("has no address");
        }
        return found;
    }

    private static URI address(Mirror owner, String text) {
        try {
            URI address = new URI(text);
            boolean isKnown = List.of("redis", "rediss", "valkey", "valkeys").contains(address.getScheme());
            if (isKnown && address.getHost() != null && address.getPort() > 0 && address.getUserInfo() == null) {
                return address;
            }
        } catch (URISyntaxException e) {
            // It may hold a password, so it is not shown.
        }
        throw owner.refuse("has an address that is not written as redis://host:6379");
    }
}
