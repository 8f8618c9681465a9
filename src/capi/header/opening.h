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
#define LEASEHOLD_VERSION "@VERSION@"

/** As the length of bytes, says that they end with a zero byte. */
#define LEASEHOLD_NUL SIZE_MAX

