/*
 * Leader election: candidates, and the terms in which they lead.
 */
#include "shim.h"

static jlong make_election(JNIEnv *env, jclass native, jlong client, jbyteArray name)
{
    leasehold_election *election = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, name, &bytes))
        return 0;
    status = leasehold_client_election(HANDLE(leasehold_client, client), bytes.start, bytes.length,
                                       &election, &error);
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(election);
}

static void set_election(JNIEnv *env, jclass native, jlong handle, jint option, jlong value)
{
    leasehold_election *election = HANDLE(leasehold_election, handle);
    leasehold_status status = LEASEHOLD_ERR_BAD_ARGUMENT;
    leasehold_error *error = NULL;

    switch (option) {
    case 0:
        status = leasehold_election_set_ttl_ms(election, value);
        break;
    case 1:
        status = leasehold_election_set_grace_ms(election, value);
        break;
    }
    if (status != LEASEHOLD_OK) {
        leasehold_status refused = leasehold_election_check(election, &error);

        raise_status(env, native, refused != LEASEHOLD_OK ? refused : status, error);
    }
}

struct candidate {
    JNIEnv *env;
    jclass native;
    bool is_interrupted;
};

static int interrupted(void *data)
{
    struct candidate *candidate = data;

    candidate->is_interrupted = thread_interrupted(candidate->env, candidate->native);
    return candidate->is_interrupted;
}

/* 0 without an exception when the election was stopped. */
static jlong stand(JNIEnv *env, jclass native, jlong election, jlong wait_ms)
{
    struct candidate candidate = {env, native, false};
    leasehold_term *term = NULL;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_election_stand_within(
        HANDLE(leasehold_election, election), wait_ms, interrupted, &candidate, &term, &error);

    if (status == LEASEHOLD_INTERRUPTED && !candidate.is_interrupted) {
        leasehold_error_free(error);
        return 0;
    }
    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(term);
}

static jint election_state(JNIEnv *env, jclass native, jlong election)
{
    return leasehold_election_state(HANDLE(leasehold_election, election));
}

static jlong election_fence(JNIEnv *env, jclass native, jlong election)
{
    return (jlong)leasehold_election_fence(HANDLE(leasehold_election, election));
}

static void resign_election(JNIEnv *env, jclass native, jlong election)
{
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_election_resign(HANDLE(leasehold_election, election), &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void stop_election(JNIEnv *env, jclass native, jlong election)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_election_stop(HANDLE(leasehold_election, election), &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void free_election(JNIEnv *env, jclass native, jlong election)
{
    leasehold_election_free(HANDLE(leasehold_election, election));
}

static jlong term_fence(JNIEnv *env, jclass native, jlong term)
{
    return (jlong)leasehold_term_fence(HANDLE(leasehold_term, term));
}

static jboolean term_leads_after(JNIEnv *env, jclass native, jlong term, jlong wait_ms)
{
    return leasehold_term_leads_after_ms(HANDLE(leasehold_term, term), wait_ms);
}

static jlong term_remaining(JNIEnv *env, jclass native, jlong term)
{
    return leasehold_term_remaining_ms(HANDLE(leasehold_term, term));
}

static jint term_end(JNIEnv *env, jclass native, jlong term)
{
    return leasehold_term_end_reason(HANDLE(leasehold_term, term));
}

static jint term_loss(JNIEnv *env, jclass native, jlong term)
{
    return leasehold_term_loss(HANDLE(leasehold_term, term));
}

static void resign_term(JNIEnv *env, jclass native, jlong term)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_term_resign(HANDLE(leasehold_term, term), &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void free_term(JNIEnv *env, jclass native, jlong term)
{
    leasehold_term_free(HANDLE(leasehold_term, term));
}

static const JNINativeMethod methods[] = {
    {"election", "(J[B)J", make_election},
    {"setElection", "(JIJ)V", set_election},
    {"stand", "(JJ)J", stand},
    {"electionState", "(J)I", election_state},
    {"electionFence", "(J)J", election_fence},
    {"resignElection", "(J)V", resign_election},
    {"stopElection", "(J)V", stop_election},
    {"freeElection", "(J)V", free_election},
    {"termFence", "(J)J", term_fence},
    {"termLeadsAfter", "(JJ)Z", term_leads_after},
    {"termRemaining", "(J)J", term_remaining},
    {"termEnd", "(J)I", term_end},
    {"termLoss", "(J)I", term_loss},
    {"resignTerm", "(J)V", resign_term},
    {"freeTerm", "(J)V", free_term},
};
const struct methods election_methods = METHODS(methods);
