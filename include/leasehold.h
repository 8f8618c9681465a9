/*
 * Leasehold: one lock for programs on many machines, or for the processes of one.
 *
 * Acquire it, know how long you may rely on it, prove to the resource that you are the latest
 * holder (by the fencing token, "fence" for short), and release it. Locks are kept on Redis or
 * Valkey (one server, a Sentinel group, a Cluster, or a quorum of several), on PostgreSQL, on MySQL
 * or MariaDB, on ZooKeeper, on etcd, or in an SQLite file.
 *
 * Ten calls are what most programs need:
 *
 *     leasehold_client_open     the store that a URL names; ..._open_env: that of LEASEHOLD_URL
 *     leasehold_client_lock     a lock on a name; its options are leasehold_lock_set_ttl_ms() etc.
 *     leasehold_lock_try_acquire   LEASEHOLD_OK and a lease, or at once LEASEHOLD_BUSY
 *     leasehold_lock_acquire    waits for it in a fair queue, 60 s by default
 *     leasehold_lease_fence     the number by which the resource rejects a late writer
 *     leasehold_lease_is_valid  whether you may rely on the lease now; sends no request
 *     leasehold_lease_release   releases the lock: LEASEHOLD_OK, or LEASEHOLD_LOST
 *     leasehold_lease_free      and leasehold_lock_free, leasehold_client_free: every handle has one
 *     leasehold_error_message   what went wrong and what to do about it, in one sentence
 *     leasehold_error_free      does nothing with NULL
 *
 *     leasehold_client *client; leasehold_lock *lock; leasehold_lease *lease;
 *     leasehold_error *error = NULL;
 *
 *     if (leasehold_client_open("redis://127.0.0.1", LEASEHOLD_NUL, &client, &error) < 0 ||
 *         leasehold_client_lock(client, "stock:sku-17", LEASEHOLD_NUL, &lock, &error) < 0) {
 *         fprintf(stderr, "%s\n", leasehold_error_message(error));
 *         exit(1);
 *     }
 *     switch (leasehold_lock_try_acquire(lock, &lease, &error)) {
 *     case LEASEHOLD_OK:                               // mine: renewed until it is released
 *         charge(order, leasehold_lease_fence(lease)); // the database rejects a smaller fence
 *         if (leasehold_lease_release(lease, &error) != LEASEHOLD_OK) warn(error); // it was lost
 *         leasehold_lease_free(lease);                 // frees it, and releases it if still held
 *         break;
 *     case LEASEHOLD_BUSY: reject(order); break;       // another holder has it
 *     default: warn(error);
 *     }
 *     leasehold_error_free(error);
 *     leasehold_lock_free(lock);
 *     leasehold_client_free(client);                   // closes it
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs leasehold)`. The library is for Linux on
 * machines of 64 bits.
 *
 * Status and error. A function that can fail returns a leasehold_status: 0, an outcome above 0, or
 * an error below 0. Its last argument, which may be NULL, gets the details: an error that the
 * caller frees, or NULL where the status says everything (LEASEHOLD_OK, LEASEHOLD_BUSY,
 * LEASEHOLD_TIMEOUT, LEASEHOLD_INTERRUPTED). What was in it before is overwritten and never read,
 * so free an error before its variable is used again; leasehold_error_free(NULL) does nothing.
 *
 * Handles. Types are incomplete, but for leasehold_turn: what a program holds are handles, which
 * look like pointers and are never followed. The program frees each of them with the function that
 * its type names, also when what it stands for is over or closed, in any order; freeing NULL does
 * nothing. A handle that is NULL, was freed, is of another type or was made up is
 * LEASEHOLD_ERR_HANDLE, or 0, false or an empty string where a function returns no status, and no
 * more than that happens. (Handles are not memory: a tool that looks for leaks does not see them,
 * but leasehold_handle_count() counts them.)
 *
 * Outputs come before the error. They are written on success only, and must not be NULL.
 *
 * Bytes go in as a pointer and a length; the length LEASEHOLD_NUL says that they end with a zero
 * byte. They are copied. Names may hold any byte. Text is UTF-8.
 *
 * Strings come out borrowed: the caller never frees one. They are static, or they belong to the
 * handle that they came from and are valid until it is freed. They are never NULL, and end with a
 * zero byte.
 *
 * Times are milliseconds in an int64_t. A negative one is refused.
 *
 * Threads. Any thread may use any handle at any time, freeing included: a call in progress goes on
 * with what it has, later ones get LEASEHOLD_ERR_HANDLE. Only borrowed strings end with their
 * handle. A lease may be released by another thread than acquired it. Calls block; none may be made in
 * a signal handler, and no thread may be cancelled (pthread_cancel) in one: that is what interrupt
 * functions are for. The library's own threads take no signals.
 *
 * Fork. A forked child owns nothing of its parent's: every call with a handle of the parent's says
 * LEASEHOLD_ERR_FORKED, and freeing one does nothing. After leasehold_client_reopen_after_fork(), a
 * child may use that client and its locks. Else it opens a client of its own; on SQLite it cannot,
 * where the parent has ever opened a file.
 *
 * The library prints nothing, installs no signal handlers, and stays loaded after dlclose(). When
 * all handles are freed, no thread and no descriptor of it are left. (One of Redis' threads,
 * that of leasehold_lease_on_lost(), and that of a term may take a moment to end.) No memory is left
 * either, but for a few dozen bytes that Rust keeps for each thread until that ends.
 */

#ifndef LEASEHOLD_H
#define LEASEHOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header. leasehold_version() is that of the library that runs. */
#define LEASEHOLD_VERSION "0.1.0"

/** As the length of bytes, says that they end with a zero byte. */
#define LEASEHOLD_NUL SIZE_MAX

/* ---- What a program holds -------------------------------------------------------------------- */

/**
 * An open store with its connections and a background thread that renews leases. (On Redis, one
 * more thread belongs to the connection pools; it sleeps, and ends when everything that came of
 * the client is freed.) Open one for a process and share it between threads. Free it with
 * leasehold_client_free().
 */
typedef struct leasehold_client leasehold_client;

/**
 * How a client is set up: a URL, and what a program would rather set in code. Free it with
 * leasehold_config_free().
 */
typedef struct leasehold_config leasehold_config;

/**
 * One candidate for the leadership of a name, from leasehold_client_election(). One thread stands,
 * and others resign, stop it, or ask whether it leads. Free it with leasehold_election_free().
 *
 *     static int collect(void *data, leasehold_term *term)
 *     {
 *         do collect_once(data, leasehold_term_fence(term)); // the database rejects a smaller fence
 *         while (leasehold_term_leads_after_ms(term, 1000));
 *         return 0;
 *     }
 *
 *     leasehold_client_election(client, "collector", LEASEHOLD_NUL, &election, &error);
 *     leasehold_election_set_ttl_ms(election, 15000);
 *     leasehold_election_run_as_leader(election, collect, NULL, data, &returned, &error);
 */
typedef struct leasehold_election leasehold_election;

/**
 * The particulars of a failure, from the last argument of the call that failed. Free it with
 * leasehold_error_free().
 */
typedef struct leasehold_error leasehold_error;

/**
 * Something that happened to a lease without its holder's doing, from leasehold_events_next_within().
 * Free it with leasehold_event_free().
 */
typedef struct leasehold_event leasehold_event;

/**
 * A subscription to what happens to a client's leases, from leasehold_client_events(). Free it
 * with leasehold_events_free().
 *
 * Each subscription keeps its own events for a reader that is slow: it may miss
 * LEASEHOLD_EVENT_AT_RISK (they are counted), never LEASEHOLD_EVENT_LOST.
 */
typedef struct leasehold_events leasehold_events;

/**
 * The proof that you hold a lock, for as long as it says so. The client renews it in the
 * background unless that was switched off. Free it with leasehold_lease_free(), which releases the
 * lock if nothing else has ended the lease.
 */
typedef struct leasehold_lease leasehold_lease;

/**
 * A lock that can be acquired: a name and options. It holds nothing itself. Any number of threads
 * may use it at once, and any number of leases can come from it. Free it with
 * leasehold_lock_free().
 */
typedef struct leasehold_lock leasehold_lock;

/**
 * Who had a lock when leasehold_lock_inspect() asked. It does not change any more. Free it with
 * leasehold_lock_state_free().
 */
typedef struct leasehold_lock_state leasehold_lock_state;

/**
 * What leasehold_client_metrics() found. It does not change any more. Free it with
 * leasehold_metrics_free().
 */
typedef struct leasehold_metrics leasehold_metrics;

/**
 * The time for which a candidate leads: in the hands of its work, or from
 * leasehold_election_stand_within(). Free the latter with leasehold_term_free().
 *
 * A term ends before its lease does: when only as much validity is left as the work needs to stop
 * (leasehold_election_set_grace_ms()). It does not begin again, even if the lease could be renewed
 * after all. The lock stays held until the work has returned or the term was resigned, so no other
 * candidate is elected while the work still stops, unless validity ends before.
 */
typedef struct leasehold_term leasehold_term;

/**
 * What goes on in a store for tests until it is freed: a lock that another client holds, or requests
 * that fail. Free it with leasehold_testing_effect_free().
 */
typedef struct leasehold_testing_effect leasehold_testing_effect;

/**
 * A store in the memory of this process, for the tests of a program, and the controls of a test: it
 * needs no server, and has a lease lost, a lock busy or a request fail when the test says so. All
 * clients that open its URL, leasehold_testing_memory_url(), exclude each other as on a server. Free
 * it with leasehold_testing_memory_free().
 *
 * A control that is called mistakenly, as for the loss of a lock that no client holds, is
 * LEASEHOLD_ERR_BAD_ARGUMENT, and its error lists the locks that are held. Names are those of the
 * store: with the prefix of the client, if it has one.
 */
typedef struct leasehold_testing_memory leasehold_testing_memory;

/**
 * The names of the locks that were held when leasehold_testing_memory_held() asked. It does not
 * change any more. Free it with leasehold_testing_names_free().
 */
typedef struct leasehold_testing_names leasehold_testing_names;

/**
 * Waits for locks that no thread of the program stands in: a few threads of each client do the
 * asking for all of them. For event loops, and for programs that wait for hundreds of locks at
 * once; from leasehold_waits_open(). Free it with leasehold_waits_free().
 *
 *     leasehold_waits_start(waits, lock, 17, &error);              // never blocks
 *     // ... and when leasehold_waits_descriptor(waits) is readable:
 *     while (leasehold_waits_next_within(waits, 0, &id, &error) == LEASEHOLD_OK)
 *         if (leasehold_waits_take(waits, id, &turn, &error) == LEASEHOLD_OK)
 *             go_on(id, turn);
 */
typedef struct leasehold_waits leasehold_waits;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

/**
 * What a call came to: LEASEHOLD_OK, an outcome above 0, or an error below 0. More of both may
 * come: treat what you do not know by its sign.
 */
typedef int32_t leasehold_status;

