"""What a crash left of a trail, found and mended: the first thing that a writer does, under the trail's lock.

Rule: FORMAT.md's table says what each crash leaves. From the durable end on, each block whose CRC holds is kept, as a
reader may have seen it before the power went; that tail is written again, and the rest is cut. Nothing is appended
here: the writer ends the file that is found, and begins the next.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trails.codec import check_defined, decode_defs, state_of
from trails.errors import DamageError, MismatchError
from trails.format import COMPLETE, BlockHeader, BlockKind, FileHeader, Indicator
from trails.fs import Fs
from trails.keeping import Last, read_last
from trails.position import Position, TrailName
from trails.record import TableDef
from trails.segment import Segment, open_segment
from trails.trailfile import TrailFile


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands in the trail up to its end: all that a restart needs to know."""

    csn: str = ""
    origin: Position = field(default=Position(0, 0))
    open: bool = False
    alter: int = 0
    trail_id: bytes = b""
    home_id: str = ""
    group: str = ""
    source: dict[str, str] = field(default_factory=dict)
    copies: bytes = b""
    state: str = ""
    """The source's own, which belongs to `origin`."""

    @classmethod
    def before(cls, header: FileHeader) -> Mark:
        """At the begin of a file."""
        return cls(
            header.last_csn, header.last_origin, header.open, header.alter, header.trail_id,
            header.home_id, header.group, dict(header.source), header.copies, header.last_state,
        )  # fmt: skip

    def after(self, header: BlockHeader) -> Mark:
        """Behind one more block, but for the state that it may bear."""
        opened = self.open
        if header.kind == BlockKind.RESTART or header.indicator in COMPLETE:
            opened = False
        elif header.indicator == Indicator.BEGIN:
            opened = True
        return replace(self, csn=header.csn, origin=header.origin, open=opened)


class InForce:
    """The definitions of tables that are in force in a trail."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], TableDef] = {}
        """By schema and name."""
        self._weight = 0

    def learn(self, defs: Sequence[TableDef], where: str) -> None:
        """Take definitions in force. Raises DamageError beyond what a trail may define."""
        for definition in defs:
            old = self.known.get((definition.schema, definition.name))
            self._weight += definition.weight - (old.weight if old else 0)
            self.known[definition.schema, definition.name] = definition
        check_defined(self._weight, where)


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in a trail. `noted`: the newest file that any writer of it began; `file`: the last one, if any.

    `ended`: the file has its END.
    """

    noted: Last | None
    in_force: InForce
    mark: Mark = field(default_factory=Mark)
    file: TrailFile | None = None
    ended: bool = False


def recover(fs: Fs, trail: TrailName, copies: bytes) -> Found:
    """Mend the trail's last file. `copies`: the trail that this one must be a copy of.

    Raises DamageError, VersionError, KeyMissingError, and MismatchError if it is another trail's.
    """
    names = fs.listdir(trail.folder)
    seqnos = trail.seqnos(names)
    noted = read_last(fs, trail)
    if not seqnos:
        _remove_unfinished(fs, trail, names)
        return Found(noted, InForce())
    segment = open_segment(fs, trail, seqnos[-1], write=True)
    segment.file.hold()  # the trail's lock may have been deleted, and so be another than its holder's
    _remove_unfinished(fs, trail, names)
    _check_ours(segment, noted, copies)
    key = segment.key if segment.header.key_id else None  # its END is sealed as all before it
    scan = _Scan(segment, str(trail))
    end = scan.mend()
    file = TrailFile(fs, trail, segment.file, segment.header, key, segment.first_rba, end)
    return Found(noted, scan.in_force, scan.mark, file, segment.ended)


def _remove_unfinished(fs: Fs, trail: TrailName, names: Sequence[str]) -> None:
    """What a crash left of a file that was to become the next one; of a writer that lives it would be the next."""
    for name in names:
        if name.startswith(trail.prefix) and name.endswith(".tmp"):
            fs.remove(os.path.join(trail.folder, name))


def _check_ours(segment: Segment, noted: Last | None, copies: bytes) -> None:
    header = segment.header
    if noted is not None and header.trail_id != noted.trail_id:
        raise MismatchError(
            f"{segment.path}: replaced by another trail's file: expected trail {noted.trail_id.hex()}, "
            f"found {header.trail_id.hex()}",
            hint="Put the right file back, then START. See docs/recovery.md#deleted-under-writer",
        )
    if header.copies != copies:
        raise MismatchError(
            f"{segment.path}: this trail copies trail {header.copies.hex() or '(none)'}, "
            f"not {copies.hex() or '(none)'}: the source trail was made anew",
            hint="Give the new source a trail of its own (DELETE and ADD RMTTRAIL with another name)",
        )


class _Scan:
    """The last file, block by block."""

    def __init__(self, segment: Segment, trail: str) -> None:
        self.mark = Mark.before(segment.header)
        self.in_force = InForce()
        self._segment = segment
        self._trail = trail
        self._last: tuple[int, BlockHeader] | None = None
        self._stated: tuple[int, BlockHeader] | None = None  # the last one with a state

    def mend(self) -> int:
        """Check all that is durable, keep what is whole behind it, cut the rest. Returns the file's end."""
        segment = self._segment
        durable = segment.read_durable_end()
        self._durable(durable)
        begin = max(durable, segment.first_rba)
        end = self._tail(begin)
        if self._last is not None and segment.header.key_id:
            segment.plain(*self._last)  # the mark is taken from it
        if self._stated is not None:
            state = state_of(segment.plain(*self._stated)[1], f"{segment.path}, RBA {self._stated[0]}")
            self.mark = replace(self.mark, state=state)
        # A reader may have seen the tail before the power went, and a failed fsync may have left its pages looking
        # clean: writing the same bytes again is the only way to be sure that they reach the disk.
        segment.rewrite(begin, end)
        return end

    def _durable(self, durable: int) -> None:
        rba = self._segment.first_rba
        while rba < durable:
            rba = self._take(rba, self._segment.block_header(rba, durable))

    def _tail(self, rba: int) -> int:
        size = self._segment.file.size()
        while rba < size and not self._segment.ended:
            try:
                header = self._segment.block_header(rba, size)
                self._segment.plain(rba, header, sealed=True)
            except DamageError:
                return rba  # beyond the durable end this is what a crash leaves, and nobody was told of it
            rba = self._take(rba, header)
        return rba

    def _take(self, rba: int, header: BlockHeader) -> int:
        if header.kind == BlockKind.END:
            self._segment.ended = True
        elif header.kind == BlockKind.METADATA:
            defs = decode_defs(*self._segment.plain(rba, header), f"{self._segment.path}, RBA {rba}")
            self.in_force.learn(defs, self._trail)
        if header.has_state and not self.mark.copies:  # in a copy it belongs to another trail's origins
            self._stated = rba, header
        self.mark = self.mark.after(header)
        self._last = rba, header
        return rba + header.size
