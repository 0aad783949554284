"""The initial load beside changes, as it is built, as a state machine: every order of its steps can be tried.

    source     transactions are logged, and seen by others a little later; a snapshot has what is seen then
    target     the group's row (place, moves), the load's row (fence, chunks, left out), the table's state, its chunks
               and rows. A transaction there is one step; or its COMMIT is on its way when its process is cut off, holds
               its locks, and lands later or never
    process    a Replicat knows what it has read of the target when it looked last, and goes by that
    task       a chunk on its way: its snapshot is taken, and it commits whether or not its process lives

Rule: what decides stands in GUARDS, one word each, and can be taken away; the code that does it is named beside it.
Sets of transactions are numbers, a bit for each. Rows are {key: number of the transaction that wrote them last}.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

GUARDS: Final = {
    "fence": ("replicat/load/loadtables.py", "WHERE {self._here} AND fence = {fence}"),
    "count": ("replicat/load/load.py", "if found and int(found[0][0]) != self._state.load.chunks:"),
    "left out": ("replicat/load/chunk.py", "open_before + sum(not seen.sees_xid(xid) for xid in self.xids)"),
    "noted": ("replicat/load/load.py", "self._write(self.statements.left_out(row))"),
    "all noted": ("replicat/work/bychunk.py", "self.met.add(xid)"),
    "below": ("replicat/load/instantiating.py", "self._target.write(*tables.sees_all(newest))"),
    "membership": ("replicat/model/loading.py", "def sees_xid(self, xid: int) -> bool:"),
    "moves": ("replicat/targets/sql/rowtable.py", "AND moves = coalesce({mark}, moves)"),
    "outrun": ("replicat/load/instantiating.py", "self._target.write(*tables.outrun())"),
    "planned once": ("replicat/load/loadtables.py", "AND number = {row.number} AND seen = ''"),
    "past": ("replicat/load/load.py", "chunk.past"),
}
"""Each with the file and the words in it that do it."""
ALL: Final = frozenset(GUARDS)

UNKNOWN, WAITING, COPYING, LIVE = "unknown", "waiting", "copying", "live"
HIDDEN, SEEN = 1, 2
Rows = tuple[tuple[int, int], ...]
Op = tuple[str, int] | tuple[str]
"""("i", key), ("u", key), ("d", key), or ("T",)."""


class WrongError(Exception):
    """The target refuses a change that must fit, or shows what the source never was."""


class Scenario(NamedTuple):
    """`rows`: keys at the source before all; `border`: where the second chunk begins, 0 for none; `txns`: what may be
    committed.

    `anew`: so often a load begins anew for what is no change of a row, as a failover of the source.
    `cuts`: so many processes are cut off; `events`: INSTANTIATE or RELOAD; `known`: the load's row is there already.
    """

    rows: tuple[int, ...]
    border: int
    txns: tuple[tuple[Op, ...], ...]
    cuts: int = 0
    events: int = 0
    known: bool = True
    processes: int = 1
    tasks: int = 1
    anew: int = 0


class Chunk(NamedTuple):
    """What its snapshot saw, and the log's end then; None in place of it: planned."""

    seen: int
    past: int


class Known(NamedTuple):
    """What stands in the target, but for the rows; and so what a process has read of it."""

    place: int = 0
    moves: int = 0
    there: bool = True
    fence: int = 0
    count: int = 0
    left_out: int = 0
    below: int = 0
    state: str = WAITING
    chunks: tuple[Chunk | None, ...] = ()


class Task(NamedTuple):
    """A chunk on its way. `fence`: under which its round began."""

    number: int
    copied: Chunk
    fence: int


class Sent(NamedTuple):
    """A transaction whose COMMIT is on its way. `locks`: "g" the group's row, "l" the load's; `ops`: for the rows."""

    after: Known
    ops: tuple[tuple[Op, int], ...]
    locks: str


class State(NamedTuple):
    """All there is."""

    shown: tuple[int, ...]
    log: tuple[int, ...]
    known: Known
    rows: Rows
    processes: tuple[Known | None, ...]
    tasks: tuple[Task, ...]
    sent: tuple[Sent, ...]
    cuts: int
    events: int
    anew: int


Step = tuple[str, State]


