/*
 * Waits that no thread stands in. Java numbers them from 1 on.
 */
#include "shim.h"

static jlong open_waits(JNIEnv *env, jclass native)
{
    leasehold_waits *waits;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_waits_open(&waits, &error);

    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(waits);
}

/* For as long as the lock says, if `wait_ms` is negative. */
static void start_wait(JNIEnv *env, jclass native, jlong waits, jlong lock, jlong wait_ms,
                       jlong number)
{
    leasehold_waits *set = HANDLE(leasehold_waits, waits);
    leasehold_lock *waited_for = HANDLE(leasehold_lock, lock);
    leasehold_error *error = NULL;
    leasehold_status status =
        wait_ms < 0
            ? leasehold_waits_start(set, waited_for, (uint64_t)number, &error)
            : leasehold_waits_start_within(set, waited_for, wait_ms, (uint64_t)number, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

/* The next one that has ended, for which this waits; 0 with an exception pending. */
static jlong next_wait(JNIEnv *env, jclass native, jlong waits)
{
    uint64_t number = 0;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_waits_next_within(HANDLE(leasehold_waits, waits),
                                                          LEASEHOLD_FOREVER, &number, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return (jlong)number;
}

/* The lease that came, or 0 with an exception pending. */
static jlong take_wait(JNIEnv *env, jclass native, jlong waits, jlong number)
{
    leasehold_turn turn = {NULL, 0};
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_waits_take(HANDLE(leasehold_waits, waits), (uint64_t)number, &turn, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return NUMBER(turn.lease);
}

static void stop_wait(JNIEnv *env, jclass native, jlong waits, jlong number)
{
    leasehold_waits_stop(HANDLE(leasehold_waits, waits), (uint64_t)number, NULL);
}

static void free_waits(JNIEnv *env, jclass native, jlong waits)
{
    leasehold_waits_free(HANDLE(leasehold_waits, waits));
}

static const JNINativeMethod methods[] = {
    {"openWaits", "()J", open_waits}, {"startWait", "(JJJJ)V", start_wait},
    {"nextWait", "(J)J", next_wait},  {"takeWait", "(JJ)J", take_wait},
    {"stopWait", "(JJ)V", stop_wait}, {"freeWaits", "(J)V", free_waits},
};
const struct methods wait_methods = METHODS(methods);
