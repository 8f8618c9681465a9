package dev.leasehold;

import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Spans and metrics for OpenTelemetry. It needs {@code io.opentelemetry:opentelemetry-api}, which your
 * program brings.
 *
 * <pre>{@code
 * LeaseholdClient client = LeaseholdTelemetry.create(openTelemetry).instrument(LeaseholdClient.connect(url));
 * }</pre>
 *
 * <p>From then on each call that acquires a lock of this client has a span {@code leasehold.wait}, and each
 * lease a span {@code leasehold.hold} that ends when the lease is released or lost. Both are children of
 * the span that your call was made in. Metrics have the names and labels of
 * {@link LeaseholdClient#metricsText()}.
 *
 * <p>Spans and metrics say to which group a lock belongs: one of the client's
 * {@linkplain ClientBuilder#metricsGroup groups}, or {@code *}. The name of a lock is in a span only if you
 * ask for it by {@link #withNames}.
 */
public final class LeaseholdTelemetry {
    private static final AttributeKey<String> GROUP = AttributeKey.stringKey("leasehold.group");
    private static final AttributeKey<String> NAME = AttributeKey.stringKey("leasehold.name");
    private static final AttributeKey<Long> FENCE = AttributeKey.longKey("leasehold.fence");
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("leasehold.outcome");
    private static final AttributeKey<String> REASON = AttributeKey.stringKey("leasehold.reason");
    private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");

    private final OpenTelemetry openTelemetry;
    private final boolean names;

    private LeaseholdTelemetry(OpenTelemetry openTelemetry, boolean names) {
        this.openTelemetry = Objects.requireNonNull(openTelemetry, "openTelemetry");
        this.names = names;
    }

    /**
     * Sends spans and metrics to this OpenTelemetry, such as {@code GlobalOpenTelemetry.get()}.
     *
     * @param openTelemetry has a provider of tracers and one of meters
     * @return what instruments clients, without the names of locks
     */
    public static LeaseholdTelemetry create(OpenTelemetry openTelemetry) {
        return new LeaseholdTelemetry(openTelemetry, false);
    }

    /**
     * Sets whether spans have the attribute {@code leasehold.name}, the name of the lock, and the text of
     * exceptions, which may have the name in it. False by default: names often are made of what users type.
     *
     * @param on whether they have
     * @return another object, with this setting
     */
    public LeaseholdTelemetry withNames(boolean on) {
        return new LeaseholdTelemetry(openTelemetry, on);
    }

    /**
     * Makes spans and metrics of what this client does from now on.
     *
     * @param client an open client
     * @return the client
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} if the client is instrumented already
     */
    public LeaseholdClient instrument(LeaseholdClient client) {
        var meters = LeaseholdMeters.of(openTelemetry.getMeterProvider());
        client.telemetry(new Spans(openTelemetry.getTracer("leasehold"), meters, client.metricsGroups(), names));
        meters.read(client);
        return client;
    }

    /** What the locks of one client tell, and to whom. */
    private record Spans(Tracer tracer, LeaseholdMeters meters, List<String> groups, boolean names)
            implements Telemetry {
        @Override
        public Wait begin(NamedLock lock) {
            return new WaitSpan(this, lock, Context.current());
        }

        @Override
        public Hold attached(NamedLock lock, long fence) {
            return new HoldSpan(this, lock.name(), group(lock.name()), Context.current(), fence);
        }

        /** The name itself, else the longest beginning of it: as the client counts. */
        String group(String name) {
            String found = "*";
            for (String group : groups) {
                if (group.equals(name)) {
                    return group;
                }
                boolean fits = group.endsWith("*") && name.startsWith(group.substring(0, group.length() - 1));
                if (fits && group.length() > found.length()) {
                    found = group;
                }
            }
            return found;
        }

        Span start(String what, String name, String group, Context parent) {
            Span span = tracer.spanBuilder(what).setParent(parent).setAttribute(GROUP, group).startSpan();
            return names ? span.setAttribute(NAME, name) : span;
        }

        /** The text of an exception has the name of the lock in it. */
        void failed(Span span, Throwable why) {
            span.setAttribute(ERROR, type(why));
            if (names) {
                span.recordException(why);
                span.setStatus(StatusCode.ERROR, String.valueOf(why.getMessage()));
            } else {
                span.setStatus(StatusCode.ERROR);
            }
        }
    }

    /** As the errors are called in all languages, such as {@code NoAnswer}: most have one class here. */
    private static String type(Throwable why) {
        if (!(why instanceof LeaseholdException)) {
            return why.getClass().getName();
        }
        var words = new StringBuilder();
        for (String word : ((LeaseholdException) why).status().name().split("_")) {
            words.append(word.charAt(0)).append(word.substring(1).toLowerCase(Locale.ROOT));
        }
        return words.toString();
    }

    /** The span of a call that acquires. */
    private static final class WaitSpan implements Telemetry.Wait {
        private final Spans spans;
        private final String name;
        private final String group;
        private final Context parent;
        private final Span span;
        private final long began = System.nanoTime();
        private final AtomicBoolean ended = new AtomicBoolean();

        WaitSpan(Spans spans, NamedLock lock, Context parent) {
            this.spans = spans;
            this.name = lock.name();
            this.group = spans.group(name);
            this.parent = parent;
            this.span = spans.start("leasehold.wait", name, group, parent);
        }

        @Override
        public Telemetry.Hold granted(long fence) {
            tell("granted", null);
            return new HoldSpan(spans, name, group, parent, fence);
        }

        @Override
        public void busy() {
            tell("busy", null);
        }

        @Override
        public void failed(Throwable why) {
            String outcome = outcome(why);
            tell(outcome, outcome.equals("busy") ? null : why);
        }

        private static String outcome(Throwable why) {
            if (why instanceof InterruptedException || why instanceof CancellationException) {
                return "interrupted";
            }
            Status status = why instanceof LeaseholdException e ? e.status() : Status.OTHER;
            return switch (status) {
                case BUSY -> "busy";
                case TIMEOUT -> "timed_out";
                case UNKNOWN -> "unknown";
                default -> "failed";
            };
        }

        private void tell(String outcome, Throwable why) {
            if (ended.getAndSet(true)) {
                return;
            }
            spans.meters.waited(group, System.nanoTime() - began);
            if (why != null) {
                spans.failed(span, why);
            }
            span.setAttribute(OUTCOME, outcome).end();
        }
    }

    /** The span of a lease. */
    private static final class HoldSpan implements Telemetry.Hold {
        private final Spans spans;
        private final String group;
        private final Span span;
        private final long began = System.nanoTime();
        private final AtomicBoolean ended = new AtomicBoolean();

        HoldSpan(Spans spans, String name, String group, Context parent, long fence) {
            this.spans = spans;
            this.group = group;
            this.span = spans.start("leasehold.hold", name, group, parent).setAttribute(FENCE, fence);
        }

        @Override
        public void ended(String how) {
            if (begin(how)) {
                span.end();
            }
        }

        @Override
        public void failed(LeaseholdException why) {
            if (begin(why.status() == Status.LOST ? "lost" : "unknown")) {
                spans.failed(span, why);
                span.end();
            }
        }

        @Override
        public void lost(LeaseEvent event) {
            if (begin("lost")) {
                span.setAttribute(REASON, event.reason().name().toLowerCase(Locale.ROOT));
                span.setStatus(StatusCode.ERROR).end();
            }
        }

        private boolean begin(String outcome) {
            boolean first = !ended.getAndSet(true);
            if (first) {
                spans.meters.held(group, System.nanoTime() - began);
                span.setAttribute(OUTCOME, outcome);
            }
            return first;
        }
    }
}
