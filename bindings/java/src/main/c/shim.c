/* What the native methods share: bytes and exceptions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static jmethodID raise_method, interrupted_method;

bool shim_begin(JNIEnv *env, jclass native)
{
    raise_method = (*env)->GetStaticMethodID(env, native, "raise", "(I[B)V");
    if (raise_method == NULL)
        return false;
    interrupted_method = (*env)->GetStaticMethodID(env, native, "interrupted", "()Z");
    return interrupted_method != NULL;
}

bool bytes_read(JNIEnv *env, jclass native, jbyteArray array, struct bytes *bytes)
{
    jsize length = (*env)->GetArrayLength(env, array);

    bytes->length = (size_t)length;
    bytes->start = bytes->length < sizeof bytes->brief ? bytes->brief : malloc(bytes->length + 1);
    if (bytes->start == NULL) {
        raise_status(env, native, LEASEHOLD_ERR_EXHAUSTED, NULL);
        return false;
    }
    (*env)->GetByteArrayRegion(env, array, 0, length, (jbyte *)bytes->start);
    bytes->start[bytes->length] = 0;
    return true;
}

void bytes_free(struct bytes *bytes)
{
    if (bytes->start != bytes->brief)
        free(bytes->start);
}

jbyteArray bytes_to_java(JNIEnv *env, const char *start, size_t length)
{
    jbyteArray array = (*env)->NewByteArray(env, (jsize)length);

    if (array != NULL)
        (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, (const jbyte *)start);
    return array;
}

/* Who had the lock when a wait of this thread ran out; NULL where that is not known. */
static char *timeout_message(void)
{
    const char *what = leasehold_status_message(LEASEHOLD_TIMEOUT);
    const char *advice = leasehold_status_advice(LEASEHOLD_TIMEOUT);
    const char *detail = leasehold_timeout_detail();
    const size_t length = strlen(what) + strlen(detail) + strlen(advice) + sizeof ": ; ";
    char *message = *detail != 0 ? malloc(length) : NULL;

    if (message != NULL)
        snprintf(message, length, "%s: %s; %s", what, detail, advice);
    return message;
}

void raise_status(JNIEnv *env, jclass native, leasehold_status status, leasehold_error *error)
{
    /* The function that interrupts a wait may have left one. */
    if (!(*env)->ExceptionCheck(env)) {
        char *timeout = error == NULL && status == LEASEHOLD_TIMEOUT ? timeout_message() : NULL;
        const char *message = timeout != NULL ? timeout
                              : error != NULL ? leasehold_error_message(error)
                                              : leasehold_status_message(status);
        jbyteArray text = bytes_to_java(env, message, strlen(message));

        free(timeout);

        if (text != NULL)
            (*env)->CallStaticVoidMethod(env, native, raise_method, (jint)status, text);
    }
    leasehold_error_free(error);
}

bool thread_interrupted(JNIEnv *env, jclass native)
{
    jboolean interrupted = (*env)->CallStaticBooleanMethod(env, native, interrupted_method);

    return (*env)->ExceptionCheck(env) || interrupted;
}
