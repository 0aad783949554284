"""The one file of a trail that is being written: how it begins, takes blocks, and becomes durable.

Rule: nothing here decides anything; the writer does. Encrypting (ENCRYPTTRAIL) is the last thing done to a block, in
`append`: all else sees blocks as they were given. An error of `begin`, `append`, `sync` or `look` means that nobody
knows what the disk holds: then only a new start's recovery may go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from trails.crypt import FileKey, need_master_key, new_file_key
from trails.errors import AnewError
from trails.format import (
    BLOCK_HEADER_SIZE,
    DURABLE_OFFSET,
    SEAL_SIZE,
    BlockHeader,
    FileHeader,
    make_block_header,
    make_durable_end,
    make_file_header,
)
from trails.fs import File, Fs
from trails.keeping import Last, check_header, rescue, truncated, write_last
from trails.position import TrailName

PlainBlock = tuple[BlockHeader, bytes | memoryview]
"""As its writer was given it."""


class TrailFile:
    """An open file with its header; `end`: where the next block will stand.

    `reserve`: bytes to keep free behind each block, for the file's END and what encrypting adds.
    """

    def __init__(
        self, fs: Fs, trail: TrailName, file: File, header: FileHeader, key: FileKey | None, first_rba: int, end: int
    ) -> None:
        self.header = header
        self.end = end
        self._fs = fs
        self._file = file
        self._key = key
        self.reserve = BLOCK_HEADER_SIZE + (2 * SEAL_SIZE if key is not None else 0)
        self._seed = header.seed
        self._first_rba = first_rba
        self._path = trail.path(header.seqno)

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands behind its opening."""
        return self.end == self._first_rba

    def append(self, block: PlainBlock) -> BlockHeader:
        """Write a block at the end. Returns its header as it stands there."""
        rba = self.end
        header, payload = block if self._key is None else self._key.seal(*block, rba)
        made = make_block_header(header, self._seed, rba)
        if (found := self._file.size()) < rba:
            raise truncated(self._path, rba, found)
        if len(payload) < 1 << 16:
            self._file.write_at(rba, made + bytes(payload))
        else:
            self._file.write_at(rba, made)
            self._file.write_at(rba + BLOCK_HEADER_SIZE, payload)
        self.end = rba + header.size
        return header

    def sync(self, end: int, twice: bool = False) -> None:
        """fdatasync, then the durable end; `twice` syncs that too (before a file is left for good).

        Raises if the file was removed, replaced or cut: what is not there any more is not called durable.
        """
        self._file.datasync()
        if not self._file.is_at(self._path):  # then it may not be called durable
            rescue(self._fs, self._file, self._path)
        if (found := self._file.size()) < end:
            raise truncated(self._path, end, found)
        self._file.write_at(DURABLE_OFFSET, make_durable_end(end, self._seed))
        self._file.announce()
        if twice:
            self._file.datasync()

    def look(self) -> None:
        """Raise if the file was removed, replaced, cut or overwritten."""
        if not self._file.is_at(self._path):
            rescue(self._fs, self._file, self._path)
        if (found := self._file.size()) < self.end:
            raise truncated(self._path, self.end, found)
        check_header(self._file, self.header, self._path)

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()


def begin(fs: Fs, trail: TrailName, header: FileHeader, opening: Sequence[PlainBlock], encrypt: bool) -> TrailFile:
    """Make the next file, with the blocks that it opens with. Readers enter it only when a sync has set its end.

    It gets its name when its opening is on disk, and is noted as the newest one before anything is added.
    """
    key = None
    if encrypt:
        header, key = new_file_key(fs, trail, header)
    data = make_file_header(header)
    for block in opening:
        block_header, payload = block if key is None else key.seal(*block, len(data))
        data += make_block_header(block_header, header.seed, len(data)) + payload
    temp, path = trail.temp_path(header.seqno), trail.path(header.seqno)
    file = fs.create(temp)
    file.hold()
    file.write_at(0, data)
    file.datasync()
    need_master_key(fs, trail, header, temp)
    try:
        fs.rename(temp, path)
    except FileNotFoundError:
        raise AnewError(f"{temp} was removed while it was written", hint="START: nothing is lost") from None
    fs.sync_dir(trail.folder)
    write_last(fs, trail, Last(header.trail_id, header.seqno, header.alter))
    return TrailFile(fs, trail, file, header, key, len(data), len(data))
