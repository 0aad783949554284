"""ENCRYPTTRAIL: what is sealed opens in its own place only, keys that are not here are named, headers need none."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.collector import Collector
from pump.feed import Feed
from tests.support.hostile import hostile
from tests.support.trail_script import IDENTITY, MAX_BYTES, SCRIPT, expected, transactions, write_tx
from trails import format as fmt
from trails.crypt import KEPT_BYTES, KEY_SIZE, FileKey, MasterKey, Wallet, load_wallet, save_wallet, wallet_path
from trails.errors import AnewError, DamageError, KeyMissingError, ProtocolError, VersionError
from trails.format import BlockHeader, BlockKind, Indicator
from trails.fs import RealFs
from trails.link import wire
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.recovery import Mark
from trails.segment import open_segment
from trails.show import dump
from trails.testing import FaultFs
from trails.writer import TrailWriter

FS = RealFs()
KEY, OTHER = (MasterKey(1, 1, bytes([n]) * KEY_SIZE) for n in (7, 8))
ID = bytes(range(16))
HEADER = BlockHeader(BlockKind.DATA, Indicator.WHOLE, 1, 9, 30, 2, 1, Position(0, 5), 99, "00000001", 0)
PLAIN = b"plaintext"


def make_home(folder: Path, wallet: Wallet | None = None) -> TrailName:
    """A home's dirdat and dirwlt."""
    for name in ("dirdat", "dirwlt"):
        FS.makedirs(str(folder / name))
    if wallet:
        save_wallet(FS, str(folder / "dirwlt"), wallet)
    return TrailName(str(folder / "dirdat"), "lt")


def writer_of(trail: TrailName, **options: object) -> TrailWriter:
    """A writer that encrypts, as an Extract's."""
    options = {"max_bytes": MAX_BYTES, "start": Mark(), "restart_open": True, "encrypt": True} | options
    return TrailWriter.open(FS, trail, IDENTITY, **options)  # type: ignore[arg-type]


@pytest.fixture
def trail(tmp_path):
    """The scripted trail, encrypted, in several files of a home."""
    name = make_home(tmp_path, Wallet("mine", (KEY,)))
    writer = writer_of(name)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.close()
    return name


def content(trail: TrailName) -> bytes:
    """All bytes of all files."""
    names = sorted(os.listdir(trail.folder))
    return b"".join((Path(trail.folder) / name).read_bytes() for name in names if not name.startswith("."))


# --- one payload -----------------------------------------------------------------------------------------------------


def sealed_by(key: FileKey) -> tuple[BlockHeader, bytes]:
    """The plain block, sealed."""
    header, sealed = key.seal(HEADER, PLAIN, 4096)
    return header, bytes(sealed)


def test_large_and_small_payloads_follow_each_other():
    """The memory that is used again shows nothing of the payload before, and a huge one keeps none."""
    key = FileKey(KEY.key, ID, 3)
    for size in (1 << 20, 10, KEPT_BYTES, 300):
        payload = os.urandom(size)
        header, sealed = key.seal(replace(HEADER, payload_len=size), payload, 4096)
        assert key.open(header, bytes(sealed), 4096, "f")[1] == payload
    assert len(key._buffer) == (1 << 20) + fmt.SEAL_SIZE


def test_a_sealed_payload_opens_as_it_was_and_never_twice_the_same():
    """28 bytes longer, another nonce each time: a block may be written again at its RBA after a crash."""
    key = FileKey(KEY.key, ID, 3)
    header, sealed = sealed_by(key)
    assert header.is_encrypted
    assert (header.payload_len, len(sealed)) == (len(PLAIN) + fmt.SEAL_SIZE,) * 2
    assert header.payload_crc == zlib.crc32(sealed)
    assert key.open(header, sealed, 4096, "f") == (replace(HEADER, payload_crc=zlib.crc32(PLAIN)), PLAIN)
    again = sealed_by(key)[1]
    assert again[: fmt.NONCE_SIZE] != sealed[: fmt.NONCE_SIZE]
    assert again[fmt.NONCE_SIZE :] != sealed[fmt.NONCE_SIZE :]


CHANGES = {
    "kind": BlockKind.METADATA, "indicator": Indicator.BEGIN, "flags": fmt.FLAG_AES, "raw_len": 31, "changes": 3,
    "transactions": 2, "origin": Position(0, 6), "time_us": 98, "csn": "00000002",
}  # fmt: skip


