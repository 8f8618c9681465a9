/*
 * The rounds of Leasehold's quorum, in Promela, for SPIN: attempts to acquire one lock on three nodes,
 * over a network that delays and loses what it likes.
 *
 * docs/model/check says how this is run. docs/explained/model.md says what it covers. The words are
 * those of docs/protocol.md, and the actions of a node are those of its scripts.
 *
 * What must hold (`win`, and `Rest` at the end):
 *   - Two leases are never valid at once, each by its own word.
 *   - The fence of a lease is above those of all leases before it.
 *   - A lease stands, with its fence, on two of the three nodes.
 *   - An attempt that failed leaves nothing behind, although no time passes.
 *
 * A build has only what its -D flags name:
 *   RESTART  one node loses its data, once
 *   JUMP     the clock of one node jumps ahead while the holder's lock is on all three, once
 *   ANYTIME  keys expire whenever they like: only the order of fences must hold, without any clock
 *   STILL    time stands still, for `Rest`
 * Names that begin with WRONG_ put in a mistake, which a check has to find.
 */

#define NODES 3
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef TTL
#define TTL 2
#endif

#ifndef STRAYS
#define STRAYS 1        /* how many takes are carried out after their sender went on, or unknown to it */
#endif

/* More than half of all nodes, there or not: any two majorities have a node in common. */
#ifdef WRONG_MAJORITY_OF_ONE
#define MAJORITY 1
#else
#define MAJORITY 2
#endif

mtype = { TAKE, GRANTED, RAISE, RAISED, OUT };

/* ---- the nodes ------------------------------------------------------------------------------- */

byte key[NODES];                /* the lock: an attempt's number from 1 on, or 0 */
byte ttl[NODES];               /* its ttl */
byte last[NODES];               /* the last fence */
byte quarantine[NODES];

/* ---- the attempts ---------------------------------------------------------------------------- */

#define at(a, n) ((a) * NODES + (n))

mtype vote[ATTEMPTS * NODES] = OUT; /* what a node was asked, or what it said */
byte granted[ATTEMPTS * NODES];         /* the fence that it granted, or is to raise to */
bool late[ATTEMPTS * NODES];            /* its take may still be carried out, and counts no more */
bool owed[ATTEMPTS * NODES];            /* a give that it has not carried out */
byte hint[ATTEMPTS];                    /* by the client's clock: a fence is not less */
byte age[ATTEMPTS] = TTL;               /* ticks since before the first request */
byte valid[ATTEMPTS];                   /* for how many ticks the lease is valid, by its own word */

bool is_running[ATTEMPTS];

byte greatest;                  /* the largest fence of a lease that was valid: nobody knows it */
#ifdef ANYTIME
byte before[ATTEMPTS];          /* what that was when the attempt began */
#endif
byte started;
byte strays = STRAYS;
byte busy = ATTEMPTS;           /* how many attempts have not ended */

/* ---- the scripts ----------------------------------------------------------------------------- */

/* A node that forgot grants nothing until all that it may have granted is over. What a node refuses
 * changes nothing, and is worth as much as no answer: so a refusal is no step of its own here. */
#define may_take(n) (quarantine[n] == 0 && key[n] == 0)

inline take(a, n)
{
    last[n] = (last[n] + 1 > hint[a] -> last[n] + 1 : hint[a]);
    key[n] = a + 1;
    ttl[n] = TTL;
    printf("NODE %d take %d: %d\n", n, a, last[n])
}

/* Only while the lock is still this attempt's, and not below a fence that was granted since. */
#ifdef WRONG_RAISES_WHOEVER_HAS_IT
#define may_raise(a, n) (last[n] <= granted[at(a, n)])
#else
#define may_raise(a, n) (key[n] == a + 1 && last[n] <= granted[at(a, n)])
#endif

inline raise(a, n)
{
    last[n] = granted[at(a, n)];
    printf("NODE %d raise %d: %d\n", n, a, last[n])
}

/* Not guarded: a node that forgot has to forget this one, too. */
inline give(a, n)
{
    owed[at(a, n)] = false;
    if
#ifdef WRONG_GIVES_WITHOUT_COMPARE
    :: true ->
#else
    :: key[n] == a + 1 ->
#endif
        key[n] = 0;
        ttl[n] = 0
    :: else
    fi;
    printf("NODE %d give %d\n", n, a)
}

