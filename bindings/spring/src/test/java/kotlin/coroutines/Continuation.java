package kotlin.coroutines;

/** In the place of Kotlin's own, which the tests need for its name alone. */
public interface Continuation<T> {}