@pytest.mark.parametrize("changed", [*CHANGES, "rba", "seqno", "trail", "bytes", "short", "key"])
def test_it_opens_nowhere_else(changed):
    """The header's every field, the place and the bytes are bound together."""
    header, sealed = sealed_by(FileKey(KEY.key, ID, 3))
    key, rba = FileKey(KEY.key, ID, 3), 4096
    if changed in CHANGES:
        header = replace(header, **{changed: CHANGES[changed]})
    elif changed == "rba":
        rba = 8192
    elif changed == "bytes":
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    elif changed == "short":
        sealed = sealed[:5]
    else:
        key = FileKey(
            OTHER.key if changed == "key" else KEY.key,
            ID[::-1] if changed == "trail" else ID,
            4 if changed == "seqno" else 3,
        )
    with pytest.raises(DamageError, match=rf"f, RBA {rba}: expected a payload that this file's key opens"):
        key.open(header, sealed, rba, "f")


def test_the_bound_on_lengths_leaves_room_for_the_seal():
    """The largest payload there is can be encrypted too; without the flag it is not let through."""
    seed = fmt.file_seed(ID, 0)
    longest = fmt.MAX_PAYLOAD + fmt.SEAL_SIZE
    made = fmt.make_block_header(replace(HEADER, payload_len=longest, flags=fmt.FLAG_AES), seed, 4096)
    assert fmt.parse_block_header(made, seed, 4096, "f").payload_len == longest
    for header in (
        replace(HEADER, payload_len=longest), replace(HEADER, payload_len=longest + 1, flags=fmt.FLAG_AES)
    ):  # fmt: skip
        with pytest.raises(DamageError, match="lengths up to"):
            fmt.parse_block_header(fmt.make_block_header(header, seed, 4096), seed, 4096, "f")


# --- a trail ---------------------------------------------------------------------------------------------------------


def test_nothing_of_rows_or_tables_is_readable_in_the_files(trail):
    """Values, column names and native types are not; the reader gives all of them."""
    raw = content(trail)
    for word in (b"vvvv", b"bigint", b"text", b"1-0"):
        assert word not in raw
    assert b"mine:1" in raw
    assert transactions(FS, trail) == expected()
    assert max(len(open_segment(FS, trail, n).header.wrapped) for n in trail.seqnos(os.listdir(trail.folder))) == 60


def test_files_keep_to_their_size(trail):
    """The 28 bytes a block count, too."""
    sizes = [os.path.getsize(trail.path(n)) for n in trail.seqnos(os.listdir(trail.folder))]
    assert len(sizes) > 3
    assert max(sizes) <= MAX_BYTES


def test_a_new_version_is_for_new_files_and_old_ones_stay_readable(trail, tmp_path):
    """RENEW MASTERKEY while the writer runs: from its next file on."""
    writer = writer_of(trail, max_bytes=1 << 20)
    save_wallet(FS, str(tmp_path / "dirwlt"), Wallet("mine", (KEY, MasterKey(2, 2, OTHER.key))))
    first = writer.seqno
    write_tx(writer, replace(SCRIPT[-1], number=9))
    writer.roll()
    write_tx(writer, replace(SCRIPT[-1], number=10))
    writer.close()
    ids = [open_segment(FS, trail, n).header.key_id for n in (first, first + 1)]
    assert ids == ["mine:1", "mine:2"]
    assert [csn for csn, _ in transactions(FS, trail)][-2:] == ["00000009", "00000010"]


def test_encryption_is_switched_in_a_new_file(trail):
    """encrypt() begins a file only if that is a change; None goes on as the last file is."""
    writer = writer_of(trail, encrypt=None)
    seqno = writer.seqno
    writer.encrypt(True)
    assert writer.seqno == seqno
    writer.encrypt(False)
    assert writer.seqno == seqno + 1
    write_tx(writer, replace(SCRIPT[-1], number=9))
    writer.close()
    assert open_segment(FS, trail, seqno).header.key_id == "mine:1"
    assert open_segment(FS, trail, seqno + 1).header.key_id == ""
    assert len(transactions(FS, trail)) == len(SCRIPT) + 1
    writer = writer_of(trail, encrypt=None)
    assert open_segment(FS, trail, writer.seqno).header.key_id == ""
    writer.close()


