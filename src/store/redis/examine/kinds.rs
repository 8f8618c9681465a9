//! What can be found about Redis servers. `docs/operating.md` has the same table.

use crate::examination::kinds;

kinds! { KINDS:
    OLD Warning "redis-old" "the server is too old"
        "its scripts and queues need commands that came with 6.2"
        "update it to Redis 6.2 or later, or to Valkey";
    EVICTS Warning "redis-evicts" "the server may throw keys away"
        "a held lock that is thrown away is granted again, and two hold it"
        "CONFIG SET maxmemory-policy noeviction, and the same in its file";
    FULL Warning "redis-full" "its memory is nearly used up"
        "a server without memory grants no new locks"
        "CONFIG SET maxmemory to more, or find out what fills it: redis-cli --bigkeys";
    FORGETS Note "redis-forgets" "a restart or a failover may lose locks that are held"
        "others are granted them again while their holders go on; the fence orders both"
        "write guard_data_loss=yes into the URL of all programs, and leasehold init once";
    CANNOT_SAVE Warning "redis-cannot-save" "the server cannot write its file"
        "it refuses all writes then, and so all locks, or loses them when it restarts"
        "look into its log and at its disk";
    REPLICA Warning "redis-replica" "the URL names a replica"
        "a replica grants nothing, and what it shows of locks is late"
        "name the master in the URL, or the Sentinels: redis+sentinel://host,host2/mymaster";
    FEW_REPLICAS Warning "redis-few-replicas" "too few replicas are connected"
        "with replicas= in the URL each grant fails; without, nobody takes a dead master's place"
        "start another replica, or see in INFO replication why one is not online";
    LAGS Warning "redis-replica-lags" "a replica is behind"
        "what it has not heard of is lost if it becomes the master"
        "look at the network between them and at the replica's load: INFO replication";
    CLIENTS Warning "redis-clients" "nearly as many clients are connected as the server takes"
        "a program that is not let in can neither take nor renew a lock"
        "CONFIG SET maxclients to more, or see who they are: CLIENT LIST";
    IDLE Note "redis-idle" "the server closes connections that lie idle"
        "each lock after a pause costs a new connection first"
        "CONFIG SET timeout 0, and let tcp-keepalive find the dead";
    KEEPALIVE Note "redis-keepalive" "the server does not look whether clients are still there"
        "a waiter whose machine is gone is handed the lock in vain, and costs a claim window each time"
        "CONFIG SET tcp-keepalive 60";
    CUT Warning "redis-wakeups-cut" "the server cuts off subscribers that are a little behind"
        "waiters lose their wake-ups, and find a free lock a second later"
        "CONFIG SET client-output-buffer-limit \"pubsub 32mb 8mb 60\"";
    STALLS Warning "redis-stalls" "the server stood still for long"
        "one command at a time is carried out: renewals wait meanwhile, and those of short ttls are lost"
        "SLOWLOG GET says which commands; run them on another server";
    BUSY Warning "redis-busy" "the server uses nearly all of its one core"
        "each request of a lock waits behind the others"
        "give the locks a server of their own";
    MISSING Warning "redis-command-missing" "the server does not have a command that locks need"
        "without it no lock can be taken, renewed or given back"
        "take the rename-command lines for it out of the server's file";
    RIGHTS Warning "redis-rights" "the user may not do all that a lock needs"
        "a lock cannot be taken, renewed or given back; some of it shows only at the first renewal"
        "grant the user what docs/operating.md lists under Rights";
    LESSER_RIGHTS Note "redis-lesser-rights" "the user lacks rights that a lock can do without"
        "without those of the queue, its waiters ask again and again, in no order; without setrange and zpopmin, each give costs more; without zcard and ~leasehold:client:*, nobody sees who holds and waits; without info, the log does not say that a restart may lose locks"
        "grant the user what docs/operating.md lists under Rights";
    HIDDEN Note "redis-hidden" "the user may not look at everything"
        "what it may not see is not examined"
        "examine it as another user, or let this one look";
    OPEN Note "redis-open" "everybody who reaches the server may do everything"
        "any of them can end every lease"
        "ACL SETUSER default >PASSWORD, or bind it to 127.0.0.1";
    STUCK Warning "redis-stuck" "keys beside locks have no ttl"
        "they stay for ever; something else has written them, or taken their ttl away"
        "DEL them once nobody uses those locks";
    FOREIGN Warning "redis-foreign" "keys without a ttl have the names of locks"
        "such a name can never be locked: the error is WrongType"
        "use a prefix that the application does not: ?prefix=lock: in the URL";
    FOREIGN_HOLDER Note "redis-foreign-holder" "something else than this library has locks"
        "such a turn has no fence, its end wakes no waiter, and a key that is no string is an error"
        "see who has it: leasehold show NAME; or use a prefix that nothing else does: ?prefix=lock: in the URL";
    NEW Warning "redis-new" "the server does not know yet that it guards against lost data"
        "it grants nothing for max_ttl from when the first client comes"
        "leasehold init --store URL, if it has never granted a lock";
    QUARANTINE Warning "redis-quarantine" "the server may have lost data, and waits"
        "it grants nothing until every lease from before is over"
        "wait for max_ttl; where the wait has not begun, the first client that takes a lock begins it";
    UNGUARDED Warning "redis-unguarded" "other clients guard this server against lost data, and this URL does not"
        "a client that does not guard is refused"
        "write guard_data_loss=yes into the URL";
    MAX_TTL Warning "redis-max-ttl" "this URL allows longer ttls than the server was set up for"
        "such a client is granted nothing"
        "make max_ttl in the URL no larger, or leasehold init with the larger one";
    CLOCK Warning "redis-clock" "clocks of servers are apart"
        "fences of a master go by its clock; a quorum refuses a client whose clock is an hour ahead"
        "let chrony or ntpd set the clocks";
    TWO_MASTERS Warning "sentinel-two-masters" "a master that is cut off goes on granting"
        "while Sentinels elect another one, both grant the same locks"
        "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 3 on each of three servers";
    SENTINEL_DOWN Warning "sentinel-down" "a Sentinel does not answer"
        "with most of them gone, no failover happens, and nobody finds a new master"
        "start it, or take it out of the URL";
    SENTINELS_DIFFER Warning "sentinels-differ" "Sentinels do not agree"
        "programs that ask different ones may lock on different servers"
        "on the one that is wrong: SENTINEL REMOVE mymaster, then SENTINEL MONITOR mymaster HOST PORT 2";
    FEW_SENTINELS Warning "sentinel-few" "there are fewer than three Sentinels"
        "when one of them is gone, the rest is no majority and elects nobody"
        "start three, on three machines";
    SENTINEL_QUORUM Warning "sentinel-quorum" "the Sentinels' quorum does not suit their number"
        "with 1, one that is cut off alone begins a failover; with more than there are, none begins"
        "SENTINEL SET mymaster quorum 2, of three";
    SLOW_FAILOVER Warning "redis-slow-failover" "a failover takes longer than leases last"
        "renewals find no master for so long, and every lease is lost"
        "shorten down-after-milliseconds or cluster-node-timeout (5000, say), or make the ttl longer";
    CLUSTER_DOWN Warning "cluster-down" "the Cluster does not serve all slots"
        "names in the other slots, or all names, cannot be locked"
        "redis-cli --cluster check HOST:PORT";
    NODE_DOWN Warning "cluster-node-down" "a node of the Cluster fails"
        "its locks are gone, or the next failure takes them"
        "start it, or take it out: redis-cli --cluster del-node";
    NO_REPLICA Note "cluster-no-replica" "masters have no replica"
        "when one of them dies, its locks cannot be taken; with cluster-require-full-coverage, no lock can"
        "redis-cli --cluster add-node NEW OLD --cluster-slave";
    CLUSTER_OLD Note "cluster-old" "the Cluster is older than 7.0"
        "each wake-up goes to all of its servers, and costs all of them"
        "update it to 7.0 or later, where channels have slots";
}