/* ---- the network ----------------------------------------------------------------------------- */

/* What is asked of a node is carried out at any time, or never. A give may overtake the take: then the
 * client sends it again, since it knows that the take may still come. */
proctype Link(byte a; byte n)
{
end:
    do
    :: atomic {
        vote[at(a, n)] == TAKE && may_take(n) && age[a] < TTL ->
        take(a, n);
        granted[at(a, n)] = last[n];
        vote[at(a, n)] = GRANTED
    }
    :: atomic {
        vote[at(a, n)] == RAISE && quarantine[n] == 0 && may_raise(a, n) ->
        raise(a, n);
        vote[at(a, n)] = (is_running[a] -> RAISED : OUT)
    }
    :: atomic { owed[at(a, n)] -> give(a, n) }
    :: atomic {
        late[at(a, n)] && may_take(n) ->
        late[at(a, n)] = false;
        take(a, n);
#ifdef WRONG_COUNTS_LATE_GRANTS
        vote[at(a, n)] = (is_running[a] -> GRANTED : OUT);
#endif
#ifndef WRONG_GIVES_TO_THOSE_WHO_ANSWERED
        owed[at(a, n)] = !is_running[a]
#endif
    }
    od
}

/* ---- time ------------------------------------------------------------------------------------ */

#define over(a) (is_running[a] && age[a] == TTL && valid[a] == 0)

#ifndef STILL
proctype Clock()
{
    byte i;
end:
    do
#ifdef ANYTIME
    :: atomic { key[0] > 0 -> key[0] = 0; ttl[0] = 0; printf("NODE 0 expires\n") }
    :: atomic { key[1] > 0 -> key[1] = 0; ttl[1] = 0; printf("NODE 1 expires\n") }
    :: atomic { key[2] > 0 -> key[2] = 0; ttl[2] = 0; printf("NODE 2 expires\n") }
#else
    /* An attempt that is too late does nothing but strays, so that it may as well end first. */
    :: d_step {
        !over(0) && !over(1) && !over(ATTEMPTS - 1) ->
        for (i : 0 .. NODES - 1) {
            ttl[i] = (ttl[i] > 0 -> ttl[i] - 1 : 0);
            key[i] = (ttl[i] == 0 -> 0 : key[i]);
            quarantine[i] = (quarantine[i] > 0 -> quarantine[i] - 1 : 0)
        }
        for (i : 0 .. ATTEMPTS - 1) {
            valid[i] = (valid[i] > 0 -> valid[i] - 1 : 0);
            age[i] = (age[i] < TTL -> age[i] + 1 : TTL)
        }
        i = 0
    }
#endif
    od
}
#endif

/* ---- what goes wrong ------------------------------------------------------------------------- */

#if defined(RESTART) || defined(JUMP)
proctype Trouble()
{
    byte n;
    atomic {
        if
        :: n = 0
        :: n = 1
        :: n = 2
        fi;
#ifdef RESTART
#ifndef WRONG_FORGETS_AND_VOTES
        quarantine[n] = TTL;
#endif
        last[n] = 0;
#else
#ifndef WRONG_JUMPS_WHILE_A_NODE_LACKS_IT
        key[0] != 0 && key[0] == key[1] && key[1] == key[2];
#endif
#endif
        key[n] = 0;
        ttl[n] = 0;
        printf("NODE %d in trouble\n", n)
    }
}
#endif

#define late_somewhere(a) (late[at(a, 0)] || late[at(a, 1)] || late[at(a, 2)])

/* ---- an attempt ------------------------------------------------------------------------------ */

#if defined(WRONG_DATED_FROM_THE_ANSWERS)
#define promised TTL
#else
#define promised (TTL - age[a])
#endif

/* A lease begins. */
inline win()
{
    valid[a] = promised;
#ifdef ANYTIME
    assert(fence > before[a] && fence != greatest);
    greatest = (fence > greatest -> fence : greatest);
#else
    for (i : 0 .. ATTEMPTS - 1) {
        assert(i == a || valid[i] == 0)
    }
    assert(fence > greatest);
    greatest = fence;
#endif
    count = 0;
    for (i : 0 .. NODES - 1) {
        count = (key[i] == a + 1 && last[i] >= fence -> count + 1 : count)
    }
#if !defined(RESTART) && !defined(JUMP) && !defined(ANYTIME)
    assert(count >= 2);
#endif
    i = 0;
    count = 0
}

