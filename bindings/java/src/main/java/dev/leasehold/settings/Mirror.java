package dev.leasehold.settings;

import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * An object of another library, read by the names of its methods and fields. So no class of that
 * library is needed here, at build time or at run time, and its versions need no builds of ours.
 */
final class Mirror {
    private final Object object;
    private final String library;
    private final String instead;

    /**
     * A view of an object.
     *
     * @param library its library, for sentences
     * @param instead what to write where the object cannot be read
     */
    Mirror(Object object, String library, String instead) {
        this.object = Objects.requireNonNull(object);
        this.library = library;
        this.instead = instead;
    }

    /** Whether an object is of a class or interface of that name, loaded by whichever loader. */
    static boolean isA(Object object, String name) {
        return object != null && isA(object.getClass(), name);
    }

    private static boolean isA(Class<?> type, String name) {
        if (type == null || type.getName().equals(name)) {
            return type != null;
        }
        for (Class<?> parent : type.getInterfaces()) {
            if (isA(parent, name)) {
                return true;
            }
        }
        return isA(type.getSuperclass(), name);
    }

    boolean isA(String name) {
        return isA(object, name);
    }

    Object object() {
        return object;
    }

    /** The name of its class without the package. */
    String kind() {
        Class<?> type = object.getClass();
        return type.getName().substring(type.getPackageName().isEmpty() ? 0 : type.getPackageName().length() + 1);
    }

    Refusal refuse(String why) {
        return new Refusal("this " + kind() + " " + why + ": " + instead);
    }

    /** What it asks has an interface of its own, which a program can call as well. */
    Refusal refuseProvider(String provider) {
        return new Refusal("this " + kind() + " asks " + provider + " for its credentials, which Leasehold cannot"
                + " borrow: call it in ClientBuilder.credentials, with a URL that has no password; or " + instead);
    }

    // ---- methods -----------------------------------------------------------------------------------

    boolean has(String method) {
        return method(method) != null;
    }

    Object value(String name) {
        Method method = method(name);
        if (method == null) {
            throw unknown("method " + name + "()");
        }
        try {
            return method.invoke(object);
        } catch (InvocationTargetException e) {
            throw refuse("throws " + e.getCause().getClass().getSimpleName() + " from " + name + "()");
        } catch (IllegalAccessException e) {
            throw unknown("accessible method " + name + "()");
        }
    }

    /** What a method returns, or null where this version of the library has no such method. */
    Object valueIfAny(String name) {
        return has(name) ? value(name) : null;
    }

    /** What a method returns, to be read further; null if it returns null. */
    Mirror get(String name) {
        return of(value(name));
    }

    String text(String name) {
        Object value = value(name);
        return value instanceof char[] characters ? new String(characters) : (String) value;
    }

    boolean flag(String name) {
        return (boolean) value(name);
    }

    int number(String name) {
        return ((Number) value(name)).intValue();
    }

    List<Mirror> list(String name) {
        return elements(value(name));
    }

    private Method method(String name) {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            Method method = declared(type, name);
            if (method != null && canRead(method)) {
                return method;
            }
            Method inherited = inInterfaces(type, name);
            if (inherited != null) {
                return inherited;
            }
        }
        return null;
    }

    private Method inInterfaces(Class<?> type, String name) {
        for (Class<?> parent : type.getInterfaces()) {
            Method method = declared(parent, name);
            method = method != null && canRead(method) ? method : inInterfaces(parent, name);
            if (method != null) {
                return method;
            }
        }
        return null;
    }

    private static Method declared(Class<?> type, String name) {
        try {
            return type.getDeclaredMethod(name);
        } catch (NoSuchMethodException | LinkageError e) {
            return null;
        }
    }

    // ---- fields ------------------------------------------------------------------------------------

    boolean hasField(String name) {
        return findField(name) != null;
    }

    /** For what no method returns. */
    Object fieldValue(String name) {
        Field field = findField(name);
        if (field == null) {
            throw unknown("field " + name);
        }
        try {
            return field.get(object);
        } catch (IllegalAccessException e) {
            throw unknown("accessible field " + name);
        }
    }

    private Field findField(String name) {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(name);
                if (canRead(field)) {
                    return field;
                }
            } catch (NoSuchFieldException | LinkageError e) {
                continue;
            }
        }
        return null;
    }

    Mirror field(String name) {
        return of(fieldValue(name));
    }

    List<Mirror> fieldList(String name) {
        return elements(fieldValue(name));
    }

    /** Whether two objects of one class have the same in each field, but for those named. */
    boolean isLike(Object other, String... but) {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || List.of(but).contains(field.getName())) {
                    continue;
                }
                try {
                    if (!canRead(field) || !Objects.deepEquals(field.get(object), field.get(other))) {
                        return false;
                    }
                } catch (IllegalAccessException e) {
                    return false;
                }
            }
        }
        return true;
    }

    // ------------------------------------------------------------------------------------------------

    private Mirror of(Object value) {
        return value == null ? null : new Mirror(value, library, instead);
    }

    private List<Mirror> elements(Object values) {
        var found = new ArrayList<Mirror>();
        if (values != null) {
            ((Iterable<?>) values).forEach(value -> found.add(of(value)));
        }
        return found;
    }

    private boolean canRead(AccessibleObject member) {
        return member.trySetAccessible() || member.canAccess(object);
    }

    private Refusal unknown(String what) {
        return new Refusal("Leasehold does not know this version of " + library + ", whose " + kind() + " has no "
                + what + ": " + instead);
    }
}