class LoadModel:
    """One scenario under some of the guards."""

    def __init__(self, scenario: Scenario, guards: frozenset[str] = ALL) -> None:
        self.c, self.guards = scenario, guards

    def initial(self) -> State:
        """Nothing is copied; a process of a group without a load has looked already."""
        c = self.c
        known = Known() if c.known else Known(there=False, state=UNKNOWN)
        first = None if c.known else known
        others = (None,) * (c.processes - 1)
        return State((0,) * len(c.txns), (), known, (), (first, *others), (), (), c.cuts, c.events, c.anew)

    def steps(self, s: State) -> Iterator[Step]:
        """Whatever may happen next."""
        yield from self._source(s)
        for at, process in enumerate(s.processes):
            yield from self._process(s, at, process)
        for task in s.tasks:
            yield from self._commit(s, task)
        for one in s.sent:
            rest = s._replace(sent=tuple(other for other in s.sent if other is not one))
            yield "the COMMIT lands", self._landed(rest, one)
            yield "the COMMIT is lost", rest
        if s.events:
            yield from self._instantiate(s)

    def wrong(self, s: State) -> str:
        """What a table that is live shows; empty if that is right."""
        if s.known.state == LIVE and s.rows != self.source(s.log[: s.known.place]):
            return f"live at place {s.known.place}: {s.rows}, the source was {self.source(s.log[: s.known.place])}"
        return ""

    def done(self, s: State) -> bool:
        """All is applied, and the table is live."""
        return s.known.state == LIVE and s.known.place == len(s.log) and not s.sent

    # The source

    def source(self, log: tuple[int, ...], seen: int = -1) -> Rows:
        """Its rows behind these transactions of the log."""
        rows = dict.fromkeys(self.c.rows, -1)
        for number in log:
            for op in self.c.txns[number] if seen >> number & 1 else ():
                change(rows, op, number)
        return tuple(sorted(rows.items()))

    def _source(self, s: State) -> Iterator[Step]:
        for number, shown in enumerate(s.shown):
            if shown == HIDDEN:
                yield f"T{number} is seen", s._replace(shown=put(s.shown, number, SEEN))
            elif not shown and self._may(s, number):
                yield f"T{number} is logged", s._replace(shown=put(s.shown, number, HIDDEN), log=(*s.log, number))

    def _may(self, s: State, number: int) -> bool:
        """Whoever is not seen yet holds locks; a change must fit."""
        for other, shown in enumerate(s.shown):
            if shown == HIDDEN and any(meet(a, b) for a in self.c.txns[other] for b in self.c.txns[number]):
                return False
        rows = dict(self.source(s.log))
        try:
            for op in self.c.txns[number]:
                change(rows, op, number)
        except WrongError:
            return False
        return True

    @staticmethod
    def seen(s: State) -> int:
        return sum(1 << number for number, shown in enumerate(s.shown) if shown == SEEN)

    # Replicat

    def _process(self, s: State, at: int, process: Known | None) -> Iterator[Step]:
        anew = s._replace(processes=put(s.processes, at, s.known))
        if process is None:
            yield f"process {at} looks", anew
            return
        if process != s.known:
            yield f"process {at} looks anew", anew
        if "g" in self._locks(s) or (process.there and "l" in self._locks(s)):
            return
        if not self.is_told(s, process):
            return  # it looks anew, as above
        for label, sent in self._transactions(s, process):
            begun = s._replace(anew=s.anew - (label == "fails over"))
            landed = self._landed(begun, sent)
            yield f"process {at} {label}", landed._replace(processes=put(landed.processes, at, landed.known))
            if s.cuts:
                gone = put(s.processes, at, None)
                cut = begun._replace(processes=gone, sent=(*s.sent, sent), cuts=s.cuts - 1)
                yield f"process {at} is cut off: {label}", cut
        yield from self._begin_task(s, process)

    def is_told(self, s: State, process: Known) -> bool:
        """Its own row is as it has read it, and what it knows of the load counts."""
        if process.place != s.known.place or ("moves" in self.guards and process.moves != s.known.moves):
            return False
        return not ("count" in self.guards and process.there) or process.count == s.known.count

    def _transactions(self, s: State, p: Known) -> Iterator[tuple[str, Sent]]:
        """Of a process, by what it knows; they write what it has read, but for what a statement raises."""
        locks = "gl" if p.there else "g"
        base = s.known._replace(moves=s.known.moves + 1)
        if p.state == WAITING:
            yield "plans", Sent(base._replace(state=COPYING, chunks=self._planned), (), locks)
        if p.state == COPYING and s.anew:
            again = base._replace(state=WAITING, chunks=(), fence=p.fence + 1)
            yield "fails over", Sent(again, ((("T",), -1),), locks)
        if p.state == COPYING and all(chunk is not None for chunk in p.chunks):
            passed = all(chunk is not None and p.place >= chunk.past for chunk in p.chunks)
            if passed or "past" not in self.guards:
                yield "says live", Sent(base._replace(state=LIVE, chunks=()), (), locks)
        for size in (1, 2):
            if p.place + size <= len(s.log):
                yield self._batch(s, p, base, size, locks)

    def _batch(self, s: State, p: Known, base: Known, size: int, locks: str) -> tuple[str, Sent]:
        ops: list[tuple[Op, int]] = []
        noted = 0
        for place in range(p.place, p.place + size):
            number = s.log[place]
            for op in self.c.txns[number]:
                verdict = self._judge(p, place, number, op)
                if verdict == "anew":
                    again = base._replace(state=WAITING, chunks=(), fence=p.fence + 1)
                    return "begins anew", Sent(again, ((("T",), number),), locks)
                if verdict == "apply":
                    ops.append((op, number))
                if verdict == "note" or ("all noted" in self.guards and p.state in (WAITING, COPYING)):
                    noted |= 1 << number
        after = base._replace(place=p.place + size)
        if noted:
            kept = p.left_out | noted if "noted" in self.guards else p.left_out
            after = after._replace(fence=p.fence + 1, left_out=kept)
        return f"applies {size}", Sent(after, tuple(ops), locks)

    def _judge(self, p: Known, place: int, number: int, op: Op) -> str:
        if p.state in (UNKNOWN, LIVE):
            return "apply"
        if p.state == WAITING:
            return "note"
        if op[0] == "T":
            fits = all(self._by_chunk(chunk, place, number) != "apply" for chunk in p.chunks)
            return "note" if fits else "anew"
        return self._by_chunk(p.chunks[self.chunk_of(op[1])], place, number)

    def _by_chunk(self, chunk: Chunk | None, place: int, number: int) -> str:
        if chunk is None:
            return "note"
        has = chunk.seen >> number & 1 if "membership" in self.guards else place < chunk.past
        return "skip" if has else "apply"

    @property
    def _planned(self) -> tuple[None, ...]:
        return (None, None) if self.c.border else (None,)

    def chunk_of(self, key: int) -> int:
        return int(0 < self.c.border <= key)

    # Chunks

    def _begin_task(self, s: State, p: Known) -> Iterator[Step]:
        """Begun by what the process knows; the snapshot must see what was left out."""
        seen = self.seen(s)
        must = (p.left_out if "left out" in self.guards else 0) | (p.below if "below" in self.guards else 0)
        if p.state != COPYING or must & ~seen:
            return
        for number, chunk in enumerate(p.chunks):
            task = Task(number, Chunk(seen, len(s.log)), p.fence)
            if chunk is None and len(s.tasks) < self.c.tasks and task not in s.tasks:
                yield f"chunk {number} is read", s._replace(tasks=(*s.tasks, task))

    def _commit(self, s: State, task: Task) -> Iterator[Step]:
        """Its rows, and that it is copied; or nothing."""
        if "l" in self._locks(s):
            return
        rest = s._replace(tasks=tuple(other for other in s.tasks if other is not task))
        chunks = s.known.chunks
        fits = s.known.state == COPYING and (chunks[task.number] is None or "planned once" not in self.guards)
        if not fits or ("fence" in self.guards and task.fence != s.known.fence):
            yield f"chunk {task.number} is rolled back", rest
            return
        rows = dict(s.rows)
        for key, value in self.source(s.log, task.copied.seen):
            if self.chunk_of(key) == task.number:
                if key in rows:
                    raise WrongError(f"chunk {task.number} meets a row of key {key}")
                rows[key] = value
        known = s.known._replace(chunks=put(chunks, task.number, task.copied), count=s.known.count + 1)
        yield f"chunk {task.number} commits", rest._replace(rows=tuple(sorted(rows.items())), known=known)

    # Operators

    def _instantiate(self, s: State) -> Iterator[Step]:
        """INSTANTIATE with TRUNCATE, or RELOAD: the table is emptied, and waits to be loaded."""
        locks = self._locks(s)
        known = s.known
        if "l" in locks or ("g" in locks and not known.there and "outrun" in self.guards):
            return
        if known.there:
            known = known._replace(fence=known.fence + 1, count=known.count + 1)
        elif "outrun" in self.guards:
            known = known._replace(moves=known.moves + 1)
        logged = sum(1 << number for number in s.log)
        known = known._replace(there=True, state=WAITING, chunks=(), left_out=0, below=logged)
        yield "INSTANTIATE", s._replace(known=known, rows=(), events=s.events - 1)

    @staticmethod
    def _locks(s: State) -> str:
        return "".join(one.locks for one in s.sent)

    def _landed(self, s: State, one: Sent) -> State:
        """The transaction is committed: what others have raised since stays raised."""
        rows = dict(s.rows)
        for op, number in one.ops:
            change(rows, op, number)
        after = one.after
        if "l" not in one.locks:  # it knew of no load, and writes nothing of it
            after = s.known._replace(place=after.place, moves=s.known.moves + 1)
        return s._replace(known=after, rows=tuple(sorted(rows.items())))


