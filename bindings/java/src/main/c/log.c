/*
 * The library's log, on its way to Java: a thread of ours reads it from a socket. The library's own
 * threads never call Java, where what a handler of the log waits for would keep them from renewing
 * leases.
 *
 * The thread is one of Java's only while it hands records on, and has no frame of Java's while it
 * waits. So it keeps neither the JVM from ending, nor a class loader from going.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim.h"

struct reader {
    JavaVM *vm;
    jweak native;
    jmethodID log;
    int descriptor;
};

static atomic_flag begun = ATOMIC_FLAG_INIT;

/* The class is there for as long as its class loader; without it, nobody is told. */
static void hand_on(const struct reader *reader, JNIEnv *env, const char *record, size_t length)
{
    jclass native = (*env)->NewLocalRef(env, reader->native);
    jbyteArray message = native == NULL ? NULL : bytes_to_java(env, record + 1, length - 1);

    if (message != NULL)
        (*env)->CallStaticVoidMethod(env, native, reader->log, (jint)(record[0] - '0'), message);
    /* A handler of the log has failed: nobody is there who could be told. */
    (*env)->ExceptionClear(env);
    (*env)->DeleteLocalRef(env, message);
    (*env)->DeleteLocalRef(env, native);
}

/* What there is; false where no more will come. */
static bool read_some(const struct reader *reader)
{
    char record[LEASEHOLD_LOG_RECORD];
    ssize_t length = read(reader->descriptor, record, sizeof record);
    JavaVMAttachArgs as = {JNI_VERSION_10, "leasehold-log", NULL};
    JNIEnv *env;

    if (length == 0 ||
        (length > 0 &&
         (*reader->vm)->AttachCurrentThreadAsDaemon(reader->vm, (void **)&env, &as) != JNI_OK))
        return false;
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    do {
        hand_on(reader, env, record, (size_t)length);
        length = read(reader->descriptor, record, sizeof record);
    } while (length > 0);
    (*reader->vm)->DetachCurrentThread(reader->vm);
    return length < 0;
}

static void *read_on(void *argument)
{
    struct reader *reader = argument;
    struct pollfd readable = {.fd = reader->descriptor, .events = POLLIN};

    while (read_some(reader)) poll(&readable, 1, -1);
    close(reader->descriptor);
    free(reader);
    return NULL;
}

void log_begin(JNIEnv *env, jclass native)
{
    struct reader *reader;
    pthread_attr_t detached;
    pthread_t thread;

    if (atomic_flag_test_and_set(&begun))
        return;
    reader = malloc(sizeof *reader);
    if (reader == NULL || (*env)->GetJavaVM(env, &reader->vm) != JNI_OK ||
        (reader->native = (*env)->NewWeakGlobalRef(env, native)) == NULL ||
        (reader->log = (*env)->GetStaticMethodID(env, native, "log", "(I[B)V")) == NULL ||
        leasehold_log_socket(LEASEHOLD_LOG_DEBUG, &reader->descriptor, NULL) != LEASEHOLD_OK) {
        /* Who has no memory or descriptor left has other worries. */
        (*env)->ExceptionClear(env);
        free(reader);
        return;
    }
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, read_on, reader) != 0) {
        log_end();
        close(reader->descriptor);
        free(reader);
    }
    pthread_attr_destroy(&detached);
}

void log_end(void)
{
    leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, NULL);
}
