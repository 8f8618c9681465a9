/*
 * Leasehold's lock on one store, in Promela, for SPIN: acquire, queue, hand over, claim, renew,
 * release, ttl, clocks that drift apart, and a store that loses its data.
 *
 * docs/model/check says how this is run. docs/explained/model.md says what it covers. The words are
 * those of docs/protocol.md, and the actions of the store are those of its scripts.
 *
 * What must hold:
 *   - Two leases are never valid at once, each by its own word (`rely`).
 *   - A fence is above all that were granted before (`reserve`), and a valid lease has the largest
 *     one (`rely`).
 *   - A resource that compares fences accepts no write behind a later holder's (`Resource`).
 *   - A client that waits and lives holds the lock at last (`served`, at the end).
 *
 * A build has only what its -D flags name, so that each stays small:
 *   DRIFT  the store's clock gains a tick on the clients' in each ttl
 *   LOSS   the store forgets everything, once
 *   BACK   the store's clock is set back, once; it keeps its data
 *   LATE   one request is carried out late, twice or never
 *   WRITE  holders write to a resource, however late
 *   LIVE   for `served`: nothing but the clock is slow, and clients acquire for ever
 *   DEATH  with LIVE: one client stops for good, wherever that hurts, and stays subscribed
 *   MUTE   with LIVE: one message is lost
 * Names that begin with WRONG_ put in a mistake, which a check has to find.
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2        /* how often each acquires the lock */
#endif
#ifndef OTHERS
#define OTHERS ROUNDS   /* how often all but the first */
#endif
#ifndef ASKS
#define ASKS 2          /* how often it asks the store for that, at most */
#endif

/* Time goes in ticks. A lock is valid for less than its ttl, by what clocks may drift apart in it. */
#ifdef DRIFT
#define TTL 3
#define MARGIN 1
#else
#define TTL 2
#define MARGIN 0
#endif
#ifdef WRONG_NO_MARGIN
#undef MARGIN
#define MARGIN 0
#endif
#define WINDOW TTL      /* for how long a lock is handed over, until it is claimed */

#define FOR_EVER 255
#define client_of(t) (((t) - 1) % CLIENTS)

mtype = { NOTHING, GRANTED, BUSY, QUARANTINED, YES, NO, TAKE, GIVE, EXTEND };

/* ---- the store ------------------------------------------------------------------------------- */

byte holder;                            /* the lock's key: a token, or 0 */
byte ttl;                               /* ticks until the store frees it */
byte last;                              /* the side key: the last fence */
chan queue = [CLIENTS * ROUNDS] of { byte };    /* tokens, in the order in which they came */
bool marked = true;                     /* the marker names this run of the store */
byte quarantine;
byte micros;                             /* the store's clock in µs: it grows with each grant */
byte first;                             /* only used within one step */

/* ---- the clients ----------------------------------------------------------------------------- */

byte token[CLIENTS];                    /* of the grant that each asks for or has */
byte fence[CLIENTS];
byte valid[CLIENTS];                    /* for how many ticks its lease is valid, by its own word */
byte age[CLIENTS] = TTL;                /* of the request that is under way */
byte notice[CLIENTS];                   /* the fence in a message that is not read yet, or 0 */
byte notice_age[CLIENTS];               /* since the hand-over, by the client's clock */
bool waits[CLIENTS];
#ifdef WRONG_TAKES_BY_ITS_OWN_CLOCK
byte waited[CLIENTS];                   /* ticks since it was told that the lock is taken */
#endif
#ifdef LIVE
bool looks[CLIENTS];                    /* it is time to look at the lock */
#endif
#ifdef DRIFT
byte sample_age[CLIENTS];               /* of what it knows of the store's clock */
byte gained[CLIENTS];                   /* ticks that the store's clock has gained since */
byte steady = TTL;                      /* ticks since it gained one */
#endif

/* ---- what is looked at, and nobody knows ------------------------------------------------------- */

byte greatest;                          /* the largest fence that was ever granted */

