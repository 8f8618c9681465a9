/*
 * Locks: their options, and the ways to take them.
 */
#include <string.h>

#include "shim.h"

/* What a wait asks whether to go on. It lives on the stack of the waiting thread. */
struct waiter {
    JNIEnv *env;
    jclass native;
};

static int interrupted(void *user_data)
{
    struct waiter *waiter = user_data;

    return thread_interrupted(waiter->env, waiter->native);
}

/* The lease that came, or none with an exception pending. */
static jlong lease_of(JNIEnv *env, jclass native, leasehold_status status, leasehold_lease *lease,
                      leasehold_error *error)
{
    if (status == LEASEHOLD_OK)
        return NUMBER(lease);
    raise_status(env, native, status, error);
    return 0;
}

/* What a setter has refused. */
static void raise_refused(JNIEnv *env, jclass native, jlong lock)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lock_check(HANDLE(leasehold_lock, lock), &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void set_times(JNIEnv *env, jclass native, jlong lock, jlong ttl_ms, jlong wait_ms,
                      jlong io_timeout_ms, jlong max_hold_ms)
{
    leasehold_lock *setting = HANDLE(leasehold_lock, lock);

    if (ttl_ms >= 0)
        leasehold_lock_set_ttl_ms(setting, ttl_ms);
    if (wait_ms >= 0)
        leasehold_lock_set_wait_ms(setting, wait_ms);
    if (io_timeout_ms >= 0)
        leasehold_lock_set_io_timeout_ms(setting, io_timeout_ms);
    if (max_hold_ms >= 0)
        leasehold_lock_set_max_hold_ms(setting, max_hold_ms);
    raise_refused(env, native, lock);
}

static void set_attempts(JNIEnv *env, jclass native, jlong lock, jint most)
{
    leasehold_lock_set_attempts(HANDLE(leasehold_lock, lock), (uint32_t)most);
    raise_refused(env, native, lock);
}

static void set_renew(JNIEnv *env, jclass native, jlong lock, jboolean renew)
{
    leasehold_lock_set_renew(HANDLE(leasehold_lock, lock), renew);
}

static void set_wait_mode(JNIEnv *env, jclass native, jlong lock, jint mode)
{
    leasehold_lock_set_wait_mode(HANDLE(leasehold_lock, lock), mode);
}

static void set_backoff(JNIEnv *env, jclass native, jlong lock, jlong first_ms, jlong longest_ms)
{
    leasehold_lock_set_backoff_ms(HANDLE(leasehold_lock, lock), first_ms, longest_ms);
    raise_refused(env, native, lock);
}

/* 0 without an exception when somebody else has it. */
static jlong try_acquire(JNIEnv *env, jclass native, jlong lock)
{
    leasehold_lease *lease = NULL;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_lock_try_acquire(HANDLE(leasehold_lock, lock), &lease, &error);

    if (status == LEASEHOLD_BUSY)
        return 0;
    return lease_of(env, native, status, lease, error);
}

/* Waits for as long as the lock says, if `wait_ms` is negative. */
static jlong acquire(JNIEnv *env, jclass native, jlong lock, jlong wait_ms, jboolean interruptible)
{
    struct waiter waiter = {env, native};
    leasehold_interrupt_fn ask = interruptible ? interrupted : NULL;
    leasehold_lock *waited_for = HANDLE(leasehold_lock, lock);
    leasehold_lease *lease = NULL;
    leasehold_error *error = NULL;
    leasehold_status status =
        wait_ms < 0
            ? leasehold_lock_acquire_unless(waited_for, ask, &waiter, &lease, &error)
            : leasehold_lock_acquire_within(waited_for, wait_ms, ask, &waiter, &lease, &error);

    return lease_of(env, native, status, lease, error);
}

static jlong attach(JNIEnv *env, jclass native, jlong lock, jbyteArray token, jlong fence)
{
    leasehold_lease *lease = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, token, &bytes))
        return 0;
    /* A negative fence becomes one that is too large, and is refused as such. */
    status = leasehold_lock_attach(HANDLE(leasehold_lock, lock), bytes.start, bytes.length,
                                   (uint64_t)fence, &lease, &error);
    bytes_free(&bytes);
    return lease_of(env, native, status, lease, error);
}

/* All facts of the holder, then those of each waiter, in the order of LEASEHOLD_FACT_...; fills
 * `figures` with whether it is held, the ttl, the fence, the last fence and how many more wait. */
static jobjectArray inspect(JNIEnv *env, jclass native, jlong lock, jlongArray figures)
{
    leasehold_lock_state *state;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lock_inspect(HANDLE(leasehold_lock, lock), &state, &error);

    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return NULL;
    }
    const jlong seen[] = {leasehold_lock_state_is_held(state), leasehold_lock_state_ttl_ms(state),
                          (jlong)leasehold_lock_state_fence(state),
                          (jlong)leasehold_lock_state_last_fence(state),
                          (jlong)leasehold_lock_state_more_waiters(state)};
    const jsize facts = LEASEHOLD_FACTS;
    const jsize count = ((jsize)leasehold_lock_state_waiters(state) + 1) * facts;
    jclass bytes = (*env)->FindClass(env, "[B");
    jobjectArray all = bytes != NULL ? (*env)->NewObjectArray(env, count, bytes, NULL) : NULL;

    for (jsize at = 0; all != NULL && at < count; at++) {
        const char *fact = leasehold_lock_state_fact(state, (size_t)(at / facts), at % facts);
        jbyteArray text = bytes_to_java(env, fact, strlen(fact));

        if (text == NULL) {
            all = NULL;
            break;
        }
        (*env)->SetObjectArrayElement(env, all, at, text);
        (*env)->DeleteLocalRef(env, text);
    }
    if (all != NULL)
        (*env)->SetLongArrayRegion(env, figures, 0, sizeof seen / sizeof *seen, seen);
    leasehold_lock_state_free(state);
    return all;
}

/* The fence of the lease that is over, -1 when nobody has the lock, or another lease. */
static jlong break_held(JNIEnv *env, jclass native, jlong lock, jlong if_fence, jbyteArray by)
{
    uint64_t fence = 0;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, by, &bytes))
        return 0;
    status = leasehold_lock_break(HANDLE(leasehold_lock, lock), (uint64_t)if_fence, bytes.start,
                                  bytes.length, &fence, &error);
    bytes_free(&bytes);
    if (status == LEASEHOLD_BUSY || status == LEASEHOLD_LOST) {
        leasehold_error_free(error);
        return -1;
    }
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return (jlong)fence;
}

static void free_lock(JNIEnv *env, jclass native, jlong lock)
{
    leasehold_lock_free(HANDLE(leasehold_lock, lock));
}

static const JNINativeMethod methods[] = {
    {"setTimes", "(JJJJJ)V", set_times},   {"setAttempts", "(JI)V", set_attempts},
    {"setRenew", "(JZ)V", set_renew},      {"setWaitMode", "(JI)V", set_wait_mode},
    {"setBackoff", "(JJJ)V", set_backoff}, {"tryAcquire", "(J)J", try_acquire},
    {"acquire", "(JJZ)J", acquire},        {"attach", "(J[BJ)J", attach},
    {"inspect", "(J[J)[[B", inspect},      {"breakHeld", "(JJ[B)J", break_held},
    {"freeLock", "(J)V", free_lock},
};
const struct methods lock_methods = METHODS(methods);
