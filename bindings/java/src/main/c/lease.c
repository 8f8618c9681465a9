/*
 * Leases. Those that end one also free its handle, so that ending takes one crossing.
 */
#include <string.h>

#include "shim.h"

static jlong fence(JNIEnv *env, jclass native, jlong lease)
{
    return (jlong)leasehold_lease_fence(HANDLE(leasehold_lease, lease));
}

static jbyteArray token(JNIEnv *env, jclass native, jlong lease)
{
    const char *text = leasehold_lease_token(HANDLE(leasehold_lease, lease));

    return bytes_to_java(env, text, strlen(text));
}

static jlong remaining(JNIEnv *env, jclass native, jlong lease)
{
    return leasehold_lease_remaining_ms(HANDLE(leasehold_lease, lease));
}

static jboolean is_valid(JNIEnv *env, jclass native, jlong lease)
{
    return leasehold_lease_is_valid(HANDLE(leasehold_lease, lease));
}

/* By the lock's ttl, if `ttl_ms` is negative. */
static void extend(JNIEnv *env, jclass native, jlong lease, jlong ttl_ms)
{
    leasehold_lease *extending = HANDLE(leasehold_lease, lease);
    leasehold_error *error = NULL;
    leasehold_status status = ttl_ms < 0 ? leasehold_lease_extend(extending, &error)
                                         : leasehold_lease_extend_for_ms(extending, ttl_ms, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static jlong watch(JNIEnv *env, jclass native, jlong lease, jlong events)
{
    uint64_t number = 0;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_watch(
        HANDLE(leasehold_lease, lease), HANDLE(leasehold_events, events), &number, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return (jlong)number;
}

static void release(JNIEnv *env, jclass native, jlong lease)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_end(HANDLE(leasehold_lease, lease), true, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

/* The same, but silent where a lease that could be relied on up to this call is not known to be lost. */
static void close_lease(JNIEnv *env, jclass native, jlong lease)
{
    bool reliable = leasehold_lease_is_valid(HANDLE(leasehold_lease, lease));
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_end(HANDLE(leasehold_lease, lease), true, &error);

    if (status == LEASEHOLD_LOST || (status != LEASEHOLD_OK && !reliable))
        raise_status(env, native, status, error);
    else
        leasehold_error_free(error);
}

static void let_expire(JNIEnv *env, jclass native, jlong lease)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_let_expire(HANDLE(leasehold_lease, lease), &error);

    leasehold_lease_free(HANDLE(leasehold_lease, lease));
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

/* With a time that no ttl can be, the lease goes on, and its handle too. */
static void let_expire_in(JNIEnv *env, jclass native, jlong lease, jlong after_ms)
{
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_lease_let_expire_in_ms(HANDLE(leasehold_lease, lease), after_ms, &error);

    if (status != LEASEHOLD_ERR_BAD_ARGUMENT)
        leasehold_lease_free(HANDLE(leasehold_lease, lease));
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void detach(JNIEnv *env, jclass native, jlong lease)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_detach(HANDLE(leasehold_lease, lease), &error);

    leasehold_lease_free(HANDLE(leasehold_lease, lease));
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

/* A lease that Java has forgotten: renewal ends, and nothing is released. */
static void abandon(JNIEnv *env, jclass native, jlong lease)
{
    leasehold_lease_abandon(HANDLE(leasehold_lease, lease));
}

static const JNINativeMethod methods[] = {
    {"fence", "(J)J", fence},          {"token", "(J)[B", token},
    {"remaining", "(J)J", remaining},  {"isValid", "(J)Z", is_valid},
    {"extend", "(JJ)V", extend},       {"watch", "(JJ)J", watch},
    {"release", "(J)V", release},      {"closeLease", "(J)V", close_lease},
    {"letExpire", "(J)V", let_expire}, {"letExpireIn", "(JJ)V", let_expire_in},
    {"detach", "(J)V", detach},        {"abandonLease", "(J)V", abandon},
};
const struct methods lease_methods = METHODS(methods);