def normal(s: State) -> State:
    """The same with small numbers: of `moves`, `count` and `fence` it counts which are equal, and which is later."""
    known = [s.known, *(one for one in s.processes if one), *(one.after for one in s.sent)]
    moves = _ranks(one.moves for one in known)
    count = _ranks(one.count for one in known)
    fence = _ranks([*(one.fence for one in known), *(task.fence for task in s.tasks)])

    def of(one: Known) -> Known:
        return one._replace(moves=moves[one.moves], count=count[one.count], fence=fence[one.fence])

    return s._replace(
        known=of(s.known), processes=tuple(one and of(one) for one in s.processes),
        tasks=tuple(sorted((task._replace(fence=fence[task.fence]) for task in s.tasks), key=repr)),
        sent=tuple(one._replace(after=of(one.after)) for one in s.sent),
    )  # fmt: skip


def _ranks(numbers: Iterable[int]) -> dict[int, int]:
    return {number: rank for rank, number in enumerate(sorted(set(numbers)))}


def change(rows: dict[int, int], op: Op, number: int) -> None:
    """One change of {key: transaction}. Raises WrongError where it does not fit."""
    if op[0] == "T":
        rows.clear()
        return
    what, key = op[0], op[1]  # type: ignore[misc]  # all others have a key
    if (key in rows) == (what == "i"):
        raise WrongError(f"{what} of T{number} meets {'a' if key in rows else 'no'} row of key {key}")
    if what == "d":
        del rows[key]
    else:
        rows[key] = number


