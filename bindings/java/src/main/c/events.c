/*
 * Subscriptions and their events.
 */
#include <string.h>

#include "shim.h"

/* The name of the lock, or NULL without an exception when no event came in time; fills `figures`
 * with kind, reason, fence and the number of the lease, and `detail` with one text. */
static jbyteArray next_event(JNIEnv *env, jclass native, jlong events, jlong wait_ms,
                             jlongArray figures, jobjectArray detail)
{
    leasehold_event *event;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_events_next_within(HANDLE(leasehold_events, events), wait_ms, &event, &error);

    if (status == LEASEHOLD_TIMEOUT)
        return NULL;
    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return NULL;
    }
    size_t length;
    const char *start = leasehold_event_name(event, &length);
    const jlong said[] = {leasehold_event_kind(event), leasehold_event_reason(event),
                          (jlong)leasehold_event_fence(event),
                          (jlong)leasehold_event_lease_id(event)};
    const char *known = leasehold_event_detail(event);
    jbyteArray name = bytes_to_java(env, start, length);
    jbyteArray text = name == NULL ? NULL : bytes_to_java(env, known, strlen(known));

    if (text == NULL) {
        leasehold_event_free(event);
        return NULL;
    }
    (*env)->SetLongArrayRegion(env, figures, 0, sizeof said / sizeof *said, said);
    (*env)->SetObjectArrayElement(env, detail, 0, text);
    leasehold_event_free(event);
    return name;
}

static jlong dropped(JNIEnv *env, jclass native, jlong events)
{
    return (jlong)leasehold_events_dropped(HANDLE(leasehold_events, events));
}

static void free_events(JNIEnv *env, jclass native, jlong events)
{
    leasehold_events_free(HANDLE(leasehold_events, events));
}

static const JNINativeMethod methods[] = {
    {"nextEvent", "(JJ[J[[B)[B", next_event},
    {"dropped", "(J)J", dropped},
    {"freeEvents", "(J)V", free_events},
};
const struct methods event_methods = METHODS(methods);
