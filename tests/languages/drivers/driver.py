#!/usr/bin/env python3
"""The driver of Python; see README.md here.

What is begun runs in the main thread, since Ctrl-C, Python's way to interrupt, reaches only that
one. Everything else is done by the thread that reads.
"""

import os
import queue
import signal
import sys
import threading
import time
from urllib.parse import unquote_to_bytes

import leasehold_lock as leasehold
from leasehold_lock.testing import Memory

todo: "queue.Queue[str]" = queue.Queue()
done: "queue.Queue[str]" = queue.Queue()
url = ""
client: leasehold.Client
events: leasehold.Events
locks: "dict[str, leasehold.Lock]" = {}
names: "dict[str, bytes]" = {}
leases: "dict[str, leasehold.Lease]" = {}
calls: "queue.Queue[leasehold.Event]" = queue.Queue()
candidate: "leasehold.Election | None" = None


def say(answer: str) -> None:
    sys.stdout.write(f"@@ {answer}\n")
    sys.stdout.flush()


def keep(key: str, lease: leasehold.Lease) -> str:
    leases[key] = lease
    return f"ok {lease.fence}"


def make_lock(key: str, name: bytes, options: "list[str]") -> str:
    given = dict(option.split("=") for option in options)
    times = {
        word: int(given[word]) / 1000 for word in ("ttl", "wait", "io_timeout") if word in given
    }
    renew = False if given.get("renew") == "no" else None
    names[key] = name
    locks[key] = client.lock(name, renew=renew, wait_mode=given.get("wait_mode"), **times)
    return "ok"


def take_name(name: bytes) -> str:
    lease = client.lock(name).try_acquire()
    if lease is None:
        return "busy"
    lease.release()
    return "ok"


def next_call(seconds: float) -> str:
    try:
        return spelled(calls.get(timeout=seconds))
    except queue.Empty:
        return "timeout"


def work(term: leasehold.Term) -> None:
    while not term.ended_within(20):
        pass


def leads() -> str:
    for _ in range(4000):
        if candidate is not None and candidate.fence is not None:
            return f"ok {candidate.fence}"
        time.sleep(0.005)
    return "timeout"


def spelled(event: leasehold.Event) -> str:
    reason = event.reason.name.lower() if event.kind is leasehold.EventKind.LOST else "-"
    return f"{event.kind.name.lower()} {reason} {event.fence}"


def next_event() -> str:
    event = events.next_within(20)
    return "timeout" if event is None else spelled(event)


def contend(turns: int, among: "list[str]") -> str:
    for turn in range(os.getpid(), os.getpid() + turns):
        name = among[turn % len(among)]
        with client.lock(name, ttl=10, wait=60) as lease:
            say(f"enter {name} {lease.fence}")
            value = int(sys.stdin.readline())
            say(f"leave {name} {lease.fence} {value + 1}")
            sys.stdin.readline()
    return "done"


def do(command: str, *words: str) -> str:
    global candidate, client, events, url
    if command == "open":
        url = words[0]
        if url.startswith("memory:"):
            Memory(url.partition(":")[2].partition("?")[0])
        client = leasehold.connect(url)
    elif command == "lock":
        return make_lock(words[0], unquote_to_bytes(words[1]), list(words[2:]))
    elif command == "try":
        lease = locks[words[1]].try_acquire()
        return "busy" if lease is None else keep(words[0], lease)
    elif command == "acquire":
        return keep(words[0], locks[words[1]].acquire())
    elif command == "acquire_within":
        return keep(words[0], locks[words[1]].acquire_within(int(words[2]) / 1000))
    elif command == "attach":
        return keep(words[0], locks[words[1]].attach(words[2], int(words[3])))
    elif command == "extend":
        leases[words[0]].extend(int(words[1]) / 1000 if len(words) > 1 else None)
    elif command == "release":
        leases[words[0]].release()
    elif command == "let_expire":
        leases[words[0]].let_expire(after=int(words[1]) / 1000)
    elif command == "detach":
        token, fence = leases[words[0]].detach()
        return f"ok {token} {fence}"
    elif command == "valid":
        return "yes" if leases[words[0]].valid else "no"
    elif command == "remaining":
        return f"ok {int(leases[words[0]].remaining * 1000)}"
    elif command == "events":
        events = client.events()
    elif command == "event":
        return next_event()
    elif command == "on_lost":
        leases[words[0]].on_lost(calls.put)
    elif command == "called":
        return next_call(int(words[0]) / 1000 if words else 20)
    elif command == "inspect":
        seen = locks[words[0]].inspect()
        return f"held {seen.fence or 0}" if seen.held else "free"
    elif command == "break":
        broken = locks[words[0]].break_held("python", *map(int, words[1:]))
        return "none" if broken is None else f"ok {broken}"
    elif command == "elect":
        candidate = client.election(names[words[0]], ttl=int(words[1]) / 1000)
        candidate.run_as_leader(work)
    elif command == "leads":
        return leads()
    elif command == "leader":
        state = candidate.leader()
        return "free" if state is None else f"held {state.fence or 0}"
    elif command == "withdraw":
        candidate.stop()
    elif command == "metric":
        lines = client.metrics_text().splitlines()
        values = [line[len(words[0]) + 1 :] for line in lines if line.startswith(words[0] + " ")]
        return f"ok {values[0]}" if values else "none"
    elif command == "take_empty_name":
        return take_name(b"")
    elif command == "take_long_name":
        return take_name(b"n" * int(words[0]))
    elif command == "fresh":
        lease = leasehold.connect(url).lock(names[words[0]]).try_acquire()
        return "busy" if lease is None else f"ok {lease.fence}"
    elif command == "close":
        client.close()
    elif command == "contend":
        return contend(int(words[0]), list(words[1:]))
    else:
        return "unsupported"
    return "ok"


def obey(line: str) -> str:
    try:
        return do(*line.split())
    except leasehold.Error as error:
        return error.name
    except KeyboardInterrupt:
        return "interrupted"


def in_a_child(line: str) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, obey(line).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def read() -> None:
    for line in iter(sys.stdin.readline, ""):
        command, _, rest = line.strip().partition(" ")
        if command == "begin":
            todo.put(rest)
            say("begun")
        elif command == "end":
            say(done.get())
        elif command == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            say("ok")
        elif command == "fork":
            say(in_a_child(rest))
        else:
            say(obey(line))
    os._exit(0)


# A script that runs tests in its background would have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=read, daemon=True).start()
while True:
    done.put(obey(todo.get()))
