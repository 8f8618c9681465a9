/*
 * Clients: opening and closing them, what they count, and the locks that come from them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* What Java passes for an option that was not set; 0 for one that cannot be 0. */
#define NOT_SET (-1)

/* ---- Clients that are open, for when the library is unloaded ---------------------------------- */

static struct {
    pthread_mutex_t mutex;
    leasehold_client **list;
    size_t count, room;
} opened = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0};

static bool remember(leasehold_client *client)
{
    bool remembered = true;

    pthread_mutex_lock(&opened.mutex);
    if (opened.count == opened.room) {
        size_t room = opened.room + 16;
        leasehold_client **list = realloc(opened.list, room * sizeof *list);

        if (list != NULL) {
            opened.list = list;
            opened.room = room;
        }
        remembered = list != NULL;
    }
    if (remembered)
        opened.list[opened.count++] = client;
    pthread_mutex_unlock(&opened.mutex);
    return remembered;
}

static void forget(leasehold_client *client)
{
    pthread_mutex_lock(&opened.mutex);
    for (size_t i = 0; i < opened.count; i++) {
        if (opened.list[i] == client) {
            opened.list[i] = opened.list[--opened.count];
            break;
        }
    }
    pthread_mutex_unlock(&opened.mutex);
}

/* No time to release leases in: so the store is not asked, and their ttl ends them. */
static void abandon(leasehold_client *client)
{
    leasehold_client_close_within(client, 0, NULL);
    leasehold_client_free(client);
}

void clients_abandon(void)
{
    for (size_t i = 0; i < opened.count; i++) abandon(opened.list[i]);
    free(opened.list);
    opened.list = NULL;
    opened.count = opened.room = 0;
}

/* ---- Native methods --------------------------------------------------------------------------- */

static jlong make_config(JNIEnv *env, jclass native, jbyteArray url)
{
    leasehold_config *config = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    log_begin(env, native);
    if (url != NULL) {
        if (!bytes_read(env, native, url, &bytes))
            return 0;
        status = leasehold_config_from_url(bytes.start, bytes.length, &config, &error);
        bytes_free(&bytes);
    } else {
        status = leasehold_config_from_env(&config, &error);
    }
    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return NUMBER(config);
}

void raise_config(JNIEnv *env, jclass native, leasehold_config *config, leasehold_status status)
{
    leasehold_error *error = NULL;
    leasehold_status refused = leasehold_config_check(config, &error);

    raise_status(env, native, refused != LEASEHOLD_OK ? refused : status, error);
}

static void set_prefix(JNIEnv *env, jclass native, jlong handle, jbyteArray prefix)
{
    leasehold_config *config = HANDLE(leasehold_config, handle);
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, prefix, &bytes))
        return;
    status = leasehold_config_set_prefix(config, bytes.start, bytes.length);
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK)
        raise_config(env, native, config, status);
}

static void set_text(JNIEnv *env, jclass native, jlong handle, jint option, jbyteArray text)
{
    leasehold_config *config = HANDLE(leasehold_config, handle);
    leasehold_status status = LEASEHOLD_ERR_BAD_ARGUMENT;
    struct bytes bytes;

    if (!bytes_read(env, native, text, &bytes))
        return;
    switch (option) {
    case 0:
        status = leasehold_config_set_label(config, bytes.start, bytes.length);
        break;
    case 1:
        status = leasehold_config_set_language(config, bytes.start, bytes.length);
        break;
    case 2:
        status = leasehold_config_set_program(config, bytes.start, bytes.length);
        break;
    case 3:
        status = leasehold_config_add_metrics_group(config, bytes.start, bytes.length);
        break;
    }
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK)
        raise_config(env, native, config, status);
}

static void set_config(JNIEnv *env, jclass native, jlong handle, jint option, jlong value)
{
    leasehold_config *config = HANDLE(leasehold_config, handle);
    leasehold_status status = LEASEHOLD_ERR_BAD_ARGUMENT;

    switch (option) {
    case 0:
        status = leasehold_config_set_io_timeout_ms(config, value);
        break;
    case 1:
        status = leasehold_config_set_pool(config, (uint32_t)value);
        break;
    case 2:
        status = leasehold_config_set_close_timeout_ms(config, value);
        break;
    case 3:
        status = leasehold_config_set_claim_window_ms(config, value);
        break;
    case 4:
        status = leasehold_config_set_max_ttl_ms(config, value);
        break;
    case 5:
        status = leasehold_config_set_guard_data_loss(config, value != 0);
        break;
    case 6:
        status = leasehold_config_set_register(config, value != 0);
        break;
    case 7:
        status = leasehold_config_set_advise(config, value != 0);
        break;
    }
    if (status != LEASEHOLD_OK)
        raise_config(env, native, config, status);
}