/* A client begins to rely on a lease, or relies on it for longer. */
inline rely(c, ticks)
{
    valid[c] = (ticks > valid[c] -> ticks : valid[c]);
    for (other : 0 .. CLIENTS - 1) {
        assert(other == c || valid[other] == 0)
    }
    other = 0;
    assert(valid[c] == 0 || fence[c] == greatest)
}

/* ---- the scripts ----------------------------------------------------------------------------- */

/* A fence is the store's time in µs, or one more than the last: so neither a clock that was set back
 * nor a side key that was lost repeats one. */
inline reserve()
{
#ifdef LIVE
    last = 1
#else
    micros++;
#if defined(WRONG_FENCE_BY_COUNT)
    last = last + 1;
#elif defined(WRONG_FENCE_BY_CLOCK)
    last = micros;
#else
    last = (last + 1 > micros -> last + 1 : micros);
#endif
#endif
}

/* Whatever is granted, is granted under the last fence. */
inline grant(t, ticks)
{
    holder = t;
    ttl = ticks;
#ifndef LIVE
    assert(last > greatest);
#endif
    greatest = last
}

/* A store that may have forgotten grants nothing until all that it may have granted is over. */
inline guard()
{
    if
    :: !marked ->
#ifndef WRONG_MARKER_NOT_WRITTEN
        marked = true;
#endif
#if defined(WRONG_NO_QUARANTINE)
        quarantine = 0
#elif defined(WRONG_SHORT_QUARANTINE)
        quarantine = TTL - 1
#else
        quarantine = TTL
#endif
    :: else
    fi
}

/* To one that waits. It hears of it by a message, which may lie unread for any time. */
inline hand_over(t)
{
#ifndef WRONG_OLD_FENCE
    reserve();
#endif
#ifdef WRONG_HAND_OVER_FOR_EVER
    grant(t, FOR_EVER);
#else
    grant(t, WINDOW);
#endif
    if
    :: token[client_of(t)] == t ->
        notice[client_of(t)] = last;
        notice_age[client_of(t)] = 0
    :: else
    fi;
    printf("STORE handed %d %d\n", t, last)
}

inline stand(t)
{
#ifdef WRONG_NO_QUEUE
    skip
#else
    if
    :: !(queue ?? [eval(t)]) -> queue ! t
    :: queue ?? [eval(t)]
    fi
#endif
}

/* Whoever is handed the lock leaves the queue, dead or alive. */
#ifdef WRONG_THE_DEAD_KEEP_THEIR_PLACE
#define NEXT queue ? <first>
#else
#define NEXT queue ? first
#endif

inline take(t)
{
    guard();
    if
#ifdef WRONG_TAKES_BY_ITS_OWN_CLOCK
    :: waited[client_of(t)] == TTL -> reserve(); grant(t, TTL); said = GRANTED
#endif
    :: quarantine > 0 -> said = QUARANTINED
    :: quarantine == 0 && holder == t ->
        ttl = (ttl < TTL -> TTL : ttl);
        said = GRANTED
    :: quarantine == 0 && holder != t && holder != 0 ->
        stand(t);
        said = BUSY
    :: quarantine == 0 && holder == 0 ->
        if
        :: NEXT
        :: empty(queue) -> first = t
        fi;
        if
        :: first == t ->
            reserve();
#ifdef WRONG_NO_TTL
            grant(t, FOR_EVER);
#else
            grant(t, TTL);
#endif
            said = GRANTED
        :: else ->
            hand_over(first);
            stand(t);
            said = BUSY
        fi;
        first = 0
    fi;
    printf("STORE take %d %e %d\n", t, said, last)
}

/* Frees the lock for the first that waits. */
inline free_lock()
{
    holder = 0;
    ttl = 0;
#ifndef WRONG_NO_QUEUE
    if
    :: marked && quarantine == 0 && len(queue) > 0 ->
        NEXT;
        hand_over(first);
        first = 0
    :: !marked || quarantine > 0 || len(queue) == 0
    fi
#endif
}

