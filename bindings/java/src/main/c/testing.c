/*
 * A store for tests, and what a test does to it.
 */
#include <string.h>

#include "shim.h"

/* Without a name, one that no other test has. */
static jlong open_memory(JNIEnv *env, jclass native, jbyteArray name)
{
    leasehold_testing_memory *memory = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (name == NULL) {
        status = leasehold_testing_memory_open(NULL, 0, &memory, &error);
    } else {
        if (!bytes_read(env, native, name, &bytes))
            return 0;
        status = leasehold_testing_memory_open(bytes.start, bytes.length, &memory, &error);
        bytes_free(&bytes);
    }
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return NUMBER(memory);
}

static jbyteArray url(JNIEnv *env, jclass native, jlong memory)
{
    const char *text = leasehold_testing_memory_url(HANDLE(leasehold_testing_memory, memory));

    return bytes_to_java(env, text, strlen(text));
}

static void lose(JNIEnv *env, jclass native, jlong memory, jbyteArray name)
{
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, name, &bytes))
        return;
    status = leasehold_testing_memory_lose(HANDLE(leasehold_testing_memory, memory), bytes.start,
                                           bytes.length, &error);
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static jlong busy(JNIEnv *env, jclass native, jlong memory, jbyteArray name)
{
    leasehold_testing_effect *effect = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, name, &bytes))
        return 0;
    status = leasehold_testing_memory_busy(HANDLE(leasehold_testing_memory, memory), bytes.start,
                                           bytes.length, &effect, &error);
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return NUMBER(effect);
}

static void fail_next(JNIEnv *env, jclass native, jlong memory, jint failure)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_testing_memory_fail_next(
        HANDLE(leasehold_testing_memory, memory), failure, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static jlong failing(JNIEnv *env, jclass native, jlong memory, jint failure)
{
    leasehold_testing_effect *effect = NULL;
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_testing_memory_failing(
        HANDLE(leasehold_testing_memory, memory), failure, &effect, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return NUMBER(effect);
}

static void set_paused(JNIEnv *env, jclass native, jlong handle, jboolean paused)
{
    leasehold_testing_memory *memory = HANDLE(leasehold_testing_memory, handle);
    leasehold_error *error = NULL;
    leasehold_status status = paused ? leasehold_testing_memory_pause(memory, &error)
                                     : leasehold_testing_memory_resume(memory, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void advance(JNIEnv *env, jclass native, jlong memory, jlong by_ms)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_testing_memory_advance_ms(
        HANDLE(leasehold_testing_memory, memory), by_ms, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

/* NULL with an exception pending. */
static jobjectArray to_java(JNIEnv *env, leasehold_testing_names *names)
{
    jsize count = (jsize)leasehold_testing_names_count(names);
    jclass bytes = (*env)->FindClass(env, "[B");
    jobjectArray all = bytes == NULL ? NULL : (*env)->NewObjectArray(env, count, bytes, NULL);

    for (jsize i = 0; all != NULL && i < count; i++) {
        size_t length;
        const char *start = leasehold_testing_names_get(names, (size_t)i, &length);
        jbyteArray name = bytes_to_java(env, start, length);

        if (name == NULL)
            return NULL;
        (*env)->SetObjectArrayElement(env, all, i, name);
        (*env)->DeleteLocalRef(env, name);
    }
    return all;
}

static jobjectArray held(JNIEnv *env, jclass native, jlong memory)
{
    leasehold_testing_names *names = NULL;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_testing_memory_held(HANDLE(leasehold_testing_memory, memory), &names, &error);
    jobjectArray all;

    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return NULL;
    }
    all = to_java(env, names);
    leasehold_testing_names_free(names);
    return all;
}

static void free_memory(JNIEnv *env, jclass native, jlong memory)
{
    leasehold_testing_memory_free(HANDLE(leasehold_testing_memory, memory));
}

static void free_effect(JNIEnv *env, jclass native, jlong effect)
{
    leasehold_testing_effect_free(HANDLE(leasehold_testing_effect, effect));
}

static const JNINativeMethod methods[] = {
    {"openMemory", "([B)J", open_memory}, {"memoryUrl", "(J)[B", url},
    {"loseHeld", "(J[B)V", lose},         {"makeBusy", "(J[B)J", busy},
    {"failNext", "(JI)V", fail_next},     {"failing", "(JI)J", failing},
    {"pauseMemory", "(JZ)V", set_paused}, {"advanceMemory", "(JJ)V", advance},
    {"heldNames", "(J)[[B", held},        {"freeMemory", "(J)V", free_memory},
    {"freeEffect", "(J)V", free_effect},
};
const struct methods testing_methods = METHODS(methods);
