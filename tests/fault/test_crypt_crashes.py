"""The crash matrix of encrypted trails and of the wallet: no trail file is left without its key, none reads wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.crashing import crash_everywhere
from tests.support.trail_script import IDENTITY, MAX_BYTES, TRAIL, ScriptWorld, Tx, expected, transactions, write_tx
from trails.crypt import KEY_SIZE, MasterKey, Wallet, load_wallet, save_wallet
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.home.home import Home
from trails.runtime.secrets import masterkeys
from trails.segment import open_segment
from trails.testing import After, Crash, FaultFs
from trails.writer import TrailWriter

pytestmark = pytest.mark.fault
FOLDER = "/home/dirwlt"
KEYS = tuple(MasterKey(n, n, bytes([n]) * KEY_SIZE) for n in (1, 2))


def with_wallet() -> FaultFs:
    """A home with a master key, durable."""
    fs = FaultFs()
    save_wallet(fs, FOLDER, Wallet("w", KEYS[:1]))
    return fs


def renewing(world: ScriptWorld) -> None:
    """The script, encrypted; the master key is renewed as its third file is begun."""
    fs = world.fs

    def renew(operation: str, path: str) -> None:
        if operation == "create" and path.endswith("lt000000002.tmp"):
            fs.fail = lambda _operation, _path: None
            save_wallet(fs, FOLDER, Wallet("w", KEYS))

    wallet = load_wallet(fs, FOLDER)
    assert wallet is not None
    fs.fail = renew if len(wallet.keys) == 1 else fs.fail
    world.live(encrypt=True)


def test_crash_while_encrypting_and_renewing() -> None:
    """I1, I2, I4: after any crash all is there once, opens, and what was seen still stands; nothing is readable.

    And who reads while it is written meets no damage, at no call.
    """

    def check(world: ScriptWorld) -> None:
        world.check()
        for seqno in TRAIL.seqnos(world.fs.listdir(TRAIL.folder)):
            assert b"vvvvvvvv" not in world.fs.content(TRAIL.path(seqno))

    def read(world: ScriptWorld) -> None:
        assert transactions(world.fs) == expected()[: len(transactions(world.fs))]

    assert crash_everywhere(ScriptWorld(with_wallet()), renewing, check, found=read) > 100


@pytest.mark.parametrize("how", After)
def test_crash_while_the_master_key_is_renewed(how: After) -> None:
    """The old wallet or the new one, whole, and every version there was."""
    for n in range(1, 40):
        fs = FaultFs()
        home = Home("/home", fs)
        home.create_subdirs()
        masterkeys.add(home, 1)
        old = load_wallet(fs, FOLDER)
        fs.crash_at = fs.calls + n
        try:
            masterkeys.renew(home, 2)
        except Crash:
            fs.reboot(how)
            found = load_wallet(fs, FOLDER)
            assert old is not None and found is not None
            assert found.keys[: len(old.keys)] == old.keys
            assert masterkeys.renew(home, 3) == found.current.version + 1
        else:
            break
    else:
        raise AssertionError("the renewal never got through")


# --- a trail of an earlier build (sealing 1), gone on with ------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "compat" / "v1"
OLD = TrailName("/home/dirdat", "ae")
AFTER = Tx(10, 1)


@dataclass
class OldWorld:
    """The golden trail of sealing 1, whose last file its writer left open; nothing outside it."""

    fs: FaultFs

    def outside(self) -> int:
        """See World."""
        return 0

    def with_fs(self, fs: FaultFs) -> OldWorld:
        """See World."""
        return OldWorld(fs)

    def live(self, *, encrypt: bool) -> None:
        """A writer of today goes on, from where the trail says that it ends."""
        writer = TrailWriter.open(self.fs, OLD, IDENTITY, max_bytes=MAX_BYTES, restart_open=True, encrypt=encrypt)
        if writer.last.csn < AFTER.csn:
            write_tx(writer, AFTER)
        writer.roll()
        writer.close()

    def check(self) -> None:
        """All of before is there once, and what came to it; plan and rows."""
        assert transactions(self.fs, OLD) == [*expected(), ("00000009", []), *expected([AFTER])]


def old_world() -> OldWorld:
    """As a kill of the earlier build left it."""
    fs = FaultFs()
    for path in (*GOLDEN.glob("dirdat/ae*"), GOLDEN / "dirwlt" / "masterkeys"):
        file = fs.create(f"/home/{path.parent.name}/{path.name}")
        file.write_at(0, path.read_bytes())
        file.datasync()
    for folder in ("/home/dirdat", FOLDER):
        fs.sync_dir(folder)
    return OldWorld(fs)


@pytest.mark.parametrize("encrypt", [True, False])
def test_crash_while_a_trail_of_an_earlier_build_is_gone_on_with(encrypt: bool) -> None:
    """FORMAT.md, Encryption: its last file is ended with a sealed END, and files behind it are of today."""
    world = old_world()
    last = last_header(world.fs, OLD)
    assert last is not None and last.sealing == 1
    assert crash_everywhere(world, lambda w: w.live(encrypt=encrypt), OldWorld.check) > 20
    segment = open_segment(world.fs, OLD, last.seqno)
    durable, rba = segment.read_durable_end(), segment.first_rba
    while rba < durable:
        header = segment.block_header(rba, durable)
        rba += header.size
    assert (header.kind.name, header.is_encrypted) == ("END", True)
    made = last_header(world.fs, OLD)
    assert made is not None and (made.sealing, bool(made.key_id)) == (2 if encrypt else 1, encrypt)
