"""The crash matrix of encrypted trails and of the wallet: no trail file is left without its key, none reads wrong."""

from __future__ import annotations

import pytest

from tests.support.crashing import crash_everywhere
from tests.support.trail_script import TRAIL, ScriptWorld, expected, transactions
from trails.crypt import KEY_SIZE, MasterKey, Wallet, load_wallet, save_wallet
from trails.runtime.home.home import Home
from trails.runtime.secrets import masterkeys
from trails.testing import After, Crash, FaultFs

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
