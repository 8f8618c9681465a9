/*
 * The Java half of Leasehold meets the C half here: native methods of dev.leasehold.Native over
 * leasehold.h, and nothing else of the library.
 *
 * Handles cross as numbers. A method that does not succeed leaves an exception pending, made by
 * Native.raise() in Java, and returns 0, which is no handle. Class and method are looked up once,
 * when the library is loaded. No global references are kept but weak ones: another to a class of ours
 * would keep its class loader, and so this library, for ever. So each native method hands its class
 * on.
 */
#ifndef LEASEHOLD_SHIM_H
#define LEASEHOLD_SHIM_H

#include <jni.h>
#include <leasehold.h>

#define HANDLE(type, number) ((type *)(intptr_t)(number))
#define NUMBER(handle) ((jlong)(intptr_t)(handle))

/* Once, when the library is loaded. False with an exception pending. */
bool shim_begin(JNIEnv *env, jclass native);

/* Bytes of a Java array, with a zero byte after them. Short ones need no memory of their own. */
struct bytes {
    char *start;
    size_t length;
    char brief[256];
};

/* False with an exception pending. `array` must not be NULL. */
bool bytes_read(JNIEnv *env, jclass native, jbyteArray array, struct bytes *bytes);
void bytes_free(struct bytes *bytes);

/* NULL with an exception pending. */
jbyteArray bytes_to_java(JNIEnv *env, const char *start, size_t length);

/* Leaves the exception for a status that is not LEASEHOLD_OK, unless one is pending already, and
 * frees the error, which may be NULL. */
void raise_status(JNIEnv *env, jclass native, leasehold_status status, leasehold_error *error);

/* The same for what a setter of the configuration has returned, which has no room for the reason. */
void raise_config(JNIEnv *env, jclass native, leasehold_config *config, leasehold_status status);

/* Whether the calling Java thread was interrupted; also true when asking left an exception. */
bool thread_interrupted(JNIEnv *env, jclass native);

/* Closes, without asking any store, the clients that Java has left open. */
void clients_abandon(void);

/* Has the library's log read and handed to Native.log(), from the first client on, until the library
 * is unloaded. Both hold no mutex of the JVM's. */
void log_begin(JNIEnv *env, jclass native);
void log_end(void);

/* What Java calls: one table for each file. */
struct methods {
    const JNINativeMethod *list;
    jint count;
};
#define METHODS(table) {table, sizeof table / sizeof *table}

extern const struct methods client_methods, credentials_methods, lock_methods, wait_methods,
    lease_methods, election_methods, event_methods, testing_methods;

#endif
