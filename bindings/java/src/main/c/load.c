/* Loading and unloading. */
#include "shim.h"

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
    const struct methods *tables[] = {&client_methods, &credentials_methods, &lock_methods,
                                      &wait_methods,   &lease_methods,       &election_methods,
                                      &event_methods,  &testing_methods};
    JNIEnv *env;

    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) != JNI_OK)
        return JNI_ERR;
    /* Each failure here leaves an exception, which System.load throws. */
    if (leasehold_abi_version() != LEASEHOLD_ABI_VERSION) {
        jclass error = (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError");
        if (error != NULL)
            (*env)->ThrowNew(env, error, "it was linked with another version of Leasehold");
        return JNI_ERR;
    }
    jclass native = (*env)->FindClass(env, "dev/leasehold/Native");
    if (native == NULL)
        return JNI_ERR;
    if (!shim_begin(env, native))
        return JNI_ERR;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if ((*env)->RegisterNatives(env, native, tables[i]->list, tables[i]->count) != JNI_OK)
            return JNI_ERR;
    }
    (*env)->DeleteLocalRef(env, native);
    return JNI_VERSION_10;
}

/* The class loader is gone, and with it everybody who could use a client. */
JNIEXPORT void JNICALL JNI_OnUnload(JavaVM *vm, void *reserved)
{
    clients_abandon();
    log_end();
}