/** Done. */
#define LEASEHOLD_OK 0
/** Outcome: another holder has the lock. */
#define LEASEHOLD_BUSY 1
/** Outcome: the wait ran out. */
#define LEASEHOLD_TIMEOUT 2
/** Outcome: the caller's interrupt function ended the wait. You hold nothing. */
#define LEASEHOLD_INTERRUPTED 3
/**
 * Outcome: the lease was over. A call ended it before, it expired, it was deleted, or another
 * holder has the lock now.
 */
#define LEASEHOLD_LOST 4
/**
 * Outcome: the store did not confirm the request. Leasehold assumes that you do not hold the lock,
 * and releases it in the background in case you do. A lease that you had before is as valid as it
 * says.
 */
#define LEASEHOLD_UNKNOWN 5
/** An argument that can never work: a bad name, option or URL, or NULL for an output. */
#define LEASEHOLD_ERR_BAD_ARGUMENT (-1)
/** A handle that is NULL, freed, of another type, or not from this library. */
#define LEASEHOLD_ERR_HANDLE (-2)
/** The client is closed, or the handle was freed while the call was waiting. */
#define LEASEHOLD_ERR_CLOSED (-3)
/** The handle was made before this process was forked: see leasehold_client_reopen_after_fork(). */
#define LEASEHOLD_ERR_FORKED (-4)
/** A client was opened with this configuration, so it can no longer change. */
#define LEASEHOLD_ERR_SEALED (-5)
/** A defect of this library: the call was abandoned. The handles stay usable. */
#define LEASEHOLD_ERR_PANIC (-6)
/** This thread holds the lock and would wait for itself for ever. */
#define LEASEHOLD_ERR_WOULD_DEADLOCK (-7)
/** The store cannot be reached. */
#define LEASEHOLD_ERR_REFUSED (-8)
/** The store did not answer in time. No request for the lock had reached it. */
#define LEASEHOLD_ERR_NO_ANSWER (-9)
/** The store did not accept the user or the password. */
#define LEASEHOLD_ERR_AUTH (-10)
/** The TLS connection could not be made. */
#define LEASEHOLD_ERR_TLS (-11)
/** The store forbids a command or a key that a lock needs. */
#define LEASEHOLD_ERR_PERMISSION (-12)
/** The name is in use by something that is not a lease. */
#define LEASEHOLD_ERR_WRONG_TYPE (-13)
/** The store is read-only. */
#define LEASEHOLD_ERR_READ_ONLY (-14)
/** The store is out of memory. */
#define LEASEHOLD_ERR_OUT_OF_MEMORY (-15)
/** The store is up and cannot serve at the moment: loading, busy, failing over. */
#define LEASEHOLD_ERR_UNAVAILABLE (-16)
/** This process has run out of connections, descriptors or threads. */
#define LEASEHOLD_ERR_EXHAUSTED (-17)
/** The file of an embedded store cannot be used. */
#define LEASEHOLD_ERR_STORAGE (-18)
/** The store answered something that this library does not understand. */
#define LEASEHOLD_ERR_PROTOCOL (-19)
/** Too few replicas acknowledged the grant. The lock was released. */
#define LEASEHOLD_ERR_NOT_REPLICATED (-20)
/** Too few servers of the quorum answered. You hold nothing. */
#define LEASEHOLD_ERR_NO_QUORUM (-21)
/** The disk that the store writes to is full, or a quota there is used up. */
#define LEASEHOLD_ERR_DISK_FULL (-22)

/**
 * The short, stable name of a status, such as "busy", also of a number that is none. Any thread.
 */
const char *leasehold_status_name(leasehold_status status);

/** What a status means, as a part of a sentence. Any thread. */
const char *leasehold_status_message(leasehold_status status);

/**
 * What to do about a status, as a part of a sentence; empty for LEASEHOLD_ERR_BAD_ARGUMENT, where the
 * error itself says it. An error of another status may say itself what to do, too: then its message
 * leaves this out. Any thread.
 */
const char *leasehold_status_advice(leasehold_status status);

/** Whether the same call can succeed later without anybody changing anything. Any thread. */
bool leasehold_status_is_retriable(leasehold_status status);

/**
 * Who had the lock when the last wait of the calling thread ran out (LEASEHOLD_TIMEOUT, for which there
 * is no error), and how long it was: "'n', held by web-3 (python worker.py, pid 4711) since 12 s, not
 * free within wait, 5 s, asked 2 times". Empty before there was any. Borrowed until the next one of
 * this thread. Any thread.
 */
const char *leasehold_timeout_detail(void);

/* ---- Errors ---------------------------------------------------------------------------------- */

/**
 * The status that the failed call returned; LEASEHOLD_OK for NULL, LEASEHOLD_ERR_HANDLE for what
 * is no error. Any thread.
 */
leasehold_status leasehold_error_status(const leasehold_error *error);

/**
 * What went wrong and what to do about it, as one sentence of UTF-8 without a line end, never with
 * a password. For NULL, and for what is no error, it says so. Borrowed. Any thread.
 */
const char *leasehold_error_message(const leasehold_error *error);

/**
 * Only what is special about this failure, without the sentences that leasehold_status_message()
 * and leasehold_status_advice() have for its status; may be empty. Borrowed. Any thread.
 */
const char *leasehold_error_detail(const leasehold_error *error);

/** Frees an error and its strings. Any thread. */
void leasehold_error_free(leasehold_error *error);

/* ---- Setting up a client --------------------------------------------------------------------- */

/**
 * What a credentials function answers: it writes what it has, and leaves the rest as it is, which is NULL,
 * 0 or false. The strings end with a zero byte. They are read when the function has returned, and must
 * stay until it is called again, or until `drop` is called.
 *
 * - user: whose secret it is; NULL for the user in the URL.
 * - secret: the password or the token.
 * - valid_until_ms: when the secret ends, in milliseconds since 1970 (UTC); 0 if it has no end. Then it is
 *   asked for at each login.
 * - retire_connections: whether connections to PostgreSQL and MySQL that logged in with earlier
 *   credentials make way for new ones. They do so anyway if the user changes.
 * - failure: why there are no credentials, for the text of the error; NULL where nothing is to be said.
 */
typedef struct {
  const char *user;
  const char *secret;
  int64_t valid_until_ms;
  bool retire_connections;
  const char *failure;
} leasehold_credentials;

/**
 * Looks up credentials for a server: see leasehold_config_set_credentials(). `host` is the path of a unix
 * socket if `port` is 0. `user` is the one in the URL, or NULL. These are borrowed for the call. Returns
 * 0, or anything else if it has failed. It must not call this library, and must return, not longjmp() or
 * throw.
 */
typedef int (*leasehold_credentials_fn)(void *user_data,
                                        const char *host,
                                        uint16_t port,
                                        const char *user,
                                        leasehold_credentials *answer);

/**
 * Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
 */
typedef void (*leasehold_credentials_drop_fn)(void *user_data);

/**
 * Reads a URL, of `url_length` bytes or LEASEHOLD_NUL.
 *
 *     redis://[user[:password]@]host[:port][/database]   one Redis or Valkey over TCP
 *     unix:///path/to/socket                             one Redis on a unix socket
 *     redis+sentinel://[user:password@]host[:port],host2/master[/database]
 *                                                        the Redis that Sentinels call the master
 *     redis+cluster://[user:password@]host[:port],host2  a Redis Cluster, found by some of
 *                                                        its servers
 *     rediss://, rediss+sentinel://, rediss+cluster://   the same over TLS
 *     redis://a,redis://b,redis://c                      a quorum: an odd number of the above,
 *                                                        with commas between them
 *     sqlite:///path/to/file, sqlite:file                an SQLite file, made
 *                                                        with its folder where missing
 *     sqlite:                                            the embedded store, one per user
 *     memory:name                                        the store in memory that a test has made in
 *                                                        this process: leasehold_testing_memory_open()
 *     postgres://user[:password]@host[:port][,host2][/database]
 *                                                        a table of a PostgreSQL, where the
 *                                                        library is built with postgres
 *     mysql://user[:password]@host[:port][,host2]/database
 *                                                        tables of a MySQL or a MariaDB, where
 *                                                        the library is built with mysql
 *     zookeeper://[user:password@]host[:port][,host2][/chroot]
 *                                                        nodes of a ZooKeeper, where the
 *                                                        library is built with zookeeper
 *     etcd://[user:password@]host[:port][,host2], etcds://
 *                                                        an etcd, with TLS etcds, where the library
 *                                                        is built with etcd
 *
 * Any of them takes ?prefix=, io_timeout=, pool=, close_timeout=, claim_window=, max_ttl=, label=,
 * register= and advise=, as in "redis://cache?io_timeout=300ms&pool=16"; servers also replicas=,
 * guard_data_loss= and fence_life=; those over TLS ca=, cert= and key=, which name PEM files; unix user=, password=
 * and db=; Sentinels sentinel_user=, sentinel_password= and sentinel_tls=. In place of a password,
 * password_file= (and sentinel_password_file=) names a file that has it, and password_command= (and
 * sentinel_password_command=) a command that prints it; each login reads or runs it again. In a quorum, what concerns the client as a whole stands on the last URL. A user's name, a password or a
 * parameter may hold any character, written as % and two hex digits. max_ttl is the longest ttl
 * that a lock may have: 366 days by default, and 60 seconds in a quorum and with
 * guard_data_loss=yes.
 *
 * Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a malformed URL.
 */
leasehold_status leasehold_config_from_url(const char *url,
                                           size_t url_length,
                                           leasehold_config **config,
                                           leasehold_error **error);

/**
 * Reads the URLs of a quorum, `count` of them, each ended by a zero byte: an odd number of
 * independent servers, of which a majority grants a lock. One alone means what
 * leasehold_config_from_url() reads. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a
 * malformed URL, and for what is no quorum.
 */
leasehold_status leasehold_config_from_urls(const char *const *urls,
                                            size_t count,
                                            leasehold_config **config,
                                            leasehold_error **error);

/**
 * Takes the URL from the environment variable LEASEHOLD_URL, or else from the file
 * /etc/leasehold.conf (another one, if LEASEHOLD_CONF names it), or else the embedded store,
 * "sqlite:": a file for this user on this machine only, which the log says at LEASEHOLD_LOG_WARN.
 * The command `leasehold` does the same. Any thread, as long as none changes the environment.
 * Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a malformed URL or file, a variable that is empty or seems
 * to be a misspelt one, and where LEASEHOLD_REQUIRE_URL=1 is set and there is no URL.
 */
leasehold_status leasehold_config_from_env(leasehold_config **config, leasehold_error **error);

/**
 * Sets what is put before every name in the store: any bytes, none by default. On Redis, where a
 * name is a key among others, "lock:" or the like sets locks apart.
 *
 * The setters of a configuration return LEASEHOLD_OK, LEASEHOLD_ERR_BAD_ARGUMENT (then opening a
 * client with it fails too, until the setting is made well; leasehold_config_check() has the
 * reason), or LEASEHOLD_ERR_SEALED: a client has been opened with it, which goes on with what it
 * was opened with. Any thread.
 */
leasehold_status leasehold_config_set_prefix(leasehold_config *config,
                                             const char *prefix,
                                             size_t prefix_length);