proctype Attempt(byte a)
{
    byte i, count, fence;

    atomic {
        started++;
        is_running[a] = true;
#ifdef RESTART
        /* Clients' clocks go on while a node that forgot grants nothing, far more than fences do. */
        hint[a] = started * (ATTEMPTS + 2);
#else
        /* They may be off by anything. */
        hint[a] = 1;
        if
        :: a > 0 -> hint[a] = 3
        :: true
        fi;
#endif
        age[a] = 0;
#ifdef ANYTIME
        before[a] = greatest;
#endif
        for (i : 0 .. NODES - 1) {
            vote[at(a, i)] = TAKE
        }
        i = 0
    }

    /* It decides at any time, by any of the answers that have come until then. The largest grant is
     * chosen among these: what comes later never counts. */
    atomic {
        for (i : 0 .. NODES - 1) {
            if
            :: vote[at(a, i)] == GRANTED ->
                count++;
                fence = (granted[at(a, i)] > fence -> granted[at(a, i)] : fence)
            :: vote[at(a, i)] == GRANTED && strays > 0 -> strays--; vote[at(a, i)] = OUT
            :: vote[at(a, i)] == TAKE -> vote[at(a, i)] = OUT
            :: vote[at(a, i)] == TAKE && strays > 0 ->
                strays--;
                vote[at(a, i)] = OUT;
                late[at(a, i)] = true
            fi
        }
        i = 0;
        if
#ifdef WRONG_MAJORITY_OF_THE_ANSWERS
        :: count > 0
        :: count == 0 -> goto failed
#else
        :: count >= MAJORITY
        :: count < MAJORITY -> goto failed
#endif
        fi;
        for (i : 0 .. NODES - 1) {
            if
            :: vote[at(a, i)] == GRANTED && granted[at(a, i)] < fence ->
#ifdef WRONG_TAKES_THE_LARGEST_GRANT
                skip
#else
                granted[at(a, i)] = fence;
                vote[at(a, i)] = RAISE
#endif
            :: else
            fi
        }
        i = 0;
        count = 0
    }

    /* It waits for as long as it likes for those that are to raise. */
    atomic {
        for (i : 0 .. NODES - 1) {
            if
            :: vote[at(a, i)] == GRANTED || vote[at(a, i)] == RAISED -> count++
            :: else
            fi
        }
        i = 0;
        if
#ifdef WRONG_MAJORITY_OF_THE_ANSWERS
        :: count > 0
        :: count == 0 -> goto failed
#else
        :: count >= MAJORITY
        :: count < MAJORITY -> goto failed
#endif
        fi;
        if
        :: promised == 0 -> goto failed
        :: promised > 0 -> win()
        fi
    }
    goto ended;

failed:
#ifdef WRONG_KEEPS_A_MINORITY
    atomic { valid[a] = 0; is_running[a] = false; busy--; goto over };
#else
    skip;
#endif

ended:
    /* A lease is over before the first byte of its release is written. A lost one is given up, too. */
    atomic {
        valid[a] = 0;
        is_running[a] = false;
        for (i : 0 .. NODES - 1) {
#ifdef WRONG_GIVES_TO_THOSE_WHO_ANSWERED
            owed[at(a, i)] = (vote[at(a, i)] == GRANTED || vote[at(a, i)] == RAISED);
#else
            owed[at(a, i)] = true;
#endif
            vote[at(a, i)] = (vote[at(a, i)] == RAISE -> RAISE : OUT)
        }
        i = 0;
        count = 0;
        fence = 0;
        hint[a] = (late_somewhere(a) -> hint[a] : 0);
        age[a] = TTL;
        busy--
    }
over:
    skip
}

/* When all has been carried out, nothing is left of those that failed. */
#ifdef STILL
proctype Rest()
{
end:
    timeout -> assert(busy > 0 || key[0] == 0 && key[1] == 0 && key[2] == 0)
}
#endif

init {
    atomic {
        byte a, n;
        last[1] = 1;            /* the nodes are not alike: they were not all there for all rounds */
        last[2] = 2;
#ifdef STILL
        run Rest();
#else
        run Clock();
#endif
#if defined(RESTART) || defined(JUMP)
        run Trouble();
#endif
        for (a : 0 .. ATTEMPTS - 1) {
            run Attempt(a);
            for (n : 0 .. NODES - 1) {
                run Link(a, n)
            }
        }
    }
}
