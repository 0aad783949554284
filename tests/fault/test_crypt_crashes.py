"""The crash matrix of encrypted trails and of the wallet: no trail file is left without its key, none reads wrong."""

from __future__ import annotations

import pytest

from tests.support.trail_script import TRAIL, expected, run_script, transactions
from trails.crypt import KEY_SIZE, MasterKey, Wallet, load_wallet, save_wallet
from trails.reader import Block, BlockReader
from trails.runtime import masterkeys
from trails.runtime.home import Home
from trails.testing import After, Crash, FaultFs

pytestmark = pytest.mark.fault
FOLDER = "/home/dirwlt"
KEYS = tuple(MasterKey(n, n, bytes([n]) * KEY_SIZE) for n in (1, 2))


def with_wallet() -> FaultFs:
    """A home with a master key, durable."""
    fs = FaultFs()
    save_wallet(fs, FOLDER, Wallet("w", KEYS[:1]))
    return fs


def renewing(fs: FaultFs, acknowledged: list[int], seen: list[Block]) -> None:
    """The script, encrypted; the master key is renewed as its third file is begun."""

    def renew(operation: str, path: str) -> None:
        if operation == "create" and path.endswith("lt000000002.tmp"):
            fs.fail = lambda _operation, _path: None
            save_wallet(fs, FOLDER, Wallet("w", KEYS))

    wallet = load_wallet(fs, FOLDER)
    assert wallet is not None
    fs.fail = renew if len(wallet.keys) == 1 else fs.fail
    run_script(fs, acknowledged, seen, encrypt=True)


def calls() -> int:
    """File-system calls of one undisturbed run."""
    fs = with_wallet()
    before = fs.calls
    renewing(fs, [], [])
    return fs.calls - before


@pytest.mark.parametrize("how", After)
def test_crash_while_encrypting_and_renewing(how: After) -> None:
    """I1, I2, I4: after any crash all is there once, opens, and what was seen still stands; nothing is readable."""
    for n in range(1, calls() + 1, 2):
        fs, acknowledged, seen = with_wallet(), [0], []
        fs.crash_at = fs.calls + n
        with pytest.raises(Crash):
            renewing(fs, acknowledged, seen)
        fs.fail = lambda _operation, _path: None
        fs.reboot(how)
        resumed: list[int] = []
        was_seen = list(seen)
        renewing(fs, resumed, seen)
        assert resumed[0] >= max(acknowledged), "an acknowledged transaction is gone"
        assert transactions(fs) == expected()
        for block in was_seen:
            again = BlockReader(fs, TRAIL, block.start).read()
            assert again is not None and (again.header, again.payload) == (block.header, block.payload)
        for seqno in TRAIL.seqnos(fs.listdir(TRAIL.folder)):
            assert b"vvvvvvvv" not in fs.content(TRAIL.path(seqno))


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