def test_without_a_master_key_nothing_is_begun(tmp_path):
    """ENCRYPTTRAIL in a home that has none: the writer says what to do, and leaves no file."""
    trail = make_home(tmp_path)
    with pytest.raises(KeyMissingError, match=r"holds no master key\. ADD MASTERKEY"):
        writer_of(trail)
    assert trail.seqnos(os.listdir(trail.folder)) == []


def test_a_key_is_used_only_once_its_folder_is_synced():
    """A file must not depend on a key that a power loss can take away."""
    fs, trail = FaultFs(), TrailName("/home/dirdat", "lt")
    save_wallet(fs, "/home/dirwlt", Wallet("mine", (KEY,)))
    fs.log.clear()
    TrailWriter.open(fs, trail, IDENTITY, restart_open=True, encrypt=True).close()
    assert fs.log.index("sync_dir dirwlt") < fs.log.index("create lt000000000.tmp")


def test_a_key_that_was_deleted_meanwhile_begins_no_file():
    """DELETE MASTERKEY looks for files; one that has no name yet is not found, and must not get one."""
    fs, trail = FaultFs(), TrailName("/home/dirdat", "lt")
    save_wallet(fs, "/home/dirwlt", Wallet("mine", (KEY,)))
    newer = replace(OTHER, version=2)

    def delete(operation: str, path: str) -> None:
        if operation == "create" and path.endswith("lt000000000.tmp"):
            fs.fail = lambda _operation, _path: None
            save_wallet(fs, "/home/dirwlt", Wallet("mine", (newer,)))

    fs.fail = delete
    with pytest.raises(AnewError, match=r"master key mine:1 was deleted while it was begun\. START again"):
        TrailWriter.open(fs, trail, IDENTITY, restart_open=True, encrypt=True)
    assert trail.seqnos(fs.listdir(trail.folder)) == []
    TrailWriter.open(fs, trail, IDENTITY, restart_open=True, encrypt=True).close()
    assert open_segment(fs, trail, 0).header.key_id == "mine:2"


# --- without the key -------------------------------------------------------------------------------------------------


def keyless(trail: TrailName, tmp_path: Path) -> None:
    os.unlink(wallet_path(str(tmp_path / "dirwlt")))


def test_headers_are_read_without_a_key_and_payloads_are_not(trail, tmp_path):
    """Planning and counting need none; who asks for rows or definitions is told which key is missing."""
    keyless(trail, tmp_path)
    planner = Planner(BlockReader(FS, trail))
    changes = 0
    while (unit := planner.next()) is not None:
        changes += unit.changes
    assert changes == sum(tx.rows for tx in SCRIPT)
    missing = r"lt000000000 is encrypted under master key version 1 of wallet mine; .*dirwlt/masterkeys is not there"
    with pytest.raises(KeyMissingError, match=missing):
        _ = planner.definitions
    with pytest.raises(KeyMissingError, match=missing):
        BlockReader(FS, trail).read()
    reader = BlockReader(FS, trail)
    while (block := reader.read(sealed=True)) is not None:
        assert block.header.is_encrypted == bool(block.payload)
    with pytest.raises(KeyMissingError, match="master key version 1"):
        writer_of(trail)


def test_another_wallet_and_another_version_are_named(trail, tmp_path):
    """A home made anew, a version deleted: told apart from damage."""
    folder = str(tmp_path / "dirwlt")
    save_wallet(FS, folder, Wallet("theirs", (KEY,)))
    with pytest.raises(KeyMissingError, match="is wallet theirs, of another home or made anew"):
        BlockReader(FS, trail).read()
    save_wallet(FS, folder, Wallet("mine", (MasterKey(2, 1, KEY.key),)))
    with pytest.raises(KeyMissingError, match="has no such version"):
        BlockReader(FS, trail).read()
    save_wallet(FS, folder, Wallet("mine", (OTHER,)))
    with pytest.raises(DamageError, match="expected a file key that master key version 1 opens"):
        BlockReader(FS, trail).read()


