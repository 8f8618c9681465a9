/*
 * Credentials that a Java program looks up: a thread of the library asks CredentialsSource.ask() for them.
 *
 * The thread is one of Java's only while it asks. The reference to the source is weak: the client keeps
 * the source, which may lead to the client in turn, and to the class loader of an application. A strong
 * one would keep a client that everybody has forgotten.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

/* What ask() returns, in this order, and then what it was asked for: each may be NULL. */
enum { USER, SECRET, FAILURE, RETURNED, HOST = RETURNED, AS, TEXTS };

struct source {
    JavaVM *vm;
    jweak java;
    jmethodID ask;
    /* The library reads them when the function has returned. */
    char *texts[TEXTS];
    uint16_t port;
};

static void free_texts(struct source *source)
{
    for (int i = 0; i < TEXTS; i++) {
        free(source->texts[i]);
        source->texts[i] = NULL;
    }
}

static bool copy_texts(struct source *source, JNIEnv *env, jobjectArray from)
{
    free_texts(source);
    for (int i = 0; i < RETURNED; i++) {
        jbyteArray text = (*env)->GetObjectArrayElement(env, from, i);
        jsize length;

        if (text == NULL)
            continue;
        length = (*env)->GetArrayLength(env, text);
        source->texts[i] = malloc((size_t)length + 1);
        if (source->texts[i] == NULL)
            return false;
        (*env)->GetByteArrayRegion(env, text, 0, length, (jbyte *)source->texts[i]);
        source->texts[i][length] = 0;
        (*env)->DeleteLocalRef(env, text);
    }
    return true;
}

/* False where memory is short. */
static bool copy_text(char **to, const char *from)
{
    const size_t size = from == NULL ? 0 : strlen(from) + 1;

    *to = from == NULL ? NULL : malloc(size);
    if (*to != NULL)
        memcpy(*to, from, size);
    return from == NULL || *to != NULL;
}

static bool is_same(const char *one, const char *other)
{
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

/* What CredentialsSource.ask() returned; NULL with an exception pending where memory is short. */
static jobjectArray call_java(const struct source *source, JNIEnv *env, jobject java,
                              const char *host, uint16_t port, const char *user, jlongArray figures)
{
    jbyteArray to = bytes_to_java(env, host, strlen(host));
    jbyteArray as = to == NULL || user == NULL ? NULL : bytes_to_java(env, user, strlen(user));

    if ((*env)->ExceptionCheck(env))
        return NULL;
    return (*env)->CallObjectMethod(env, java, source->ask, to, (jint)port, as, figures);
}

/* A client that was forgotten is about to be closed: nobody logs in any more, and no line of the log has
 * to say that there are no newer credentials. Each server has credentials of its own: none gets those of
 * another. NULL, or why there are none. */
static const char *repeat(const struct source *source, const char *host, uint16_t port,
                          const char *user, leasehold_credentials *answer)
{
    if (source->texts[SECRET] == NULL || source->port != port ||
        !is_same(source->texts[HOST], host) || !is_same(source->texts[AS], user))
        return "the client was forgotten";
    answer->user = source->texts[USER];
    answer->secret = source->texts[SECRET];
    answer->valid_until_ms = ((int64_t)time(NULL) + 60) * 1000;
    return NULL;
}

/* Fills the answer. NULL, or why that was not possible. */
static const char *ask_java(struct source *source, JNIEnv *env, const char *host, uint16_t port,
                            const char *user, leasehold_credentials *answer)
{
    jobject java = (*env)->NewLocalRef(env, source->java);
    jlongArray figures;
    jobjectArray texts = NULL;
    jlong said[2] = {0, 0};

    if (java == NULL)
        return repeat(source, host, port, user, answer);
    figures = (*env)->NewLongArray(env, sizeof said / sizeof *said);
    if (figures != NULL)
        texts = call_java(source, env, java, host, port, user, figures);
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionClear(env);
        return "the JVM has no memory left";
    }
    source->port = port;
    if (!copy_texts(source, env, texts) || !copy_text(&source->texts[HOST], host) ||
        !copy_text(&source->texts[AS], user))
        return "no memory is left";
    (*env)->GetLongArrayRegion(env, figures, 0, sizeof said / sizeof *said, said);
    answer->user = source->texts[USER];
    answer->secret = source->texts[SECRET];
    answer->valid_until_ms = said[0];
    answer->retire_connections = said[1] != 0;
    return source->texts[FAILURE];
}

static int ask(void *user_data, const char *host, uint16_t port, const char *user,
               leasehold_credentials *answer)
{
    struct source *source = user_data;
    JavaVMAttachArgs as = {JNI_VERSION_10, "leasehold-login", NULL};
    JNIEnv *env;

    if ((*source->vm)->AttachCurrentThreadAsDaemon(source->vm, (void **)&env, &as) != JNI_OK) {
        answer->failure = "the JVM accepts no more threads";
    } else {
        answer->failure = ask_java(source, env, host, port, user, answer);
        /* With all local references. */
        (*source->vm)->DetachCurrentThread(source->vm);
    }
    return answer->failure != NULL;
}

/* On whichever thread needs it last: one of Java's, or one of the library's. */
static void drop(void *user_data)
{
    struct source *source = user_data;
    JavaVM *vm = source->vm;
    JavaVMAttachArgs as = {JNI_VERSION_10, "leasehold-login", NULL};
    JNIEnv *env;
    const bool is_javas = (*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) == JNI_OK;

    /* Where the JVM accepts none, it ends, and the reference with it. */
    if (is_javas || (*vm)->AttachCurrentThreadAsDaemon(vm, (void **)&env, &as) == JNI_OK) {
        (*env)->DeleteWeakGlobalRef(env, source->java);
        if (!is_javas)
            (*vm)->DetachCurrentThread(vm);
    }
    free_texts(source);
    free(source);
}

static struct source *make_source(JNIEnv *env, jobject java)
{
    struct source *source = calloc(1, sizeof *source);

    if (source == NULL)
        return NULL;
    source->ask =
        (*env)->GetMethodID(env, (*env)->GetObjectClass(env, java), "ask", "([BI[B[J)[[B");
    if (source->ask == NULL || (*env)->GetJavaVM(env, &source->vm) != JNI_OK ||
        (source->java = (*env)->NewWeakGlobalRef(env, java)) == NULL) {
        free(source);
        return NULL;
    }
    return source;
}

static void set_credentials(JNIEnv *env, jclass native, jlong handle, jobject java)
{
    leasehold_config *config = HANDLE(leasehold_config, handle);
    struct source *source = make_source(env, java);
    leasehold_status status = LEASEHOLD_ERR_EXHAUSTED;

    if (source == NULL) {
        raise_status(env, native, status, NULL);
        return;
    }
    status = leasehold_config_set_credentials(config, ask, source, drop);
    if (status != LEASEHOLD_OK)
        raise_config(env, native, config, status);
}

static const JNINativeMethod methods[] = {
    {"setCredentials", "(JLdev/leasehold/CredentialsSource;)V", set_credentials},
};
const struct methods credentials_methods = METHODS(methods);