/**
 * Sets how long the store may take to answer one request, connecting included: 1000 ms by
 * default, from 1 ms to an hour. Any thread.
 */
leasehold_status leasehold_config_set_io_timeout_ms(leasehold_config *config, int64_t timeout_ms);

/** Sets how many requests may be under way at once: 8 by default, from 1 to 1024. Any thread. */
leasehold_status leasehold_config_set_pool(leasehold_config *config, uint32_t connections);

/**
 * Sets how long closing goes on releasing leases: 1000 ms by default, an hour at most. Any thread.
 */
leasehold_status leasehold_config_set_close_timeout_ms(leasehold_config *config,
                                                       int64_t timeout_ms);

/**
 * Sets how long a lock that was handed to a waiter stays with it before it must have answered: what
 * one that died just then costs those behind it. 1000 ms by default, 50 ms to 60 s. Any thread.
 */
leasehold_status leasehold_config_set_claim_window_ms(leasehold_config *config, int64_t window_ms);

/**
 * Sets the longest ttl that a lock may have: 366 days by default, and 60 s in a store that guards
 * against lost data; from 1 s to 366 days, in a quorum to 24 h. A server that came back without its
 * data grants nothing for as long, so all clients of such a store should have the same. Any thread.
 */
leasehold_status leasehold_config_set_max_ttl_ms(leasehold_config *config, int64_t most_ms);

/**
 * Sets whether a server that may have lost data grants nothing until every lease that it has
 * forgotten must be over. Off by default, except in a quorum, where it is always on; a file needs
 * no guard, and refuses it. leasehold_client_initialize() declares new servers. Any thread.
 */
leasehold_status leasehold_config_set_guard_data_loss(leasehold_config *config, bool on);

/**
 * Sets a word of the program's own, text of 100 bytes at most, which others see beside its name when
 * they look who has a lock: the tenant, the queue, the release. Any thread.
 */
leasehold_status leasehold_config_set_label(leasehold_config *config,
                                            const char *label,
                                            size_t label_length);

/**
 * Sets whether the client says in the store who it is, so that others see who has a lock and who
 * waits: on by default. Once soon after the first lease or wait, then once a minute while there are
 * any, and beside all calls. A client that may not do so goes on without. Any thread.
 */
leasehold_status leasehold_config_set_register(leasehold_config *config, bool on);

/**
 * Sets whether the log has a line, `unguarded`, where the store could lose grants when a server restarts
 * or fails over, and nothing guards against that: on by default. The client finds out once, soon after
 * the first lease or wait and beside all calls. Any thread.
 */
leasehold_status leasehold_config_set_advise(leasehold_config *config,
                                             bool on);

/**
 * Sets what the program is called, as others see it: by default as the file of its command. Text.
 * Any thread.
 */
leasehold_status leasehold_config_set_program(leasehold_config *config,
                                              const char *program,
                                              size_t program_length);

/**
 * Sets what the program is written in, as others see it: "c" by default. Text. For bindings of other
 * languages. Any thread.
 */
leasehold_status leasehold_config_set_language(leasehold_config *config,
                                               const char *language,
                                               size_t language_length);

/**
 * Counts the locks of some names apart: in leasehold_client_metrics() they have this for a label,
 * instead of "*". It is a name, or how names begin and a `*`, as in "stock:*"; where several fit, the
 * longest counts. 32 at most, each added by a call: what users type is often part of a name, and must
 * not make series. One that was refused stays so, whatever is added after it. Any thread.
 */
leasehold_status leasehold_config_add_metrics_group(leasehold_config *config,
                                                    const char *pattern,
                                                    size_t pattern_length);

/**
 * What a setter of this configuration has refused, with the reason, while the setting is not made
 * well; LEASEHOLD_OK when nothing is. Any thread.
 */
leasehold_status leasehold_config_check(const leasehold_config *config, leasehold_error **error);

/** The store as people may see it, without user and password. Borrowed. Any thread. */
const char *leasehold_config_store(const leasehold_config *config);

/** Frees a configuration. Clients that were opened with it go on. Any thread. */
void leasehold_config_free(leasehold_config *config);

/**
 * Has the credentials of the server that keeps the locks looked up while the program runs: tokens of a
 * cloud, or passwords that a vault changes. The URL then has no password. NULL takes it back.
 *
 * A thread of each client, `leasehold-login`, calls `function`, one call at a time, for each server apart:
 * when the first connection needs credentials, and again before they end, at about three quarters of their
 * life. A call of this library waits for it until its own deadline. If the function fails, the last
 * credentials are used until they end, and then the error is LEASEHOLD_ERR_AUTH, with the text that the
 * function gave. Open connections to Redis log in again with the newest. If a client was opened in a
 * forked child, or is used there, the child calls the function, too. Clients of one configuration
 * wait for each other in it.
 *
 * `drop` may be NULL. Else it is called once, when neither the configuration nor a client needs the
 * function any more, or if it was not set. Closing a client waits for a call of the function no longer
 * than for anything else.
 *
 * Returns as leasehold_config_set_prefix(). Any thread.
 */
leasehold_status leasehold_config_set_credentials(leasehold_config *config,
                                                  leasehold_credentials_fn function,
                                                  void *user_data,
                                                  leasehold_credentials_drop_fn drop);

/* ---- Clients --------------------------------------------------------------------------------- */

/** What a client counts: one of LEASEHOLD_COUNTER_... */
typedef int32_t leasehold_counter;

/** Requests to a store for a lock, every try of a wait included. */
#define LEASEHOLD_COUNTER_ATTEMPTS 1
/** Leases acquired. */
#define LEASEHOLD_COUNTER_GRANTED 2
/** Tries that found the lock held. */
#define LEASEHOLD_COUNTER_BUSY 3
/** Waits that ran out. */
#define LEASEHOLD_COUNTER_TIMED_OUT 4
/** Requests whose outcome stayed unknown. */
#define LEASEHOLD_COUNTER_UNKNOWN 5
/** Renewals that the store confirmed. */
#define LEASEHOLD_COUNTER_RENEWED 6
/** Leases that were lost while held. */
#define LEASEHOLD_COUNTER_LOST 7
/** Releases that found the lease gone, or could not tell. */
#define LEASEHOLD_COUNTER_RELEASED_LATE 8

/**
 * Opens the store that a URL names, of `url_length` bytes or LEASEHOLD_NUL;
 * leasehold_config_from_url() lists the URLs.
 *
 * A Redis store connects when it is first asked, so a client can be opened before its server;
 * leasehold_client_ping() asks at once. An SQLite file is opened here. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for the URL, LEASEHOLD_ERR_STORAGE for the file.
 */
leasehold_status leasehold_client_open(const char *url,
                                       size_t url_length,
                                       leasehold_client **client,
                                       leasehold_error **error);

/**
 * Opens the store that leasehold_config_from_env() finds. Any thread, as long as none changes the
 * environment. Errors: as there, and as leasehold_client_open().
 */
leasehold_status leasehold_client_open_env(leasehold_client **client, leasehold_error **error);

/**
 * Opens a store that was set up in code. The configuration stays the caller's to free; it can open
 * more clients, and cannot be changed any more. Any thread. Errors: as leasehold_client_open(),
 * and LEASEHOLD_ERR_BAD_ARGUMENT for settings out of range.
 */
leasehold_status leasehold_client_open_config(leasehold_config *config,
                                              leasehold_client **client,
                                              leasehold_error **error);

/**
 * Makes a lock: a name of `name_length` bytes (any bytes, from 1 to 65536) or LEASEHOLD_NUL, and
 * options, which the functions leasehold_lock_set_...() change. It holds nothing and sends no
 * request.
 *
 * On Redis the name, behind the prefix, is the key, beside "leasehold:{name}" with the last fence.
 * Give it a beginning that no other data has: a foreign key without a ttl is
 * LEASEHOLD_ERR_WRONG_TYPE, but one with a ttl looks like a lock that is held. A name that begins
 * with "leasehold:", behind the prefix, is refused: so do the keys that are kept beside locks. Any
 * thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for the name.
 */
leasehold_status leasehold_client_lock(leasehold_client *client,
                                       const char *name,
                                       size_t name_length,
                                       leasehold_lock **lock,
                                       leasehold_error **error);

/**
 * Connects to the store and logs in, without touching a lock. Any thread. Errors: whatever is in
 * the way, by io_timeout.
 */
leasehold_status leasehold_client_ping(leasehold_client *client, leasehold_error **error);

/**
 * Declares a new deployment whose store guards against lost data (a quorum, or one with
 * guard_data_loss): nothing was granted there before, so its servers grant locks at once. Do this
 * once, before the first lock is acquired. `leasehold init` does the same.
 *
 * Never call this whenever a program or a server starts. A server that has come back empty looks
 * new, and would grant at once a lock that another client still holds. The call refuses a server
 * that has come back with data, or that waits already, unless `force` declares that no client
 * relies on any lease. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a store without that
 * guard; others say which server is in the way.
 */
leasehold_status leasehold_client_initialize(leasehold_client *client,
                                             bool force,
                                             leasehold_error **error);

/**
 * Subscribes to what happens to the leases of this client from now on. Each subscription gets
 * every event. Any thread. Errors: LEASEHOLD_ERR_EXHAUSTED when no descriptors are left,
 * LEASEHOLD_ERR_CLOSED.
 */
leasehold_status leasehold_client_events(leasehold_client *client,
                                         leasehold_events **events,
                                         leasehold_error **error);

/**
 * Lets forked children use this client and its locks: from now on, a child opens the store anew
 * when it first needs it. Without it, calls in a child return LEASEHOLD_ERR_FORKED; and for leases,
 * subscriptions and all other handles they always do.
 *
 * Call it before the fork. A fork then waits for calls of other threads that are in the midst of
 * changing what the process has: microseconds, and on an SQLite file a sync of the disk, 2 s at most;
 * where that takes longer, the child cannot use SQLite (LEASEHOLD_ERR_STORAGE). A child that comes of
 * a bare clone(), or of a fork in a signal handler in the midst of a call, can use none of it. Any
 * thread.
 */
leasehold_status leasehold_client_reopen_after_fork(leasehold_client *client,
                                                    leasehold_error **error);

/**
 * What the client has counted since it was opened, for graphs: `counter` is one of
 * LEASEHOLD_COUNTER_... It still answers when the client is closed. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for a counter that there is not.
 */
leasehold_status leasehold_client_counter(const leasehold_client *client,
                                          leasehold_counter counter,
                                          uint64_t *count,
                                          leasehold_error **error);

/**
 * Takes down all that was counted and measured since the client was opened, and what is so now, as
 * text that Prometheus reads: leasehold_metrics_text(). A program answers with it where it serves its
 * own metrics, under the type "text/plain; version=0.0.4". It still answers when the client is closed;
 * a forked child begins with nothing. Any thread.
 */
leasehold_status leasehold_client_metrics(const leasehold_client *client,
                                          leasehold_metrics **metrics,
                                          leasehold_error **error);

/**
 * The text, in Prometheus' format 0.0.4, and its length, unless `length` is NULL. Borrowed. Any
 * thread.
 */