def test_a_forged_block_is_damage_although_its_CRCs_hold(trail):
    """What CRC-32 can't find: the payload changed, and both CRCs made to fit."""
    reader = BlockReader(FS, trail, Position(0, 0))
    reader.read(sealed=True)
    block = reader.read(sealed=True)
    assert block is not None
    forged = bytes([block.payload[0] ^ 1]) + block.payload[1:]
    header = replace(block.header, payload_crc=zlib.crc32(forged))
    with open(trail.path(0), "r+b") as file:
        file.seek(block.start.rba)
        file.write(fmt.make_block_header(header, block.seed, block.start.rba) + forged)
    reader = BlockReader(FS, trail, block.start)
    with pytest.raises(DamageError, match=rf"lt000000000, RBA {block.start.rba}: expected a payload that this file's"):
        reader.read()


def test_a_plain_block_in_an_encrypted_file_is_damage(trail, tmp_path):
    """Else who can write the file could put rows into it without a key."""
    block = BlockReader(FS, trail, Position(0, 0)).read(sealed=True)
    assert block is not None
    forged = b"\x92\x90\x90".ljust(len(block.payload), b"\0")
    header = replace(block.header, flags=0, payload_crc=zlib.crc32(forged))
    with open(trail.path(0), "r+b") as file:
        file.seek(block.start.rba)
        file.write(fmt.make_block_header(header, block.seed, block.start.rba) + forged)
    for _ in range(2):
        with pytest.raises(DamageError, match=rf"RBA {block.start.rba}: damaged: expected an encrypted payload"):
            BlockReader(FS, trail, block.start).read()
        if os.path.exists(wallet_path(str(tmp_path / "dirwlt"))):
            keyless(trail, tmp_path)  # and nobody needs the key to see it


# --- logdump ---------------------------------------------------------------------------------------------------------


def shown(capsys, *words: str, code: int = 0) -> str:
    """What logdump prints."""
    assert dump.main(list(words)) == code
    out = capsys.readouterr()
    return out.out + out.err


def test_logdump_decrypts_with_the_home_and_shows_headers_without(trail, tmp_path, capsys):
    """Beside the wallet, without it, and with another home's by --home."""
    assert "INSERT" in shown(capsys, str(trail), "--records")
    assert "master key mine:1" in shown(capsys, str(trail), "--headers")
    assert "All is well" in shown(capsys, str(trail), "--verify")
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "dirwlt", tmp_path / "elsewhere" / "dirwlt")
    assert "master key version 1 of wallet mine" in shown(capsys, str(trail), "--records", code=2)
    assert shown(capsys, str(trail)).count("METADATA") > 3
    text = shown(capsys, str(trail), "--verify")
    assert "CRCs only: it is encrypted and its key is not here" in text
    assert "All is well" in text
    text = shown(capsys, str(trail), "--count")
    assert "Changes by table are not shown" in text
    assert f"Changes        {sum(tx.rows for tx in SCRIPT):>14}" in text
    assert "INSERT" in shown(capsys, str(trail), "--records", "--home", str(tmp_path / "elsewhere"))
    with open(trail.path(1), "r+b") as file:
        file.seek(4096 + 96 + 20)
        file.write(b"\0\0\0\0")
    assert "DAMAGE" in shown(capsys, str(trail), "--verify", code=2)


# --- over the link ---------------------------------------------------------------------------------------------------


def linked(source: TrailName, target: TrailName, *, encrypt: bool) -> None:
    """One session of a PASSTHRU pump and a Collector, without the link between."""
    reader = BlockReader(FS, source)
    reader.read(payload=False)
    assert reader.header is not None
    collector = Collector(FS, target, "./dirdat/rt")
    hello = wire.Hello(
        "h", "PMP1", "host", "./dirdat/rt", reader.header.trail_id, {}, 0, None, 1, 1000, encrypt=encrypt
    )
    welcome = collector.greet(hello)
    feed = Feed(FS, source, reader.header.trail_id, welcome.origin, welcome.open, None)
    try:
        while True:
            outgoing = feed.read(0.0)
            if not outgoing and feed.at_end:
                break
            for item in outgoing:
                assert not item.header.is_encrypted
                collector.take(item.block)
    finally:
        feed.close()
        collector.close()