inline give(t)
{
    if
    :: queue ?? [eval(t)] -> queue ?? eval(t)
    :: !(queue ?? [eval(t)])
    fi;
    if
#ifdef WRONG_PLAIN_DELETE
    :: holder != 0 ->
#else
    :: holder == t ->
#endif
        said = YES;
        free_lock()
    :: holder == 0 ->
        said = NO;
        free_lock()
    :: else -> said = NO
    fi;
    printf("STORE give %d %e %d\n", t, said, last)
}

/* Renews a lock, or claims it where it was handed over. */
inline extend(t)
{
    if
#if defined(WRONG_RENEWAL_TAKES_AGAIN)
    :: holder == t || holder == 0 ->
#elif defined(WRONG_CLAIM_WITHOUT_COMPARE)
    :: true ->
#else
    :: holder == t ->
#endif
        holder = t;
        ttl = (ttl < TTL -> TTL : ttl);
        said = YES
    :: else -> said = NO
    fi;
    printf("STORE extend %d %e %d\n", t, said, last)
}

#ifdef LOSS
bool lost;

inline forget()
{
    lost = true;
    holder = 0;
    ttl = 0;
    last = 0;
    do
    :: queue ? _
    :: empty(queue) -> break
    od;
    quarantine = 0;
    marked = false;
    printf("STORE forgets\n")
}
#endif

/* ---- time ------------------------------------------------------------------------------------ */

inline tick_store()
{
    if
    :: ttl > 0 && ttl != FOR_EVER ->
        ttl--;
        holder = (ttl == 0 -> 0 : holder)
    :: else
    fi;
    quarantine = (quarantine > 0 -> quarantine - 1 : 0)
}

inline tick_clients()
{
    for (c : 0 .. CLIENTS - 1) {
        valid[c] = (valid[c] > 0 -> valid[c] - 1 : 0);
        age[c] = (age[c] < TTL -> age[c] + 1 : TTL);
        notice_age[c] = (notice[c] > 0 && notice_age[c] < WINDOW -> notice_age[c] + 1 : notice_age[c]);
#ifdef WRONG_TAKES_BY_ITS_OWN_CLOCK
        waited[c] = (waits[c] && waited[c] < TTL -> waited[c] + 1 : 0);
#endif
#ifdef LIVE
        looks[c] = waits[c];
#endif
#ifdef DRIFT
        sample_age[c] = (sample_age[c] < TTL -> sample_age[c] + 1 : TTL)
#endif
    }
    c = 0
}