const char *leasehold_metrics_text(const leasehold_metrics *metrics, size_t *length);

/** Frees metrics and their text. Any thread. */
void leasehold_metrics_free(leasehold_metrics *metrics);

/** The store as people may see it, without user and password. Borrowed. Any thread. */
const char *leasehold_client_store(const leasehold_client *client);

/**
 * Closes the client. Every lease becomes invalid at once and is released. Calls that wait return
 * LEASEHOLD_ERR_CLOSED within 200 ms, or by io_timeout if their request is under way. The thread
 * that renews has ended when this returns (a log function cannot wait for it).
 *
 * It lasts close_timeout at most, or io_timeout if a request under way is not answered in that
 * time. Locks that were not released by then are free by their ttl. Closing twice does no harm.
 *
 * The handle, and those of its locks, leases and subscriptions, still have to be freed. Without
 * closing, a program may just exit: that does no I/O, and the ttl frees its locks. Any thread.
 */
leasehold_status leasehold_client_close(leasehold_client *client, leasehold_error **error);

/**
 * As leasehold_client_close(), with another limit than close_timeout. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for a negative one; then nothing is closed. Any thread.
 */
leasehold_status leasehold_client_close_within(leasehold_client *client,
                                               int64_t timeout_ms,
                                               leasehold_error **error);

/**
 * Closes the client as leasehold_client_close() does, and frees its handle. Locks, leases and
 * subscriptions that came from it keep their handles, which are to be freed too; their calls
 * return LEASEHOLD_ERR_CLOSED. Any thread.
 */
void leasehold_client_free(leasehold_client *client);

/**
 * Makes a candidate for a name of `name_length` bytes or LEASEHOLD_NUL. Underneath is a lock of that
 * name, so `leasehold show` shows the leader. It sends no request. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for a name that no lock can have, see leasehold_client_lock().
 */
leasehold_status leasehold_client_election(leasehold_client *client,
                                           const char *name,
                                           size_t name_length,
                                           leasehold_election **election,
                                           leasehold_error **error);

/* ---- Locks ----------------------------------------------------------------------------------- */

/**
 * Asked on the calling thread, at least every 100 ms while it waits for a lock, with no lock of
 * the library held: other than zero ends the wait. It may call this library. While it runs, the
 * wait goes on for as long as it takes. It must return, not longjmp() or throw.
 */
typedef int (*leasehold_interrupt_fn)(void *user_data);

/** How to wait for a lock. */
typedef int32_t leasehold_wait_mode;

/**
 * What leasehold_lock_take() and leasehold_waits_take() acquired: a lease and its fence, as
 * leasehold_lease_fence() returns it. End the lease with leasehold_lease_end(), or free it as any
 * other.
 */
typedef struct {
  leasehold_lease *lease;
  uint64_t fence;
} leasehold_turn;

/**
 * What is known of the holder of a lock or of a process that waits for it: one of
 * LEASEHOLD_FACT_...
 */
typedef int32_t leasehold_fact;

/** As a time in milliseconds, says that there is no limit. */
#define LEASEHOLD_FOREVER INT64_MAX
/**
 * Wait in the store's queue, in the order of arrival. If the server forbids what the queue needs
 * (the right to subscribe to a channel), or the store has no queue, poll instead.
 */
#define LEASEHOLD_WAIT_MODE_AUTO 0
/**
 * Poll, in no order. For names that are shared with other libraries, whose releases notify no
 * waiter. A thread that spins comes after all that queue for the name.
 */
#define LEASEHOLD_WAIT_MODE_SPIN 1
/** A sentence: "web-3 (python worker.py, pid 4711, label billing) since 12 s". */
#define LEASEHOLD_FACT_WHO 0
/** The first digits of its token. */
#define LEASEHOLD_FACT_TOKEN_PREFIX 1
/** For how many milliseconds it has had the lock, or waited, by the store's clock. */
#define LEASEHOLD_FACT_SINCE_MS 2
/** The client: 12 hex digits, another number in each process. */
#define LEASEHOLD_FACT_CLIENT 3
/** The machine's name. */
#define LEASEHOLD_FACT_HOST 4
/** The process. */
#define LEASEHOLD_FACT_PID 5
/** What runs there. */
#define LEASEHOLD_FACT_PROGRAM 6
/** What that is written in. */
#define LEASEHOLD_FACT_LANGUAGE 7
/** The version of this library there. */
#define LEASEHOLD_FACT_VERSION 8
/** What leasehold_config_set_label() has set there. */
#define LEASEHOLD_FACT_LABEL 9
/** When the client was opened, in milliseconds since 1970 by its machine's clock. */
#define LEASEHOLD_FACT_STARTED_MS 10
/**
 * When the command began that `leasehold run --once-per` has run there, in milliseconds since 1970 by
 * its machine's clock. The lock stays taken after it.
 */
#define LEASEHOLD_FACT_RUN_BEGAN_MS 11
/** When it ended; empty while it runs, and where its machine died meanwhile. */
#define LEASEHOLD_FACT_RUN_ENDED_MS 12
/** What it ended with: 128 + n where signal n ended it. */
#define LEASEHOLD_FACT_RUN_EXIT_STATUS 13
/** How many facts this version has: one more than the last. */
#define LEASEHOLD_FACTS 14

/**
 * Sets how soon the lock is free after its holder died: 30000 ms by default, from 3 ms to 366
 * days, or to what the URL has as max_ttl. It does not end a lease that is renewed. The client
 * renews after each third of the ttl. So it takes a third of the ttl until the client knows that a
 * lease was deleted in the store.
 *
 * The setters of a lock return LEASEHOLD_OK, or LEASEHOLD_ERR_BAD_ARGUMENT for a value that the
 * option can never have. leasehold_lock_check() has the reason. Then acquiring the lock fails too,
 * until the option is set well. Options that do not go together are refused when the lock is
 * acquired. Leases that were acquired before stay as they are. Any thread.
 */
leasehold_status leasehold_lock_set_ttl_ms(leasehold_lock *lock, int64_t ttl_ms);

/**
 * Sets how long leasehold_lock_acquire() waits: 60000 ms by default; 0 tries once,
 * LEASEHOLD_FOREVER waits without limit. Any thread.
 */
leasehold_status leasehold_lock_set_wait_ms(leasehold_lock *lock, int64_t wait_ms);

/**
 * Sets how long the store may take to answer when this lock is acquired, from 1 ms to 1 h. The
 * default is the client's io_timeout, 1000 ms unless it was set. While the store is silent,
 * leasehold_lock_try_acquire() and shorter waits last that long. With 50, they have an answer
 * after 50 ms, or an error that is not LEASEHOLD_BUSY. Renewals and releases keep the client's
 * io_timeout. Any thread.
 */
leasehold_status leasehold_lock_set_io_timeout_ms(leasehold_lock *lock, int64_t most_ms);

/**
 * Sets how often a wait that spins asks for the lock at most: 1 is the least, and there is no
 * limit by default. Whichever of this and the time comes first ends the wait. In another mode than
 * LEASEHOLD_WAIT_MODE_SPIN, acquiring the lock is then LEASEHOLD_ERR_BAD_ARGUMENT. Any thread.
 */
leasehold_status leasehold_lock_set_attempts(leasehold_lock *lock, uint32_t most);

/**
 * Sets whether the client renews leases in the background. By default it does if the ttl is at
 * least 100 ms. Without renewal a lease expires after its ttl. Any thread.
 */
leasehold_status leasehold_lock_set_renew(leasehold_lock *lock, bool renew);

/**
 * Sets how long a living holder may keep a renewed lease: 3600000 ms by default;
 * LEASEHOLD_FOREVER sets no limit. LEASEHOLD_EVENT_AT_RISK comes a third of the ttl before, so
 * choose the ttl well below it. Any thread.
 */
leasehold_status leasehold_lock_set_max_hold_ms(leasehold_lock *lock, int64_t most_ms);

/**
 * Sets how to wait: one of the LEASEHOLD_WAIT_MODE_ constants, LEASEHOLD_WAIT_MODE_AUTO by
 * default; LEASEHOLD_ERR_BAD_ARGUMENT also for a mode that there is not. Any thread.
 */
leasehold_status leasehold_lock_set_wait_mode(leasehold_lock *lock, leasehold_wait_mode mode);

/**
 * Sets how long a wait that spins pauses before it asks again. Pauses have random lengths: the
 * first one up to `first_ms`, the others up to twice as much each time, none longer than
 * `longest_ms`; LEASEHOLD_FOREVER there is what suits the store (64 ms on Redis). Pauses of zero
 * are refused. Without this, a wait asks three more times at once, then pauses up to 1 ms, 2 ms, 4
 * ms and so on. In another mode than LEASEHOLD_WAIT_MODE_SPIN, acquiring the lock is then
 * LEASEHOLD_ERR_BAD_ARGUMENT. Any thread.
 */
leasehold_status leasehold_lock_set_backoff_ms(leasehold_lock *lock,
                                               int64_t first_ms,
                                               int64_t longest_ms);

/**
 * What a setter of this lock has refused, with the reason, while the option is not set well;
 * LEASEHOLD_OK when nothing is. Any thread.
 */
leasehold_status leasehold_lock_check(const leasehold_lock *lock, leasehold_error **error);

/**
 * The name, and its length in `*length` unless that is NULL. A zero byte follows it, and it may
 * hold others. Borrowed. Any thread.
 */
const char *leasehold_lock_name(const leasehold_lock *lock, size_t *length);

/**
 * Acquires the lock if it is free, without waiting for a holder.
 *
 * Returns LEASEHOLD_OK and writes `*lease`, to be freed with leasehold_lease_free(); or
 * LEASEHOLD_BUSY when another holder has it. Returns LEASEHOLD_UNKNOWN, with nothing held, if the
 * request was sent and no reply came, and others for what kept the store from answering. The call
 * ends within leasehold_lock_set_io_timeout_ms(), 1 s by default. Options that can never work are
 * LEASEHOLD_ERR_BAD_ARGUMENT, before anything is sent. Any thread.
 */
leasehold_status leasehold_lock_try_acquire(leasehold_lock *lock,
                                            leasehold_lease **lease,
                                            leasehold_error **error);

/**
 * Acquires the lock, and waits for it as long as leasehold_lock_set_wait_ms() says.
 *
 * Returns:
 * - LEASEHOLD_OK and writes `*lease`, to be freed with leasehold_lease_free().
 * - LEASEHOLD_TIMEOUT when the lock was held for the whole wait.
 * - LEASEHOLD_ERR_CLOSED when the client was closed or the lock freed during the wait.
 * - LEASEHOLD_ERR_WOULD_DEADLOCK when the wait has no limit and this thread holds the lock itself,
 *   by any client of the store.
 * - Others as leasehold_lock_try_acquire().
 *
 * The call ends within the wait or io_timeout (see leasehold_lock_set_io_timeout_ms()), whichever
 * is later, whatever the network does. Once the store has answered this client, a wait continues
 * through an outage of the store. Any thread.
 */