@pytest.mark.parametrize("encrypt", [True, False])
def test_each_home_has_keys_of_its_own(trail, tmp_path, encrypt):
    """An encrypted local trail; the remote one as the pump's ENCRYPTTRAIL says, with the remote home's key."""
    remote = replace(make_home(tmp_path / "there", Wallet("theirs", (OTHER,))), prefix="rt")
    linked(trail, remote, encrypt=encrypt)
    linked(trail, remote, encrypt=encrypt)  # a second session goes on after the first
    assert transactions(FS, remote) == expected()
    assert (b"vvvv" in content(remote)) is not encrypt
    assert (b"theirs:1" in content(remote)) is encrypt
    linked(trail, remote, encrypt=not encrypt)  # and one after the parameter was changed
    assert transactions(FS, remote) == expected()


def test_a_collector_without_a_key_refuses_for_good(trail, tmp_path):
    """The pump's operator reads what the other home lacks."""
    from collector.collector import refuse

    with pytest.raises(KeyMissingError, match="ADD MASTERKEY") as caught:
        linked(trail, replace(make_home(tmp_path / "there"), prefix="rt"), encrypt=True)
    assert refuse(caught.value).permanent


def test_a_collector_takes_no_encrypted_block(trail, tmp_path):
    """It could not read it, and never asked for one."""
    reader = BlockReader(FS, trail)
    block = reader.read(sealed=True)
    assert block is not None and reader.header is not None
    collector = Collector(FS, replace(make_home(tmp_path / "there"), prefix="rt"), "./dirdat/rt")
    collector.greet(wire.Hello("h", "P", "host", "./dirdat/rt", reader.header.trail_id, {}, 0, None, 1, 1000))
    raw = fmt.make_block_header(block.header, block.seed, block.start.rba)
    with pytest.raises(ProtocolError, match="encrypted blocks are never sent"):
        collector.take(wire.BlockMessage(block.start, block.end, raw, block.payload))
    collector.close()


# --- the wallet ------------------------------------------------------------------------------------------------------


def test_a_wallet_comes_back_and_shows_no_key(tmp_path):
    """0600, and no key in a repr."""
    made = Wallet("mine", (KEY, MasterKey(5, 6, OTHER.key)))
    save_wallet(FS, str(tmp_path), made)
    assert load_wallet(FS, str(tmp_path)) == made
    assert os.stat(wallet_path(str(tmp_path))).st_mode & 0o777 == 0o600
    assert repr(KEY.key) not in repr(made)
    assert load_wallet(FS, str(tmp_path / "none")) is None


def test_any_changed_byte_of_a_wallet_is_found_and_no_key_is_shown(tmp_path):
    """Damage, or another version; never a key that is not the one."""
    save_wallet(FS, str(tmp_path), Wallet("mine", (KEY,)))
    path = Path(wallet_path(str(tmp_path)))
    good = path.read_bytes()
    made = load_wallet(FS, str(tmp_path))
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        said = str(path)  # as good as it was, where a blank between two fields was changed
        try:
            unchanged = load_wallet(FS, str(tmp_path)) == made
        except (DamageError, VersionError) as error:
            unchanged, said = True, str(error)
        assert unchanged
        assert said.startswith(str(path))
        assert KEY.key.hex()[:8] not in said


@hostile(100)
@given(st.binary(max_size=200) | st.text("{}[]\"':,0123456789versionkyid", max_size=200).map(str.encode))
def test_any_bytes_are_a_wallet_or_one_named_error(data):
    """A parser of a file: no other exception."""
    fs = FaultFs()
    file = fs.create("/w/masterkeys")
    file.write_at(0, data)
    file.close()
    with pytest.raises((DamageError, VersionError), match="/w/masterkeys"):
        load_wallet(fs, "/w")


def test_a_trail_finds_its_wallet_by_its_place():
    """Beside the dirdat it lies in, however deep, or where it is told."""
    assert TrailName("/gate/dirdat", "lt").wallet_folder == "/gate/dirwlt"
    assert TrailName("/gate/dirdat/a/b", "lt").wallet_folder == "/gate/dirwlt"
    assert TrailName("/x/dirdat/gate/dirdat", "lt").wallet_folder == "/x/dirdat/gate/dirwlt"
    assert TrailName("/else/where", "lt").wallet_folder == "/else/dirwlt"
    assert TrailName.parse("/else/where/lt", "/gate").wallet_folder == "/gate/dirwlt"
    assert TrailName.parse("/else/where/lt", "/gate") == TrailName("/else/where", "lt")
