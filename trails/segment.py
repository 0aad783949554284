"""One trail file, open: its checked header, its durable end, and checked block headers by RBA."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trails.crypt import FileKey, file_key
from trails.errors import MEND, DamageError, GateError, MismatchError
from trails.format import (
    BLOCK_HEADER_SIZE,
    BODY_OFFSET,
    DURABLE_OFFSET,
    BlockHeader,
    FileHeader,
    check_payload,
    parse_block_header,
    parse_durable_end,
    parse_file_header,
    parse_header_length,
)
from trails.fs import File, Fs
from trails.position import TrailName

# A reader may meet the 12 bytes of the durable end half-written: it looks again so often, with such a pause in
# seconds, before it says damage.
DURABLE_TRIES = 5
DURABLE_PAUSE = 0.002


@dataclass(slots=True, eq=False)
class Segment:
    """A file of a trail. `ended` is for its user: an END block was met."""

    file: File
    path: str
    header: FileHeader
    first_rba: int
    _fs: Fs
    _trail: TrailName
    _key: FileKey | None = None
    ended: bool = False

    def read_durable_end(self) -> int:
        """The durable end as it stands now; DamageError if its CRC stays wrong or it points beyond the file."""
        for attempt in range(DURABLE_TRIES):
            data = self.file.read_at(DURABLE_OFFSET, 12)
            try:
                end = parse_durable_end(data, self.header.seed, self.path)
                break
            except DamageError:
                if attempt == DURABLE_TRIES - 1:
                    raise
                self._fs.host.sleep(DURABLE_PAUSE)
        if end > self.file.size():
            raise DamageError(
                f"{self.path}, RBA {self.file.size()}: damaged: expected {end} durable bytes, found {self.file.size()}",
                hint=f"The file was truncated. {MEND}",
            )
        return end

    def block_header(self, rba: int, limit: int) -> BlockHeader:
        """The checked header of the block at `rba`, which must end at or before `limit`."""
        data = self.file.read_at(rba, min(BLOCK_HEADER_SIZE, limit - rba))
        header = parse_block_header(data, self.header.seed, rba, self.path)
        if rba + header.size > limit:
            raise DamageError(
                f"{self.path}, RBA {rba}: damaged: expected a block of {header.size} bytes, found {limit - rba}",
                hint=MEND,
            )
        return header

    def plain(self, rba: int, header: BlockHeader, *, sealed: bool = False) -> tuple[BlockHeader, bytes]:
        """The block at `rba` as its writer was given it: decrypted if it is encrypted; or `sealed`, as it is stored.

        Raises KeyMissingError where the key is not here, DamageError if CRC or key say that it was changed.
        """
        payload = self.file.read_at(rba + BLOCK_HEADER_SIZE, header.payload_len)
        check_payload(header, payload, self.path, rba)
        if sealed:
            return header, payload
        if header.is_encrypted:
            return self.key.open(header, payload, rba, self.path)
        if self.header.key_id:
            # Its writer seals every block: this one was put there, or stripped of its flag.
            raise DamageError(
                f"{self.path}, RBA {rba}: damaged: expected an encrypted payload, as the file's header names a key; "
                "found a plain one",
                hint=MEND,
            )
        return header, payload

    @property
    def key(self) -> FileKey:
        """The file's key; looked for when first asked. Raises KeyMissingError, or DamageError if it was changed."""
        if self._key is None:
            self._key = file_key(self._fs, self._trail, self.header, self.path)
        return self._key

    def rewrite(self, start: int, end: int) -> None:
        """Write the bytes from `start` to `end` once more, and cut all that follows."""
        piece = 1 << 20
        for rba in range(start, end, piece):
            self.file.write_at(rba, self.file.read_at(rba, min(piece, end - rba)))
        if self.file.size() > end:
            self.file.truncate(end)

    def close(self) -> None:
        """Give the descriptor back."""
        self.file.close()


def open_segment(fs: Fs, trail: TrailName, seqno: int, *, write: bool = False) -> Segment:
    """Open file `seqno` and check its header; FileNotFoundError if there is none."""
    path = trail.path(seqno)
    file = fs.open(path, write=write)
    try:
        start = file.read_at(0, BODY_OFFSET)
        header, first_rba = parse_file_header(file.read_at(0, parse_header_length(start, path)), path)
        if (header.prefix, header.seqno) != (trail.prefix, seqno):
            raise DamageError(
                f"{path}: expected file {trail.file_name(seqno)}, found the header of "
                f"{header.prefix}{header.seqno:09d}: the file was renamed or copied",
                hint=f"Put the right file back into {os.path.dirname(path)}",
            )
        if trail.sealed and not header.key_id:
            raise MismatchError(
                f"{path}: DECRYPTTRAIL says that the trail is encrypted, found a plain file",
                hint="If ENCRYPTTRAIL was switched off, or on after this file, leave DECRYPTTRAIL out until it is read",
            )
    except BaseException:
        file.close()
        raise
    return Segment(file, path, header, first_rba, fs, trail)


def goes_on_from(fs: Fs, trail: TrailName, seqno: int) -> int | None:
    """Which file this one says that it follows, over a gap; None also where it can't be read, as others tell that."""
    try:
        segment = open_segment(fs, trail, seqno)
    except (GateError, FileNotFoundError):
        return None
    segment.close()
    return segment.header.follows