leasehold_status leasehold_lock_acquire(leasehold_lock *lock,
                                        leasehold_lease **lease,
                                        leasehold_error **error);

/**
 * As leasehold_lock_acquire(), with a function that can end the wait. It may be NULL. It gets
 * `user_data`.
 *
 *     static volatile sig_atomic_t stopped;
 *     static int stop(void *unused) { (void)unused; return stopped; }
 *     status = leasehold_lock_acquire_unless(lock, stop, NULL, &lease, &error);
 *
 * Returns LEASEHOLD_INTERRUPTED when the function ended the wait; others as
 * leasehold_lock_acquire(). A request that is under way is not interrupted: it ends by
 * io_timeout. Any thread.
 */
leasehold_status leasehold_lock_acquire_unless(leasehold_lock *lock,
                                               leasehold_interrupt_fn interrupt,
                                               void *user_data,
                                               leasehold_lease **lease,
                                               leasehold_error **error);

/**
 * As leasehold_lock_acquire_unless(), with a limit of its own, whatever
 * leasehold_lock_set_wait_ms() said: 0 tries once, LEASEHOLD_FOREVER waits without limit. The
 * function may be NULL. Any thread.
 */
leasehold_status leasehold_lock_acquire_within(leasehold_lock *lock,
                                               int64_t wait_ms,
                                               leasehold_interrupt_fn interrupt,
                                               void *user_data,
                                               leasehold_lease **lease,
                                               leasehold_error **error);

/**
 * As leasehold_lock_acquire_unless(), with the fence in the same call. With leasehold_lease_end(),
 * acquiring and releasing is two calls, which counts where calls cost more than in C. Any thread.
 *
 *     leasehold_turn turn;
 *     if (leasehold_lock_take(lock, NULL, NULL, &turn, &error) == LEASEHOLD_OK) {
 *         charge(order, turn.fence);
 *         leasehold_lease_end(turn.lease, false, NULL);
 *     }
 */
leasehold_status leasehold_lock_take(leasehold_lock *lock,
                                     leasehold_interrupt_fn interrupt,
                                     void *user_data,
                                     leasehold_turn *turn,
                                     leasehold_error **error);

/**
 * Continues a lease that another process acquired and passed on with leasehold_lease_detach(). For
 * example, a web request acquires it and a worker releases it. `token` is what
 * leasehold_lease_token() returned there, of `token_length` bytes or LEASEHOLD_NUL.
 *
 * This call sends no request. The lease has a token of its own. Rely on it only after its first
 * successful leasehold_lease_extend(); from then on it is renewed too. That call returns
 * LEASEHOLD_LOST in two cases: no process detached a lease with this token and fence, or another
 * program that attached it has extended it first. The token alone is enough to release the lock.
 * Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for what can be no token or fence.
 */
leasehold_status leasehold_lock_attach(leasehold_lock *lock,
                                       const char *token,
                                       size_t token_length,
                                       uint64_t fence,
                                       leasehold_lease **lease,
                                       leasehold_error **error);

/**
 * Reads who holds the lock and who waits for it. Changes nothing. Any thread. Errors: what kept
 * the store from answering, by io_timeout.
 */
leasehold_status leasehold_lock_inspect(leasehold_lock *lock,
                                        leasehold_lock_state **state,
                                        leasehold_error **error);

/**
 * Breaks a lock that its holder does not release. The store hands it to the first waiter at once,
 * under a larger fence. Nothing stops the holder until its next renewal. Then its lease is lost,
 * and its event, error and log say who broke it: `by`, of `by_length` bytes or LEASEHOLD_NUL, such
 * as "root@web-3". An `if_fence` other than 0 breaks only the lease with that fence.
 * (leasehold_lock_state_fence() returns 0 for a free lock.)
 *
 * Returns:
 * - LEASEHOLD_OK and writes the fence of the lease that is over, 0 where the store did not know
 *   it.
 * - LEASEHOLD_BUSY when another lease holds the lock than `if_fence` says.
 * - LEASEHOLD_LOST when the lock is free.
 * - LEASEHOLD_UNKNOWN where the store did not confirm it. Call it again to find out.
 * - LEASEHOLD_ERR_WRONG_TYPE where something else than a lock of this library uses the name.
 * - Others for what kept the store from answering, by io_timeout.
 *
 * Any thread.
 */
leasehold_status leasehold_lock_break(leasehold_lock *lock,
                                      uint64_t if_fence,
                                      const char *by,
                                      size_t by_length,
                                      uint64_t *fence,
                                      leasehold_error **error);

/**
 * Frees a lock. Its leases continue. Threads that wait for it return LEASEHOLD_ERR_CLOSED within
 * 200 ms, or by io_timeout if a request is under way. Any thread.
 */
void leasehold_lock_free(leasehold_lock *lock);

/** Whether the lock was held. Any thread. */
bool leasehold_lock_state_is_held(const leasehold_lock_state *state);

/**
 * The first digits of the holder's token: enough to tell holders apart, too few to release with.
 * Empty when the lock was free, and where the key holds no token: it is an application's own key, or
 * another library's lock. Borrowed. Any thread.
 */
const char *leasehold_lock_state_token_prefix(const leasehold_lock_state *state);

/**
 * In how many milliseconds the lock would be free if not renewed; 0 when it was free. Any thread.
 */
int64_t leasehold_lock_state_ttl_ms(const leasehold_lock_state *state);

/** The holder's fence; 0 when the lock was free, or is held without a fence. Any thread. */
uint64_t leasehold_lock_state_fence(const leasehold_lock_state *state);

/** The last fence that was given out; 0 where the store does not know it any more. Any thread. */
uint64_t leasehold_lock_state_last_fence(const leasehold_lock_state *state);

/**
 * How many processes waited in the store's queue, 100 at most: each has a place there, from 1 on. Who
 * asks again and again stands in no queue. Any thread.
 */
size_t leasehold_lock_state_waiters(const leasehold_lock_state *state);

/** How many more waited than those. Any thread. */
uint64_t leasehold_lock_state_more_waiters(const leasehold_lock_state *state);

/**
 * What is known of who waits at a place, or, at the place 0, of the holder: text, in which nothing
 * is that a terminal obeys, or decimal digits. Empty where it is not known. Other programs say it of
 * themselves: it proves nothing. Borrowed. Any thread.
 */
const char *leasehold_lock_state_fact(const leasehold_lock_state *state,
                                      size_t place,
                                      leasehold_fact fact);

/** Frees a lock state and its strings. Any thread. */
void leasehold_lock_state_free(leasehold_lock_state *state);

/* ---- Many waits at once ---------------------------------------------------------------------- */

/**
 * Makes an empty set of waits, for locks of any clients. Any thread. Errors:
 * LEASEHOLD_ERR_EXHAUSTED when no descriptors are left.
 */
leasehold_status leasehold_waits_open(leasehold_waits **waits, leasehold_error **error);

/**
 * Begins to wait for a lock, as long as leasehold_lock_set_wait_ms() says, and returns at once.
 * `id` is a number of the program's that no other wait in the set has: from now on
 * leasehold_waits_next_within() can tell it, and leasehold_waits_take() has what the wait came to.
 * The wait goes on when the lock is freed; it has its options as they are now.
 *
 * Waits in a set stand in the queue as threads do, in the order of coming. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for an id that is in the set, and for options that can never work;
 * LEASEHOLD_ERR_CLOSED. What the store says is what the wait comes to.
 */
leasehold_status leasehold_waits_start(leasehold_waits *waits,
                                       leasehold_lock *lock,
                                       uint64_t id,
                                       leasehold_error **error);

/**
 * As leasehold_waits_start(), with a limit of its own, whatever leasehold_lock_set_wait_ms() said:
 * 0 tries once, LEASEHOLD_FOREVER waits without limit. Any thread.
 */
leasehold_status leasehold_waits_start_within(leasehold_waits *waits,
                                              leasehold_lock *lock,
                                              int64_t wait_ms,
                                              uint64_t id,
                                              leasehold_error **error);

/**
 * A descriptor that is readable while leasehold_waits_next_within() has a wait to tell: for poll(2)
 * and the like. (It may be so in vain, where a wait that had ended was stopped.) Only poll it; do
 * not read from it or close it. It is valid until the set is freed. -1 for a wrong handle, and in a
 * forked child. Any thread.
 */
int leasehold_waits_descriptor(const leasehold_waits *waits);

/**
 * The next wait that has ended, waiting for one `wait_ms` at most: 0 does not wait,
 * LEASEHOLD_FOREVER has no limit. Each one is told once.
 *
 * Returns LEASEHOLD_OK and writes `*id`; or LEASEHOLD_TIMEOUT when none has ended;
 * LEASEHOLD_ERR_CLOSED when the set was freed meanwhile. Any thread.
 */
leasehold_status leasehold_waits_next_within(leasehold_waits *waits,
                                             int64_t wait_ms,
                                             uint64_t *id,
                                             leasehold_error **error);

/**
 * Returns what a wait came to, and removes it from the set. Returns what leasehold_lock_take()
 * would have returned (but not LEASEHOLD_ERR_WOULD_DEADLOCK, which goes by threads), with the
 * lease and its fence in `*turn`, or LEASEHOLD_BUSY while the wait goes on. A lease is valid and
 * renewed from the end of the wait on, taken or not. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT also for an id that is not in the set.
 */
leasehold_status leasehold_waits_take(leasehold_waits *waits,
                                      uint64_t id,
                                      leasehold_turn *turn,
                                      leasehold_error **error);

/**
 * Ends a wait, if it is in the set: it leaves the queue, and releases the lock if it has acquired
 * it already. Returns at once. Any thread.
 */
leasehold_status leasehold_waits_stop(leasehold_waits *waits, uint64_t id, leasehold_error **error);

/**
 * Stops all waits of a set, and frees it; its descriptor is closed. A thread that waits in
 * leasehold_waits_next_within() returns LEASEHOLD_ERR_CLOSED. Any thread.
 */
void leasehold_waits_free(leasehold_waits *waits);

/* ---- Leases ---------------------------------------------------------------------------------- */

/**
 * Is called when a lease is lost: see leasehold_lease_on_lost(). The event is borrowed for the
 * call. What it returns is 0, or its failure is logged. It may call this library, but must return,
 * not longjmp() or throw.
 */
typedef int (*leasehold_lease_lost_fn)(void *user_data, const leasehold_event *event);

/**
 * Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
 */
typedef void (*leasehold_lease_drop_fn)(void *user_data);

/**
 * The fencing token (fence), from 1 to `2^53-1`: larger than that of every earlier lease on the
 * name. Send it to the resource with each write, and let the resource reject a smaller one. It has
 * at most 16 digits: an int64_t and a BIGINT hold it. It stays when the lease is over. Sends no
 * request. Any thread.
 */
uint64_t leasehold_lease_fence(const leasehold_lease *lease);

/**
 * The token that marks the lease in the store: 32 hexadecimal digits. Whoever has it can release
 * the lock. Borrowed. Any thread.
 */
const char *leasehold_lease_token(const leasehold_lease *lease);

/**
 * The name of the lock, and its length in `*length` unless that is NULL. A zero byte follows it,
 * and it may hold others. Borrowed. Any thread.
 */
