"""Leader election: who leads, what the work is told, and what ends it."""

import asyncio
import gc
import threading
from typing import Any

import pytest
from conftest import Run, Until

import leasehold_lock as leasehold
from leasehold_lock import Election, ElectionState, Leadership, LossReason, Term, TermEnd, aio

#: Of a lease that stays held on a busy machine.
TTL = 6


class Worker:
    """Runs as a leader in a thread, until its term ends or it is told to return."""

    def __init__(self, election: Election) -> None:
        self.election = election
        self.fences: list[int] = []
        self.ends: list[Any] = []
        self.go_on = threading.Event()
        self.raised: list[BaseException] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.election.run_as_leader(self._work)
        except BaseException as error:
            self.raised.append(error)

    def _work(self, term: Term) -> None:
        self.fences.append(term.fence)
        while not self.go_on.is_set() and not term.ended_within(0.01):
            pass
        self.ends.append(term.end)

    def finish(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_c1_c2_one_leads_and_another_one_follows(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    one = Worker(client.election(name, ttl=TTL))
    until(lambda: one.fences)
    two = Worker(other.election(name, ttl=TTL))
    until(lambda: two.election.state is ElectionState.STANDBY)
    assert one.election.is_leader and one.election.fence == one.fences[0]
    assert not two.election.is_leader and two.election.fence is None
    assert one.election.healthy and two.election.healthy
    leader = two.election.leader()
    assert leader is not None and leader.fence == one.fences[0] and leader.held

    one.election.resign()
    until(lambda: two.fences)
    assert two.fences[0] > one.fences[0] and one.ends == [TermEnd.RESIGNED]
    one.election.stop()
    one.finish()
    two.election.stop()
    two.finish()
    assert not one.raised and not two.raised
    assert two.election.leader() is None and two.election.state is ElectionState.IDLE


def test_c2_c14_work_that_ends_gives_the_leadership_up(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    election = client.election(name, ttl=TTL)
    seen: list[int] = []
    election.run_as_leader(lambda term: seen.append(term.fence))
    assert len(seen) == 1 and other.election(name).leader() is None

    class Failed(Exception):
        pass

    def fail(term: Term) -> None:
        raise Failed(term.fence)

    with pytest.raises(Failed):
        client.election(name, ttl=TTL).run_as_leader(fail)
    assert other.election(name).leader() is None

    again = client.election(name, ttl=TTL, stand_again=True)

    def twice(term: Term) -> None:
        seen.append(term.fence)
        if len(seen) == 3:
            again.stop()

    again.run_as_leader(twice)
    assert len(seen) == 3 and sorted(seen) == seen


def test_c9_a_leader_whose_lock_was_broken_is_told_and_stands_again(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    told: list[Leadership] = []
    worker = Worker(client.election(name, ttl=TTL, on_change=told.append))
    until(lambda: worker.fences)
    other.lock(name).break_held("operator")
    until(lambda: len(worker.fences) == 2)
    first, second = worker.fences
    assert second > first and worker.ends[0] is TermEnd.LOST
    until(lambda: len(told) == 3)
    assert Leadership(first, None, LossReason.NONE) == told[0]
    assert Leadership(first, TermEnd.LOST, LossReason.BROKEN) in told
    assert Leadership(second, None, LossReason.NONE) in told
    worker.election.stop()
    worker.finish()
    until(lambda: "leasehold-term" not in [thread.name for thread in threading.enumerate()])
    assert told[3:] == [Leadership(second, TermEnd.RESIGNED, LossReason.NONE)]


def test_c9_work_that_does_not_stop_is_not_healthy(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    election, leading, go_on = client.election(name, ttl=TTL), threading.Event(), threading.Event()

    def deaf(term: Term) -> None:
        leading.set()
        assert go_on.wait(20)

    thread = threading.Thread(target=election.run_as_leader, args=(deaf,))
    thread.start()
    assert leading.wait(20)
    election.stop()
    assert election.healthy
    until(lambda: election.state is ElectionState.STOPPING)
    other.lock(name).break_held("operator")
    until(lambda: not election.healthy)
    until(lambda: election.state is ElectionState.OVERDUE)
    go_on.set()
    thread.join(20)
    assert not thread.is_alive() and election.healthy


def test_a_with_statement_stands_and_resigns(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    with client.election(name, ttl=TTL).stand() as term:
        assert term.is_leader and term.end is None and 0 < term.remaining <= TTL
        with pytest.raises(leasehold.Timeout):
            other.election(name).stand_within(0.05)
    assert not term.is_leader and term.end is TermEnd.RESIGNED and term.remaining == 0
    assert term.loss is LossReason.NONE
    assert other.election(name).leader() is None
    with pytest.raises(leasehold.Lost), client.election(name, ttl=TTL).stand() as term:
        other.lock(name).break_held("operator")
        assert term.ended_within(20)


def test_c2_a_term_that_the_program_has_lost_is_resigned_and_its_end_is_told(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    told: list[Leadership] = []
    election = client.election(name, ttl=30, on_change=told.append)
    fence = election.stand().fence
    gc.collect()
    with other.election(name, ttl=30).stand_within(60) as term:
        assert term.fence > fence
    until(lambda: len(told) == 2)
    assert told[1] == Leadership(fence, TermEnd.RESIGNED, LossReason.NONE)
    until(lambda: "leasehold-term" not in [thread.name for thread in threading.enumerate()])
    assert election.state is ElectionState.IDLE
    # The election can be used again.
    with election.stand_within(60) as term:
        assert term.fence > fence


def test_bad_input_is_one_clear_error(redis_client: leasehold.Client, name: str) -> None:
    with pytest.raises(leasehold.BadArgument, match="empty"):
        redis_client.election("")
    with pytest.raises(leasehold.BadArgument, match="100 ms"):
        redis_client.election(name, ttl=0.05)
    with pytest.raises(leasehold.BadArgument, match="grace"):
        redis_client.election(name, grace=-1)
    with pytest.raises(TypeError, match="on_change"):
        redis_client.election(name, on_change=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stand_again"):
        redis_client.election(name, stand_again=1)  # type: ignore[arg-type]
    election = redis_client.election(name, ttl=TTL)
    with pytest.raises(TypeError, match="cannot be called"):
        election.run_as_leader(None)  # type: ignore[arg-type]

    async def work(term: Term) -> None:
        pass

    with pytest.raises(TypeError, match="aio.run_as_leader"):
        election.run_as_leader(work)

    def nested(term: Term) -> None:
        with pytest.raises(leasehold.WouldDeadlock):
            election.stand()

    election.run_as_leader(nested)
    with pytest.raises(TypeError, match="client.election"):
        Election(None, None, "n", False, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="election.run_as_leader"):
        Term(None, None)  # type: ignore[arg-type]
    redis_client.close()
    with pytest.raises(leasehold.Closed):
        election.stand()


def test_ctrl_c_ends_the_standing_and_the_work(run: Run, url: str) -> None:
    done = run(
        """
        import os, signal, sys, threading
        import leasehold_lock as leasehold
        client, other = leasehold.connect(sys.argv[1]), leasehold.connect(sys.argv[1])
        def interrupt_when(condition):
            def wait():
                while not condition():
                    pass
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=wait).start()
        with other.lock("n", ttl=30).acquire():
            election = client.election("n", ttl=30)
            interrupt_when(lambda: election.state is leasehold.ElectionState.STANDBY)
            try:
                election.run_as_leader(print)
            except KeyboardInterrupt:
                print("standing ended", election.state.name)
        election = client.election("m", ttl=30)
        begun = []
        interrupt_when(lambda: begun)
        def work(term):
            begun.append(term)
            term.ended_within(60)
        try:
            election.run_as_leader(work)
        except KeyboardInterrupt:
            print("work ended", other.election("m").leader())
        """,
        url,
    )
    assert done.stdout == "standing ended IDLE\nwork ended None\n", done.stderr


def test_an_interpreter_ends_in_the_midst_of_a_term(run: Run, url: str) -> None:
    done = run(
        """
        import sys
        import leasehold_lock as leasehold
        client = leasehold.connect(sys.argv[1])
        election = client.election("n", ttl=30, on_change=lambda change: print(change.end))
        term = election.stand()
        """,
        url,
    )
    assert done.returncode == 0 and done.stdout.startswith("None\n"), done.stderr
    assert done.stderr == ""


# ---- asyncio -----------------------------------------------------------------------------------


def test_c9_work_of_a_task_is_cancelled_when_its_term_ends(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    election = client.election(name, ttl=TTL)
    seen: list[str] = []

    async def work(term: Term) -> None:
        seen.append("elected")
        if len(seen) == 1:
            await asyncio.to_thread(other.lock(name).break_held, "operator")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    asyncio.run(asyncio.wait_for(aio.run_as_leader(election, work), 60))
    assert seen == ["elected", "cancelled", "elected"]
    assert other.election(name).leader() is None


def test_a_task_that_is_cancelled_ends_the_work_or_the_standing(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    async def runs() -> None:
        leading = asyncio.Event()

        async def work(term: Term) -> None:
            leading.set()
            await asyncio.sleep(60)

        one, two = client.election(name, ttl=TTL), other.election(name, ttl=TTL)
        first = asyncio.create_task(aio.run_as_leader(one, work))
        await asyncio.wait_for(leading.wait(), 20)
        second = asyncio.create_task(aio.run_as_leader(two, work))
        while two.state is not ElectionState.STANDBY:
            await asyncio.sleep(0.01)
        for task, election in ((second, two), (first, one)):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert election.state is ElectionState.IDLE
        assert await asyncio.to_thread(two.leader) is None

    asyncio.run(asyncio.wait_for(runs(), 60))


def test_work_of_a_task_that_raises_ends_it(client: leasehold.Client, name: str) -> None:
    async def work(term: Term) -> None:
        raise ValueError(term.fence)

    election = client.election(name, ttl=TTL)
    with pytest.raises(ValueError):
        asyncio.run(aio.run_as_leader(election, work))
    assert election.leader() is None

    async def stops() -> None:
        task = asyncio.create_task(aio.run_as_leader(election, waits))
        while not election.is_leader:
            await asyncio.sleep(0.01)
        election.stop()
        await task

    async def waits(term: Term) -> None:
        await asyncio.sleep(60)

    asyncio.run(asyncio.wait_for(stops(), 60))
    assert election.leader() is None