def meet(one: Op, other: Op) -> bool:
    """Whether two changes wait for each other."""
    return one[0] == "T" or other[0] == "T" or one[1] == other[1]  # type: ignore[misc]


def put(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    """The same with one item changed."""
    return (*items[:at], item, *items[at + 1 :])


# --- Trying every order -----------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """`wrong`: what a trace of steps came to; empty where nothing is wrong and each state can come to an end."""

    states: int
    wrong: str = ""
    trace: tuple[str, ...] = ()


def search(model: LoadModel, limit: int = 400_000) -> Result:
    """Every state that can be come to, the shortest ways first; then whether each can come to an end."""
    first = normal(model.initial())
    came: dict[State, tuple[State | None, str]] = {first: (None, "")}
    before: dict[State, list[State]] = {}
    todo, ends = [first], []
    while todo:
        following: list[State] = []
        for state in todo:
            if model.done(state):
                ends.append(state)
            steps = model.steps(state)
            while True:
                try:
                    label, after = next(steps)
                except StopIteration:
                    break
                except WrongError as error:
                    return Result(len(came), str(error), _trace(came, state))
                after = normal(after)
                before.setdefault(after, []).append(state)
                if after in came:
                    continue
                came[after] = (state, label)
                if wrong := model.wrong(after):
                    return Result(len(came), wrong, _trace(came, after))
                following.append(after)
        if len(came) > limit:
            return Result(len(came), "too many states", ())
        todo = following
    return _stuck(came, before, ends)


def _stuck(came: dict[State, tuple[State | None, str]], before: dict[State, list[State]], ends: list[State]) -> Result:
    good, todo = set(ends), list(ends)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in good:
                good.add(state)
                todo.append(state)
    stuck = next((state for state in came if state not in good), None)
    if stuck is None:
        return Result(len(came))
    return Result(len(came), "no end can be come to from here", _trace(came, stuck))


def _trace(came: dict[State, tuple[State | None, str]], state: State) -> tuple[str, ...]:
    labels = []
    at: State | None = state
    while at is not None:
        at, label = came[at]
        labels.append(label)
    return tuple(reversed(labels[:-1]))