const char *leasehold_lease_name(const leasehold_lease *lease, size_t *length);

/**
 * How many milliseconds you may still rely on the lease; 0 when it is over or lost. Sends no
 * request. Any thread.
 */
int64_t leasehold_lease_remaining_ms(const leasehold_lease *lease);

/** Whether you may rely on the lease at this moment. Sends no request. Any thread. */
bool leasehold_lease_is_valid(const leasehold_lease *lease);

/**
 * Makes the lease valid for its ttl from now on. Renewed leases do not need it. It never goes
 * beyond max_hold, and never makes a lease shorter.
 *
 * Returns:
 * - LEASEHOLD_OK.
 * - LEASEHOLD_LOST when the lease was no longer yours.
 * - LEASEHOLD_ERR_CLOSED when its client is closed. The lease has ended with it.
 * - LEASEHOLD_UNKNOWN or another error when the store did not confirm it. The lease stays valid
 *   for as long as it was.
 *
 * Any thread.
 */
leasehold_status leasehold_lease_extend(leasehold_lease *lease, leasehold_error **error);

/**
 * As leasehold_lease_extend(), with another ttl than the lock's. Errors: as
 * leasehold_lease_extend(), and LEASEHOLD_ERR_BAD_ARGUMENT for a ttl that no lock could have. Any
 * thread.
 */
leasehold_status leasehold_lease_extend_for_ms(leasehold_lease *lease,
                                               int64_t ttl_ms,
                                               leasehold_error **error);

/**
 * Releases the lock. The lease is over at once, whatever the call returns.
 *
 * Returns:
 * - LEASEHOLD_OK when the lease was yours to the end.
 * - LEASEHOLD_LOST when it was lost before, or ended before by this or another call.
 * - LEASEHOLD_UNKNOWN when the store did not confirm it. The client releases the lock in the
 *   background, or its ttl frees it.
 * - LEASEHOLD_ERR_CLOSED when the client was closed, which has released it.
 * - Another error when the store refused, such as LEASEHOLD_ERR_PERMISSION. The lock stays held
 *   until its ttl runs out.
 *
 * If another thread is extending the lease, the release waits for that first. Within a log
 * function it does not: there it returns LEASEHOLD_ERR_BAD_ARGUMENT, and the lease continues. Any
 * thread, also another one than acquired it.
 */
leasehold_status leasehold_lease_release(leasehold_lease *lease, leasehold_error **error);

/**
 * Ends the lease without releasing the lock: it stays held until its ttl runs out. Useful for
 * "once per interval". Sends a request only where the lease was handed over a moment ago and the
 * store has not yet confirmed its whole ttl, or where it was attached and never extended.
 *
 * Returns:
 * - LEASEHOLD_OK.
 * - LEASEHOLD_LOST when the lease was lost or ended before.
 * - LEASEHOLD_ERR_CLOSED when its client is closed.
 * - LEASEHOLD_UNKNOWN or another error when the store did not confirm that request. The lease is
 *   over, and the lock may be free when the claim window (leasehold_config_set_claim_window_ms())
 *   has passed.
 *
 * Any thread.
 */
leasehold_status leasehold_lease_let_expire(leasehold_lease *lease, leasehold_error **error);

/**
 * As leasehold_lease_let_expire(), but the lock is free `after_ms` from now, whatever its ttl was.
 *
 * Returns:
 * - LEASEHOLD_OK.
 * - LEASEHOLD_LOST when the lease was no longer yours.
 * - LEASEHOLD_ERR_BAD_ARGUMENT for what no ttl can be. The lease continues.
 * - Others when the store did not confirm it. The lease is over, and the lock expires by the ttl
 *   that it had, or by the claim window if it was handed over a moment ago.
 *
 * Any thread.
 */
leasehold_status leasehold_lease_let_expire_in_ms(leasehold_lease *lease,
                                                  int64_t after_ms,
                                                  leasehold_error **error);

/**
 * Ends the lease here so that another process can continue it. Send that process the token and the
 * fence, and it calls leasehold_lock_attach(). The lock stays taken for a ttl from now, with no
 * holder until then. Token and fence stay readable until the handle is freed.
 *
 * Returns:
 * - LEASEHOLD_OK.
 * - LEASEHOLD_LOST when the lease was lost or ended before.
 * - LEASEHOLD_ERR_CLOSED when its client is closed.
 * - LEASEHOLD_UNKNOWN or another error when the store did not confirm it. The lease is over,
 *   attaching it may fail, and the lock expires by the ttl that it had.
 *
 * Any thread.
 */
leasehold_status leasehold_lease_detach(leasehold_lease *lease, leasehold_error **error);

/**
 * Releases the lock and frees the lease in one call. With `wait`, it returns what
 * leasehold_lease_release() would. Without `wait`, it waits for the store only if the lease can no
 * longer be relied on, and then returns the same.
 *
 * If the lease can be relied on, LEASEHOLD_OK says so without waiting: the lease was valid to the
 * end, and other clients find the lock free a moment later. The store's answer could add only that
 * the lock was deleted by hand, or lost with the store's data, since the last renewal.
 * LEASEHOLD_EVENT_RELEASED_LATE reports that, and an answer that does not come.
 *
 * It waits all the same on a quorum, on an SQLite file, and at the last of several leases that
 * threads of this process handed to each other, while others still wait. A program that exits
 * right after it may leave the lock to its ttl, unless it has closed the client.
 *
 * The handle is freed whatever the call returns, except LEASEHOLD_ERR_FORKED. So
 * LEASEHOLD_ERR_BAD_ARGUMENT, in a log function that is called during an extension of this lease,
 * does not mean that the lease continues: it is released when the extension returns. Any thread.
 */
leasehold_status leasehold_lease_end(leasehold_lease *lease, bool wait, leasehold_error **error);

/**
 * Frees a lease, and releases the lock if nothing has ended the lease. It waits 50 ms at most for
 * a connection, and the client does the rest in the background. It does not return how the release
 * went: see LEASEHOLD_EVENT_RELEASED_LATE. If another thread is extending the lease, it waits for
 * that. Any thread.
 */
void leasehold_lease_free(leasehold_lease *lease);

/**
 * Frees a lease that the program can no longer end, such as one that a garbage collector found.
 * The client stops renewing it and does not release it: the lock stays held until its ttl runs
 * out. Never waits for the store. Any thread.
 */
void leasehold_lease_abandon(leasehold_lease *lease);

/**
 * Has `function` called if this lease is lost; at once if it was lost before. NULL takes back the
 * one that is registered, and a new one takes its place.
 *
 * It is called once at most, and not any more when a call has ended the lease (released or freed it,
 * for example), or its client was closed. When such a call, or this one, returns, the former
 * function is not running any more, so what its `user_data` leads to can be freed. (Only within
 * such a function, or a log function, nobody waits for that.) So it must not wait for a thread that ends
 * the lease. All functions of a client are called one after the other, by a thread that does
 * nothing else, `leasehold-lost`: a slow one holds up the others, and no renewal. It may end leases,
 * take locks, and close the client, which does not wait for the background thread then. A forked
 * child never calls it.
 *
 * `drop` may be NULL. Else it is called once, whatever comes of this call: when the function was
 * called, will not be called any more, or was not registered.
 *
 * Returns LEASEHOLD_OK; LEASEHOLD_LOST when a call has ended the lease before; LEASEHOLD_ERR_CLOSED
 * when its client is closed; LEASEHOLD_ERR_EXHAUSTED when there is no thread or descriptor for it.
 * Any thread.
 */
leasehold_status leasehold_lease_on_lost(leasehold_lease *lease,
                                         leasehold_lease_lost_fn function,
                                         void *user_data,
                                         leasehold_lease_drop_fn drop,
                                         leasehold_error **error);

/**
 * Gives the number by which the events of a subscription to its client name this lease
 * (leasehold_event_lease_id()). Where it was lost before, the subscription is told of that again:
 * so no loss falls between. For languages on top of C, whose code cannot be called on any thread.
 *
 * Returns LEASEHOLD_OK; LEASEHOLD_LOST when a call has ended the lease before; LEASEHOLD_ERR_CLOSED
 * when its client is closed. Any thread.
 */
leasehold_status leasehold_lease_watch(const leasehold_lease *lease,
                                       leasehold_events *events,
                                       uint64_t *lease_id,
                                       leasehold_error **error);

/* ---- Leader election ------------------------------------------------------------------------- */

/**
 * Is told what becomes of a candidate: see leasehold_election_on_change(). `end` is
 * LEASEHOLD_TERM_LASTS when it was elected. Else its term has ended, and `end` says why;
 * `loss` is the LEASEHOLD_LOSS_... behind LEASEHOLD_TERM_LOST. It may call this library, but must
 * return soon, not longjmp() or throw.
 */
typedef void (*leasehold_election_change_fn)(void *user_data,
                                             uint64_t fence,
                                             int32_t end,
                                             int32_t loss);

/**
 * Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
 */
typedef void (*leasehold_election_drop_fn)(void *user_data);

/**
 * The work of a leader, on the thread that called leasehold_election_run_as_leader(). It does its
 * work while leasehold_term_is_leader() is true, or leasehold_term_leads_after_ms(), and returns
 * soon after that. 0 says that all is well, and any other number ends the call, which hands it out.
 * `term` is borrowed for the call. The work may call this library, but must return, not longjmp()
 * or throw.
 */
typedef int (*leasehold_election_work_fn)(void *user_data, leasehold_term *term);

/** It does not stand: it has not begun, its work has ended, or it was stopped. */
#define LEASEHOLD_ELECTION_IDLE 0
/** It waits to be elected, or rests first. */
#define LEASEHOLD_ELECTION_STANDBY 1
/** It leads. */
#define LEASEHOLD_ELECTION_LEADING 2
/**
 * Its leadership has ended and the work was told to stop. No other candidate can be elected yet.
 */
#define LEASEHOLD_ELECTION_STOPPING 3
/** Its lease is over, and the work has still not stopped: another candidate may lead beside it. */
#define LEASEHOLD_ELECTION_OVERDUE 4
/** The term lasts. */
#define LEASEHOLD_TERM_LASTS 0
/** The candidate resigned, or its election was stopped or freed. */
#define LEASEHOLD_TERM_RESIGNED 1
/** The lease could not be renewed, and only what the work needs to stop in is left. */
#define LEASEHOLD_TERM_AT_RISK 2
/**
 * The lease was lost: leasehold_term_loss() says how. LEASEHOLD_LOSS_EXPIRED is also the end of a
 * client that was closed.
 */
#define LEASEHOLD_TERM_LOST 3

/**
 * Sets how soon another candidate is elected after the leader died: 30000 ms by default, from 100 ms.
 *
 * The setters of an election return LEASEHOLD_OK, or LEASEHOLD_ERR_BAD_ARGUMENT for a value that the
 * option can never have; leasehold_election_check() has the reason. Then standing fails too, until the
 * option is set well. A term that has begun stays as it is. Any thread.
 */