static void free_config(JNIEnv *env, jclass native, jlong config)
{
    leasehold_config_free(HANDLE(leasehold_config, config));
}

static jlong open_client(JNIEnv *env, jclass native, jlong config)
{
    leasehold_client *client;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_client_open_config(HANDLE(leasehold_config, config), &client, &error);

    if (status == LEASEHOLD_OK && !remember(client)) {
        leasehold_client_free(client);
        status = LEASEHOLD_ERR_EXHAUSTED;
    }
    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(client);
}

static void initialize(JNIEnv *env, jclass native, jlong client, jboolean force)
{
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_client_initialize(HANDLE(leasehold_client, client), force, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static jbyteArray store(JNIEnv *env, jclass native, jlong client)
{
    const char *text = leasehold_client_store(HANDLE(leasehold_client, client));

    return bytes_to_java(env, text, strlen(text));
}

static void ping(JNIEnv *env, jclass native, jlong client)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_client_ping(HANDLE(leasehold_client, client), &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static jlong counter(JNIEnv *env, jclass native, jlong client, jint which)
{
    uint64_t count = 0;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_client_counter(HANDLE(leasehold_client, client), which, &count, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
    return (jlong)count;
}

static jbyteArray metrics(JNIEnv *env, jclass native, jlong client)
{
    leasehold_metrics *metrics;
    leasehold_error *error = NULL;
    jbyteArray made;
    const char *text;
    size_t length;
    leasehold_status status =
        leasehold_client_metrics(HANDLE(leasehold_client, client), &metrics, &error);

    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return NULL;
    }
    text = leasehold_metrics_text(metrics, &length);
    made = bytes_to_java(env, text, length);
    leasehold_metrics_free(metrics);
    return made;
}

static jlong make_lock(JNIEnv *env, jclass native, jlong client, jbyteArray name)
{
    leasehold_lock *lock = NULL;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct bytes bytes;

    if (!bytes_read(env, native, name, &bytes))
        return 0;
    status = leasehold_client_lock(HANDLE(leasehold_client, client), bytes.start, bytes.length,
                                   &lock, &error);
    bytes_free(&bytes);
    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(lock);
}

static jlong subscribe(JNIEnv *env, jclass native, jlong client)
{
    leasehold_events *events = NULL;
    leasehold_error *error = NULL;
    leasehold_status status =
        leasehold_client_events(HANDLE(leasehold_client, client), &events, &error);

    if (status != LEASEHOLD_OK) {
        raise_status(env, native, status, error);
        return 0;
    }
    return NUMBER(events);
}

static void close_client(JNIEnv *env, jclass native, jlong client, jlong timeout_ms)
{
    leasehold_client *closing = HANDLE(leasehold_client, client);
    leasehold_error *error = NULL;
    leasehold_status status = timeout_ms == NOT_SET
                                  ? leasehold_client_close(closing, &error)
                                  : leasehold_client_close_within(closing, timeout_ms, &error);

    if (status != LEASEHOLD_OK)
        raise_status(env, native, status, error);
}

static void free_client(JNIEnv *env, jclass native, jlong client)
{
    forget(HANDLE(leasehold_client, client));
    leasehold_client_free(HANDLE(leasehold_client, client));
}

static void abandon_client(JNIEnv *env, jclass native, jlong client)
{
    forget(HANDLE(leasehold_client, client));
    abandon(HANDLE(leasehold_client, client));
}

static jboolean is_retriable(JNIEnv *env, jclass native, jint status)
{
    return leasehold_status_is_retriable(status);
}

static jlong handle_count(JNIEnv *env, jclass native)
{
    return (jlong)leasehold_handle_count();
}

static const JNINativeMethod methods[] = {
    {"config", "([B)J", make_config},
    {"setPrefix", "(J[B)V", set_prefix},
    {"setText", "(JI[B)V", set_text},
    {"setConfig", "(JIJ)V", set_config},
    {"freeConfig", "(J)V", free_config},
    {"open", "(J)J", open_client},
    {"initialize", "(JZ)V", initialize},
    {"store", "(J)[B", store},
    {"ping", "(J)V", ping},
    {"counter", "(JI)J", counter},
    {"metrics", "(J)[B", metrics},
    {"lock", "(J[B)J", make_lock},
    {"subscribe", "(J)J", subscribe},
    {"close", "(JJ)V", close_client},
    {"freeClient", "(J)V", free_client},
    {"abandonClient", "(J)V", abandon_client},
    {"isRetriable", "(I)Z", is_retriable},
    {"handleCount", "()J", handle_count},
};
const struct methods client_methods = METHODS(methods);