proctype Clock()
{
    byte c;
end:
    do
#ifdef LIVE
    /* All that can happen happens before time passes. */
    :: atomic {
        timeout ->
        if
        :: tick_store(); tick_clients(); printf("STORE tick\n")
#ifdef LOSS
        :: !lost -> forget()
#endif
        fi
    }
#else
    /* Whoever has something to do may be slow. */
    :: d_step {
        tick_store();
        tick_clients();
#ifdef DRIFT
        steady = (steady < TTL -> steady + 1 : TTL);
#endif
        printf("STORE tick\n")
    }
#endif
#ifdef DRIFT
    :: d_step {
        steady == TTL ->
        steady = 0;
        tick_store();
        for (c : 0 .. CLIENTS - 1) {
            /* What comes behind a hand-over does not change when that was. */
            gained[c] = (notice[c] == 0 && sample_age[c] < TTL && gained[c] < 2 -> gained[c] + 1 : gained[c])
        }
        c = 0
    }
#endif
    od
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

#ifdef LATE
chan late = [1] of { mtype, byte };
bool was_late;

/* The network keeps a copy of a request. It may deliver that one only: then the sender knows nothing. */
inline copy(kind, t)
{
    if
    :: !was_late ->
        was_late = true;
        late ! kind, t;
        if
        :: said = NOTHING
        :: true
        fi
    :: true
    fi
}

proctype Network()
{
    mtype kind, said;
    byte t;
end:
    atomic {
        late ? kind, t;
        if
        :: kind == TAKE -> take(t)
        :: kind == GIVE -> give(t)
        :: kind == EXTEND -> extend(t)
        fi;
        kind = 0;
        said = 0;
        t = 0
    }
}
#else
#define copy(kind, t) skip
#endif

#if defined(BACK) || defined(LOSS) && !defined(LIVE)
proctype Trouble()
{
    atomic {
#ifdef LOSS
        forget()
#endif
#ifdef BACK
        micros = 0
#endif
    }
}
#endif

#ifdef DEATH
bool died;
#define may_die :: !died -> died = true; valid[me] = 0; waits[me] = false; goto stopped
#else
#define may_die
#endif

#ifdef MUTE
bool muted;
#define may_be_lost :: !muted -> muted = true; notice[me] = 0
#else
#define may_be_lost
#endif

/* ---- the resource ---------------------------------------------------------------------------- */

#ifdef WRITE
byte under_way[CLIENTS];        /* the fence of a write whose holder looked at its lease before that */
byte seen;                      /* the largest fence that wrote */

/* A write may be on its way for as long as it likes. */
proctype Write(byte c)
{
end:
    do
    :: atomic {
        under_way[c] > 0 ->
        if
#ifndef WRONG_RESOURCE_DOES_NOT_COMPARE
        :: under_way[c] < seen -> printf("refused\n")
#endif
        :: else ->
            assert(under_way[c] >= seen);
            seen = under_way[c]
        fi;
        under_way[c] = 0
    }
    od
}
#endif

/* ---- a client -------------------------------------------------------------------------------- */

/* A request goes out, is carried out, and its answer is read: three steps, with any time between. Its
 * sender dates what it is promised from before the first one. */
#ifdef WRONG_DATED_FROM_RECEIPT
#define promised (TTL - MARGIN)
#else
#define promised (TTL - MARGIN > age[me] -> TTL - MARGIN - age[me] : 0)
#endif

/* A message says by the store's clock when the lock was handed over. The client knows that clock by an
 * earlier answer, and takes off what it may have gained since. */
#ifdef WRONG_NOTICE_DATED_WITHOUT_DRIFT
#define CORRECTION 0
#else
#define CORRECTION MARGIN
#endif
#if defined(WRONG_NOTICE_DATED_FROM_RECEIPT)
#define handed_over_for (WINDOW - MARGIN)
#elif defined(DRIFT)
#define spent (notice_age[me] + MARGIN + CORRECTION)
#define handed_over_for \
    (sample_age[me] < TTL && spent < WINDOW + gained[me] -> WINDOW + gained[me] - spent : 0)
#else
#define handed_over_for (WINDOW > notice_age[me] -> WINDOW - notice_age[me] : 0)
#endif

/* What a client that asks for nothing remembers. Fewer differences make fewer states. */
inline settle(c)
{
    age[c] = TTL;
    notice[c] = 0;
#ifdef DRIFT
    sample_age[c] = TTL;
    gained[c] = 0;
#endif
    notice_age[c] = 0
}

proctype Client(byte me)
{
    byte other, round, asked;
    mtype said;
#ifdef LIVE
    bool renewed;
#endif

again:
    atomic {
#ifdef LIVE
        token[me] = me + 1;
        renewed = false;
#else
        if
        :: round < (me == 0 -> ROUNDS : OTHERS) -> token[me] = me + 1 + CLIENTS * round; round++; asked = 0
        :: else -> goto stopped
        fi;
#endif
        waits[me] = true;
        settle(me)              /* a message for another token is nothing to it */
    }

taking:
    atomic {
#ifdef LIVE
        asked = 0;
#else
        if
        :: asked == ASKS -> goto giving
        :: else -> asked++
        fi;
#endif
        age[me] = 0
    }
    atomic {
        said = 0;
        copy(TAKE, token[me]);
        if
        :: said == 0 ->
            take(token[me]);
            fence[me] = (said == GRANTED -> last : 0);
#ifdef DRIFT
            sample_age[me] = age[me];
            gained[me] = 0
#endif
        :: else
        fi
    }
    atomic {
        if
#ifdef WRONG_UNKNOWN_COUNTS_AS_HELD
        :: said == NOTHING -> fence[me] = greatest; rely(me, promised); goto held
#else
        :: said == NOTHING -> goto giving
#endif
        :: said == GRANTED && promised > 0 -> rely(me, promised); goto held
        :: said == GRANTED && promised == 0 -> goto giving
        :: said == BUSY || said == QUARANTINED -> age[me] = TTL; said = 0
        may_die
        fi
    }

waiting:
    do
    :: atomic {
        notice[me] > 0 ->
        if
        :: handed_over_for > 0 ->
            fence[me] = notice[me];
            rely(me, handed_over_for);
            goto held
        :: handed_over_for == 0 -> notice[me] = 0; goto taking
        may_be_lost
        may_die
        fi
    }
#ifdef LIVE
#ifndef WRONG_NEVER_LOOKS
    /* A waiter looks now and then, and asks if the lock is free. It also asks after each third look,
     * because the store may have forgotten its place. */
    :: atomic {
        looks[me] ->
        looks[me] = false;
        asked++;
        if
#ifdef WRONG_NEVER_POLLS
        :: holder == 0 -> goto taking
        :: holder != 0 -> asked = 0
#else
        :: holder == 0 || asked == 3 -> goto taking
        :: holder != 0 && asked < 3
#endif
        fi
    }
#endif
#else
    /* It looks, or asks to keep its place, whenever it likes. */
    :: goto taking
    :: goto giving
#endif
    od;

held:
    atomic {
        waits[me] = false;
        settle(me);
        said = 0
    }
    do
#ifdef LIVE
    /* Each holds it for a tick at least, else rounds without end took no time, and not for ever. */
    :: atomic {
        valid[me] < TTL ->
        if
        :: goto giving
        :: !renewed -> renewed = true
        may_die
        fi
    }
#else
    :: valid[me] == 0 -> goto giving
    :: goto giving
#ifdef WRITE
    :: atomic { valid[me] > 0 && under_way[me] == 0 -> under_way[me] = fence[me] }
#endif
    :: valid[me] > 0 ->
#endif
        age[me] = 0;
        atomic {
            said = 0;
            copy(EXTEND, token[me]);
            if
            :: said == 0 -> extend(token[me])
            :: else
            fi
        }
        atomic {
            if
#ifdef WRONG_RENEWAL_TAKES_AGAIN
            :: said == YES -> rely(me, promised)
#else
            :: said == YES && valid[me] > 0 -> rely(me, promised)
            :: said == YES && valid[me] == 0 -> goto giving
#endif
            :: said == NO -> goto giving
            :: said == NOTHING
            fi;
            age[me] = TTL;
            said = 0
        }
    od;

giving:
    /* A lease is over before the first byte of its release is written. */
    atomic {
#ifndef WRONG_VALID_WHILE_RELEASING
        valid[me] = 0;
#endif
        waits[me] = false;
        settle(me);
        said = 0
    }
#ifdef WRONG_RELEASE_IN_TWO_STEPS
    if
    :: holder == token[me] -> atomic { holder = 0; ttl = 0; printf("STORE give %d YES %d\n", token[me], last) }
    :: holder != token[me]
    fi;
#else
    atomic {
        copy(GIVE, token[me]);
        if
        :: said == 0 -> give(token[me])
        :: else
        fi
    }
#endif
    atomic {
        valid[me] = 0;
        fence[me] = 0;
        said = 0;
        goto again
    }

stopped:
    skip
}

init {
    atomic {
        byte c;
        run Clock();
#ifdef LATE
        run Network();
#endif
#if defined(BACK) || defined(LOSS) && !defined(LIVE)
        run Trouble();
#endif
        for (c : 0 .. CLIENTS - 1) {
            run Client(c);
#ifdef WRITE
            run Write(c)
#endif
        }
    }
}

#ifdef LIVE
ltl served { [] (waits[0] -> <> !waits[0]) }
#endif