leasehold_status leasehold_election_set_ttl_ms(leasehold_election *election,
                                               int64_t ttl_ms);

/**
 * Sets how long the work needs to stop: 10000 ms by default. If the lease cannot be renewed, the work
 * is told to stop when that much validity is left and half a second more, or a third of the ttl if
 * that is less. Any thread.
 */
leasehold_status leasehold_election_set_grace_ms(leasehold_election *election,
                                                 int64_t grace_ms);

/**
 * Sets whether leasehold_election_run_as_leader() stands again when the work has returned by itself.
 * By default it does not. Any thread.
 */
leasehold_status leasehold_election_set_stand_again(leasehold_election *election,
                                                    bool again);

/**
 * Has `function` called when this candidate is elected, on the thread that stands, and when its
 * leadership ends, on whichever thread notices. Why a lease was lost may be known up to a second
 * later than that it was: the call comes then. It may resign, stop or free the election. A new
 * function takes the place of the former one for terms that begin later; so does NULL.
 *
 * `drop` may be NULL. Else it is called once, when neither the election nor a term needs the
 * function any more, or if it was not set. A forked child never calls either.
 *
 * Returns as leasehold_election_set_ttl_ms(). Any thread.
 */
leasehold_status leasehold_election_on_change(leasehold_election *election,
                                              leasehold_election_change_fn function,
                                              void *user_data,
                                              leasehold_election_drop_fn drop);

/**
 * What a setter of this election has refused, with the reason, while the option is not set well;
 * LEASEHOLD_OK when nothing is. Any thread.
 */
leasehold_status leasehold_election_check(const leasehold_election *election,
                                          leasehold_error **error);

/**
 * The name, and its length in `*length` unless that is NULL. A zero byte follows it, and it may hold
 * others. Borrowed. Any thread.
 */
const char *leasehold_election_name(const leasehold_election *election,
                                    size_t *length);

/**
 * Stands by, calls `work` on this thread when elected, and stands again when the leadership was lost.
 * It waits through outages of the store, also where the store cannot be reached at the start. After
 * each term it rests for about a second, so that other candidates are elected first.
 *
 * `interrupt` may be NULL. It is asked while the candidate stands, not while the work runs. Both
 * functions get `user_data`.
 *
 * - If the work returns 0 after its term has ended, the lock is released and the candidate stands
 *   again.
 * - If the work returns 0 while it leads, the lock is released and the call returns. With
 *   leasehold_election_set_stand_again() the candidate stands again instead.
 * - If the work returns another number, the lock is released and the call returns.
 * - If the work does not stop when its term has ended, the lock stays held and is renewed if that is
 *   possible. Else another candidate is elected when validity ends, with a larger fence.
 *
 * Returns:
 * - LEASEHOLD_OK and writes what the work returned into `*returned`: 0 also where the election was
 *   stopped or freed.
 * - LEASEHOLD_INTERRUPTED when the interrupt function ended the standing.
 * - LEASEHOLD_LOST when the work returned 0 while it seemed to lead, and the store says that the lock
 *   was lost before.
 * - LEASEHOLD_ERR_WOULD_DEADLOCK when this thread leads already.
 * - LEASEHOLD_ERR_CLOSED when the client is closed, and others that waiting does not mend, such as
 *   LEASEHOLD_ERR_AUTH. LEASEHOLD_ERR_BAD_ARGUMENT for options that were refused, and without work.
 *
 * Any thread.
 */
leasehold_status leasehold_election_run_as_leader(leasehold_election *election,
                                                  leasehold_election_work_fn work,
                                                  leasehold_interrupt_fn interrupt,
                                                  void *user_data,
                                                  int *returned,
                                                  leasehold_error **error);

/**
 * Waits until this candidate is elected, `wait_ms` at most; LEASEHOLD_FOREVER has no limit. For work
 * that has a thread of its own; leasehold_election_run_as_leader() does the rest for others. It waits
 * and rests as that does. `interrupt` may be NULL, and gets `user_data`.
 *
 * Returns:
 * - LEASEHOLD_OK and writes `*term`, to be freed with leasehold_term_free().
 * - LEASEHOLD_TIMEOUT when it was not elected in time. If the store failed until the end, the error of
 *   the store instead.
 * - LEASEHOLD_INTERRUPTED when the function ended the wait, or the election was stopped.
 * - LEASEHOLD_ERR_CLOSED also when the election was freed during the wait.
 * - Others as leasehold_election_run_as_leader().
 *
 * Any thread.
 */
leasehold_status leasehold_election_stand_within(leasehold_election *election,
                                                 int64_t wait_ms,
                                                 leasehold_interrupt_fn interrupt,
                                                 void *user_data,
                                                 leasehold_term **term,
                                                 leasehold_error **error);

/**
 * Reads who leads now, as leasehold_lock_inspect() reads who holds a lock: `*state` has the fence, the
 * host and the process. Any thread. Errors: what kept the store from answering, by io_timeout.
 */
leasehold_status leasehold_election_leader(leasehold_election *election,
                                           leasehold_lock_state **state,
                                           leasehold_error **error);

/**
 * What this candidate does at this moment: one of LEASEHOLD_ELECTION_... Sends no request. Any thread.
 */
int32_t leasehold_election_state(const leasehold_election *election);

/**
 * The fence of the term in which this candidate leads; 0 while it does not. Sends no request. Any
 * thread.
 */
uint64_t leasehold_election_fence(const leasehold_election *election);

/**
 * Whether all is well, for an answer to /healthz: false while the work still runs after its lease has
 * ended, and nothing but the end of the process stops it. A standby is healthy. Sends no request. Any
 * thread.
 */
bool leasehold_election_is_healthy(const leasehold_election *election);

/**
 * Tells the work to stop, if this candidate leads; the lock is released when the work has stopped.
 * Other candidates are elected first: this one rests for about a second before it stands again. Any
 * thread.
 */
leasehold_status leasehold_election_resign(leasehold_election *election, leasehold_error **error);

/**
 * Ends the election for this candidate, for good. It resigns, and threads that stand return within
 * 100 ms, or when a silent store's io_timeout is over. leasehold_election_run_as_leader() returns
 * LEASEHOLD_OK when the work has stopped, and leasehold_election_stand_within()
 * LEASEHOLD_INTERRUPTED. Any thread.
 */
leasehold_status leasehold_election_stop(leasehold_election *election, leasehold_error **error);

/**
 * Frees a candidate, and stops it as leasehold_election_stop() does. A term from
 * leasehold_election_stand_within() keeps its handle and its lock until it is freed, but has ended.
 * Any thread.
 */
void leasehold_election_free(leasehold_election *election);

/**
 * The fencing token (fence) of this term: larger than that of every earlier leader. Send it with each
 * write, and let the resource reject a smaller one. Any thread.
 */
uint64_t leasehold_term_fence(const leasehold_term *term);

/** Whether the work may go on. Sends no request. Any thread. */
bool leasehold_term_is_leader(const leasehold_term *term);

/**
 * Sleeps for `wait_ms`, and returns whether the work may go on then. If the term ends, it returns
 * false at once. So work that does something at intervals stops when it has to. Any thread.
 */
bool leasehold_term_leads_after_ms(const leasehold_term *term, int64_t wait_ms);

/**
 * For how many milliseconds no other candidate can be elected, by this lease; 0 once it is over. Sends
 * no request. Any thread.
 */
int64_t leasehold_term_remaining_ms(const leasehold_term *term);

/**
 * Why the term has ended: one of LEASEHOLD_TERM_... More may come. A term that was freed is
 * LEASEHOLD_TERM_LOST, and so is the parent's in a forked child. Sends no request. Any thread.
 */
int32_t leasehold_term_end_reason(const leasehold_term *term);

/**
 * How the lease was lost: one of LEASEHOLD_LOSS_..., LEASEHOLD_LOSS_NONE while
 * leasehold_term_end_reason() is not LEASEHOLD_TERM_LOST. Any thread.
 */
int32_t leasehold_term_loss(const leasehold_term *term);

/**
 * Ends the term: releases the lock, and waits until the store confirms it. Another candidate is
 * elected then, so call it when the work has stopped. Doing it twice does no harm.
 *
 * Returns LEASEHOLD_OK; LEASEHOLD_LOST if another candidate may have led before; others as
 * leasehold_lease_release(). Any thread.
 */
leasehold_status leasehold_term_resign(leasehold_term *term, leasehold_error **error);

/**
 * Frees a term from leasehold_election_stand_within(), and resigns it if nothing has, as
 * leasehold_lease_free() releases a lock. A thread that sleeps in leasehold_term_leads_after_ms()
 * returns. Any thread.
 */
void leasehold_term_free(leasehold_term *term);

/* ---- Events ---------------------------------------------------------------------------------- */

/** No event: what leasehold_event_kind() says of a wrong handle. */
#define LEASEHOLD_EVENT_NONE 0
/**
 * Less than a third of the ttl is left, because renewals have failed or max_hold is near. Finish
 * now.
 */
#define LEASEHOLD_EVENT_AT_RISK 1
/**
 * The lease is over; it says so itself from now on. Told up to 100 ms before its validity would
 * have ended, unless this process itself did not run.
 */
#define LEASEHOLD_EVENT_LOST 2
/** A lease that was freed without a release was gone already, or the store did not say. */
#define LEASEHOLD_EVENT_RELEASED_LATE 3
/** No reason: the event is not LEASEHOLD_EVENT_LOST. */
#define LEASEHOLD_LOSS_NONE 0
/**
 * The store says that the lock is not yours: it was deleted or flushed, or another holder has it
 * now.
 */
#define LEASEHOLD_LOSS_NOT_HELD 1
/** Its ttl ran out: the store could not be reached, or renewal was off. */
#define LEASEHOLD_LOSS_EXPIRED 2
/** max_hold was reached. */
#define LEASEHOLD_LOSS_MAX_HOLD 3
/** The client's background thread has failed. The client is closed. */
#define LEASEHOLD_LOSS_NOT_RENEWED 4
/**
 * An operator broke the lock, as leasehold_lock_break() does: leasehold_event_detail() says who.
 */
#define LEASEHOLD_LOSS_BROKEN 5

/** What happened: one of LEASEHOLD_EVENT_... More may come. Any thread. */
int32_t leasehold_event_kind(const leasehold_event *event);

/** Why a lease was lost: one of LEASEHOLD_LOSS_... More may come. Any thread. */
int32_t leasehold_event_reason(const leasehold_event *event);

/**
 * The name of the lock, without the prefix of the URL, and its length in `*length` unless that is
 * NULL. A zero byte follows it, and it may hold others. Borrowed. Any thread.
 */
const char *leasehold_event_name(const leasehold_event *event, size_t *length);

/**
 * What is known besides, in words for people: who broke the lock, and when. Else empty. Borrowed. Any
 * thread.
 */
const char *leasehold_event_detail(const leasehold_event *event);

/** The fence of the lease: with the name, it says which lease it was. Any thread. */
uint64_t leasehold_event_fence(const leasehold_event *event);

/**
 * The number of the lease: leasehold_lease_watch() gives it. 0 for LEASEHOLD_EVENT_RELEASED_LATE,
 * and for a wrong handle. Any thread.
 */
uint64_t leasehold_event_lease_id(const leasehold_event *event);

/** Frees an event and its strings. Any thread. */
void leasehold_event_free(leasehold_event *event);

/**
 * A descriptor that is readable while events wait in the subscription, and when the client is
 * closed: for poll(2) and the like. Only poll it; do not read from it or close it. It is valid
 * until the subscription is freed. -1 for a wrong handle, and in a forked child. Any thread.
 */
int leasehold_events_descriptor(const leasehold_events *events);

/**
 * The next event, waiting for it `wait_ms` at most: 0 does not wait, LEASEHOLD_FOREVER has no
 * limit.
 *
 * Returns LEASEHOLD_OK and writes `*event`, to be freed with leasehold_event_free(); or
 * LEASEHOLD_TIMEOUT when there was none; or LEASEHOLD_ERR_CLOSED when the client is closed and
 * nothing is left to read, or the subscription was freed meanwhile. Any thread; threads that wait
 * at once share the events.
 */
leasehold_status leasehold_events_next_within(leasehold_events *events,
                                              int64_t wait_ms,
                                              leasehold_event **event,
                                              leasehold_error **error);

/**
 * How many LEASEHOLD_EVENT_AT_RISK this subscription has dropped, because the program did not read
 * them in time. Any thread.
 */
uint64_t leasehold_events_dropped(const leasehold_events *events);

/**
 * Ends a subscription and frees it; its descriptor is closed. A thread that waits in
 * leasehold_events_next_within() returns LEASEHOLD_ERR_CLOSED within 200 ms. Events that were read before
 * stay. Any thread.
 */
void leasehold_events_free(leasehold_events *events);

/* ---- The log --------------------------------------------------------------------------------- */

/** How important a record of the log is: one of LEASEHOLD_LOG_... */
typedef int32_t leasehold_log_level;

/**
 * Gets a record of the log: UTF-8 without a line end, valid during the call, never with a
 * password. It is called on any thread, the library's own included, and on several at once. It may
 * call this library; what the library logs meanwhile on the same thread is dropped. It must
 * return, not longjmp() or throw; a child that is forked within it must not return, but exec or
 * exit.
 */
typedef void (*leasehold_log_fn)(void *user_data, leasehold_log_level level, const char *message);

/** The most bytes of a record in the socket of leasehold_log_socket(); the message is cut there. */
#define LEASEHOLD_LOG_RECORD 4096
/** No records at all. */
#define LEASEHOLD_LOG_OFF 0
/** A defect, or a server that makes no sense. */
#define LEASEHOLD_LOG_ERROR 1
/** A lease that was lost or is at risk, renewals that fail. */
#define LEASEHOLD_LOG_WARN 2
/** Milestones. */
#define LEASEHOLD_LOG_INFO 3
/** What helps to find a fault. */
#define LEASEHOLD_LOG_DEBUG 4
/** Everything. */
#define LEASEHOLD_LOG_TRACE 5

/**
 * Sends the library's log to `function`, from `level` on (LEASEHOLD_LOG_WARN suits most programs).
 * NULL, or LEASEHOLD_LOG_OFF, ends that. There is one for the process; without it, nothing is
 * written anywhere.
 *
 * When this returns, no other thread is in the former function any more, so that what its
 * `user_data` leads to can be freed. Within the function itself, it can only be ended, and that
 * does not wait for others. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a level that there
 * is not.
 */
leasehold_status leasehold_log_set(leasehold_log_fn function,
                                   void *user_data,
                                   leasehold_log_level level,
                                   leasehold_error **error);

/**
 * Sends the library's log, from `level` on, to a socket in place of a function: for languages whose
 * code cannot be called on any thread at any time. `*descriptor` is the end to read from, and the
 * caller's to close. Each read(2) of it brings one record: a digit that is its level, and the
 * message, with no zero byte behind it; of LEASEHOLD_LOG_RECORD bytes at most. It does not block:
 * poll(2) tells when a record waits. Records that nobody reads are dropped when it is full.
 *
 * It ends as a function does, by leasehold_log_set() or another call of this; then it can be read to
 * its end. A forked child writes nothing into what it inherited, and can have one of its own. Any
 * thread. Errors: as leasehold_log_set(), for LEASEHOLD_LOG_OFF too; LEASEHOLD_ERR_EXHAUSTED when no
 * descriptors are left.
 */
leasehold_status leasehold_log_socket(leasehold_log_level level,
                                      int *descriptor,
                                      leasehold_error **error);

/* ---- A store for tests ----------------------------------------------------------------------- */

/**
 * Makes a store for a test. NULL, with the length 0, makes one that no other test has. A name, of
 * `name_length` bytes or LEASEHOLD_NUL, makes or finds the store of this name in this process: for a
 * program whose URL stands in a file, such as "memory:orders". Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for a name that is no UTF-8, LEASEHOLD_ERR_STORAGE in a process that was
 * forked from one that has used a store in memory.
 */
leasehold_status leasehold_testing_memory_open(const char *name,
                                               size_t name_length,
                                               leasehold_testing_memory **memory,
                                               leasehold_error **error);

/**
 * What a program opens, in this process, with leasehold_client_open(). Options may follow, such as
 * "?io_timeout=50ms". Borrowed. Any thread.
 */
const char *leasehold_testing_memory_url(const leasehold_testing_memory *memory);

/**
 * Ends the lease of the holder, as if its ttl had run out. The lock is free, or the first waiter's.
 *
 * When this returns, the holder has been told: its lease is invalid, and its event says
 * LEASEHOLD_LOSS_NOT_HELD. A lease that is not renewed learns it when it is extended or released, as
 * on a server; while the store is paused, a holder learns it at its next renewal. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT if no client holds the lock.
 */
leasehold_status leasehold_testing_memory_lose(leasehold_testing_memory *memory,
                                               const char *name,
                                               size_t name_length,
                                               leasehold_error **error);

/**
 * Holds the lock as another client would, until `busy` is freed. Then the store hands it to the first
 * waiter. Neither real time nor leasehold_testing_memory_advance_ms() ends it. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT if a client holds the lock.
 */
leasehold_status leasehold_testing_memory_busy(leasehold_testing_memory *memory,
                                               const char *name,
                                               size_t name_length,
                                               leasehold_testing_effect **busy,
                                               leasehold_error **error);

/**
 * Fails the next request of a call with this status, as a store would that did not carry it out. With
 * LEASEHOLD_UNKNOWN the store carries it out, and its reply is lost. Renewals and all else that a
 * client does in the background do not count. Called several times, it fails as many requests, in that
 * order.
 *
 * A call tries again after an error for which leasehold_status_is_retriable() is true, so one failed
 * request only delays it. To have the call itself fail, use leasehold_testing_memory_failing().
 * leasehold_lock_try_acquire() alone returns LEASEHOLD_ERR_REFUSED and LEASEHOLD_ERR_NOT_REPLICATED
 * at once. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a status that no store gives.
 */
leasehold_status leasehold_testing_memory_fail_next(leasehold_testing_memory *memory,
                                                    leasehold_status status,
                                                    leasehold_error **error);

/**
 * Fails every request of a call with this status until `failing` is freed, as
 * leasehold_testing_memory_fail_next() fails one. A call that tries again fails in the end, after
 * io_timeout or its wait. Of several, the last one counts. Any thread. Errors: as there.
 */
leasehold_status leasehold_testing_memory_failing(leasehold_testing_memory *memory,
                                                  leasehold_status status,
                                                  leasehold_testing_effect **failing,
                                                  leasehold_error **error);

/**
 * The store answers nothing, neither calls nor renewals, until leasehold_testing_memory_resume(). A
 * request that is waiting then is answered. One that has given up was not carried out. Leases expire
 * meanwhile. Any thread.
 */
leasehold_status leasehold_testing_memory_pause(leasehold_testing_memory *memory,
                                                leasehold_error **error);

/** The store answers again after leasehold_testing_memory_pause(). Any thread. */
leasehold_status leasehold_testing_memory_resume(leasehold_testing_memory *memory,
                                                 leasehold_error **error);

/**
 * Moves the clock of the store forward. Leases expire there as if so much time had passed without a
 * request, a lock that this frees is handed to its first waiter, and the holders of ended leases have
 * been told when this returns. The clock of the client stays: leasehold_lease_remaining_ms(), the next
 * renewal and the end of a wait count real time. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a
 * negative time.
 */
leasehold_status leasehold_testing_memory_advance_ms(leasehold_testing_memory *memory,
                                                     int64_t by_ms,
                                                     leasehold_error **error);

/**
 * Takes down the names of the locks that are held, also by leasehold_testing_memory_busy(). Any
 * thread.
 */
leasehold_status leasehold_testing_memory_held(leasehold_testing_memory *memory,
                                               leasehold_testing_names **names,
                                               leasehold_error **error);

/** How many locks were held, which is how many names there are. Any thread. */
size_t leasehold_testing_names_count(const leasehold_testing_names *names);

/**
 * The name at a place, from 0 on, in the order of their bytes, and its length, unless `length` is NULL;
 * empty where there is none. Borrowed. Any thread.
 */
const char *leasehold_testing_names_get(const leasehold_testing_names *names,
                                        size_t place,
                                        size_t *length);

/** Frees names, and the strings that came from them. Any thread. */
void leasehold_testing_names_free(leasehold_testing_names *names);

/** Ends an effect, and frees it: the lock is released, or requests succeed again. Any thread. */
void leasehold_testing_effect_free(leasehold_testing_effect *effect);

/**
 * Frees the controls and resumes the store. Effects stay until they are freed, and what is locked
 * stays locked. Any thread.
 */
void leasehold_testing_memory_free(leasehold_testing_memory *memory);

/* ---- Durations, versions, handles ------------------------------------------------------------ */

/**
 * The version of the binary interface that this header describes. Within one, functions and
 * constants may be added, and nothing changes. The shared library has it in its name:
 * libleasehold.so.0.
 */
#define LEASEHOLD_ABI_VERSION 0

/**
 * Reads a duration as people write it, of `text_length` bytes or LEASEHOLD_NUL: "250ms", "10s",
 * "1.5s", "5m", "1h30m" or "1d". A bare "0" is a duration too; any other number needs its unit.
 * Writes `*ms` on success, in milliseconds, rounded up. Any thread. Errors:
 * LEASEHOLD_ERR_BAD_ARGUMENT for anything else.
 */
leasehold_status leasehold_duration_parse(const char *text,
                                          size_t text_length,
                                          int64_t *ms,
                                          leasehold_error **error);

/** The version of the library that runs, as "0.1.0". Any thread. */
const char *leasehold_version(void);

/**
 * The LEASEHOLD_ABI_VERSION of the library that runs. A program that loads the library itself
 * compares it with the header's. Any thread.
 */
uint32_t leasehold_abi_version(void);

/**
 * How many handles of all types are open in this process: what has been made and not freed, by a
 * forked child itself. Any thread.
 */
size_t leasehold_handle_count(void);

#ifdef __cplusplus
}
#endif

#endif
