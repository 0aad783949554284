"""Master keys and the credential store of a home by their commands; URLs, parameters, messages without passwords."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.params import ExtractParams
from ggsci import admin
from ggsci.commands.session import OperatorSession
from pump.params import PumpParams
from replicat.params import ReplicatParams
from replicat.targets.mysql import link as mysql_link
from replicat.targets.postgres import link as postgres_link
from tests.support.homes import as_json, bad, good, make_home
from tests.support.hostile import hostile
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails.crypt import load_wallet
from trails.errors import DamageError, KeyMissingError, OperatorError, VersionError
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime import masking
from trails.runtime.language import params
from trails.runtime.masking import mask
from trails.runtime.secrets import credentials, masterkeys
from trails.runtime.secrets.credentials import DOMAIN, Credential, with_login
from trails.runtime.secrets.logins import Database
from trails.writer import TrailWriter

MINUTE = 60_000_000


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """What one test hides must not be hidden from the others."""
    monkeypatch.setattr(masking, "_secrets", set())


# --- master keys -----------------------------------------------------------------------------------------------------


def begin_file(home, prefix="lt"):
    """A trail file under the current version."""
    trail = TrailName.parse(f"./dirdat/{prefix}", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True, encrypt=True)
    write_tx(writer, SCRIPT[0])
    writer.close()
    return trail


def test_master_keys_are_added_renewed_and_shown(home):
    """Versions count up; INFO counts the files that need each, and shows no key."""
    assert "ADD MASTERKEY" in bad(home, "INFO MASTERKEY")
    assert "ADD MASTERKEY" in bad(home, "RENEW MASTERKEY")
    assert "version 1 created" in good(home, "ADD MASTERKEY")
    assert "RENEW MASTERKEY" in bad(home, "ADD MASTERKEY")
    begin_file(home)
    assert "version 2" in good(home, "RENEW MASTERKEY")
    begin_file(home)
    begin_file(home)
    found = as_json(home, "INFO MASTERKEY")
    assert [(key["version"], key["current"], key["files"]) for key in found["versions"]] == [
        (1, False, 1),
        (2, True, 2),
    ]
    wallet = load_wallet(home.fs, home.folder("dirwlt"))
    assert wallet is not None
    text = good(home, "INFO MASTERKEY") + json.dumps(found)
    assert not any(key.key.hex()[:8] in text for key in wallet.keys)
    assert os.stat(home.folder("dirwlt")).st_mode & 0o777 == 0o700


def test_a_version_is_deleted_only_when_no_file_can_need_it(home):
    """Refused: the current one, one replaced a moment ago, one that a file needs, one that is not there."""
    good(home, "ADD MASTERKEY")
    trail = begin_file(home)
    good(home, "RENEW MASTERKEY")
    assert "RENEW MASTERKEY first" in bad(home, "DELETE MASTERKEY VERSION 2!")
    assert "less than a minute ago" in bad(home, "DELETE MASTERKEY VERSION 1!")
    assert "expected one of 1, 2" in bad(home, "DELETE MASTERKEY VERSION 7!")
    assert "not confirmed" in bad(home, "DELETE MASTERKEY VERSION 1")
    later = OperatorSession.now_us() + MINUTE
    with pytest.raises(OperatorError, match=r"needed by 1 trail files: \./dirdat/lt000000000"):
        masterkeys.delete(home, 1, later)
    os.unlink(trail.path(0))
    masterkeys.delete(home, 1, later)
    assert [key["version"] for key in as_json(home, "INFO MASTERKEY")["versions"]] == [2]
    assert masterkeys.renew(home, later) == 3


def test_a_trail_of_a_group_outside_dirdat_keeps_its_version(home, tmp_path):
    """Its rows may not have been applied yet, wherever they lie."""
    good(home, "ADD MASTERKEY")
    (tmp_path / "other").mkdir()
    good(home, "ADD EXTRACT EXT1, TRANLOG, BEGIN NOW")
    good(home, f"ADD EXTTRAIL {tmp_path}/other/lt, EXTRACT EXT1")
    trail = TrailName.parse(f"{tmp_path}/other/lt", home.root)
    TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True, encrypt=True).close()
    good(home, "RENEW MASTERKEY")
    assert [key["files"] for key in as_json(home, "INFO MASTERKEY")["versions"]] == [1, 0]
    with pytest.raises(OperatorError, match="needed by 1 trail files"):
        masterkeys.delete(home, 1, OperatorSession.now_us() + MINUTE)


def test_a_restored_older_wallet_gives_no_version_twice(home):
    """Files know their key by its version: another key under that number would make them look damaged for good."""
    good(home, "ADD MASTERKEY")
    wallet = Path(home.folder("dirwlt"), "masterkeys")
    older = wallet.read_bytes()
    good(home, "RENEW MASTERKEY")
    newer = wallet.read_bytes()
    trail = begin_file(home)
    wallet.write_bytes(older)
    Path(home.folder("dirdat"), "zz000000000").write_bytes(b"x" * 5000)  # unreadable: it names no version
    assert "version 3" in good(home, "RENEW MASTERKEY")
    with pytest.raises(KeyMissingError, match="has no such version"):
        BlockReader(RealFs(), trail).read()
    wallet.write_bytes(newer)
    assert BlockReader(RealFs(), trail).read() is not None


def test_a_trail_file_that_cannot_be_read_keeps_every_version(home):
    """Nobody knows what it needs."""
    good(home, "ADD MASTERKEY")
    good(home, "RENEW MASTERKEY")
    Path(home.folder("dirdat"), "lt000000000").write_bytes(b"x" * 5000)
    with pytest.raises(DamageError, match="lt000000000"):
        masterkeys.delete(home, 1, OperatorSession.now_us() + MINUTE)


# --- the credential store --------------------------------------------------------------------------------------------


@pytest.fixture
def store(home):
    """A store with two aliases."""
    good(home, "ADD CREDENTIALSTORE")
    good(home, "ALTER CREDENTIALSTORE ADD USER gate PASSWORD 'ge/heim, 1' ALIAS capture")
    good(home, "ALTER CREDENTIALSTORE ADD USER copy@there:5432/shop, PASSWORD geheim2, ALIAS deliver, DOMAIN prod")
    return home


def test_aliases_are_added_replaced_deleted_and_shown(store):
    """By domain, without case, never with a password."""
    assert as_json(store, "INFO CREDENTIALSTORE") == [
        {"domain": "prod", "alias": "deliver", "user": "copy@there:5432/shop"},
        {"domain": DOMAIN, "alias": "capture", "user": "gate"},
    ]
    assert [one["alias"] for one in as_json(store, "INFO CREDENTIALSTORE, DOMAIN PROD")] == ["deliver"]
    assert "heim" not in good(store, "INFO CREDENTIALSTORE")
    assert "is in domain Trailgate already" in bad(store, "ALTER CREDENTIALSTORE ADD USER x PASSWORD y ALIAS Capture")
    good(store, "ALTER CREDENTIALSTORE REPLACE USER new PASSWORD geheim3 ALIAS Capture")
    assert credentials.find(store, "CAPTURE").password == "geheim3"
    assert "no alias other in domain prod" in bad(store, "ALTER CREDENTIALSTORE DELETE ALIAS other DOMAIN prod")
    good(store, "ALTER CREDENTIALSTORE DELETE ALIAS capture")
    with pytest.raises(OperatorError, match="no alias capture"):
        credentials.find(store, "capture")
    assert "already" in bad(store, "ADD CREDENTIALSTORE")
    good(store, "DELETE CREDENTIALSTORE!")
    assert "ADD CREDENTIALSTORE" in bad(store, "INFO CREDENTIALSTORE")


def test_nothing_in_the_home_shows_a_password(store):
    """Files are 0600; commands with a password are masked in ggserr.log, those that can't be parsed as well."""
    bad(store, "ALTER CREDENTIALSTORE ADD USER gate PASWORD geheim ALIAS x")
    for path in Path(store.root).rglob("*"):
        if path.is_file():
            assert b"heim" not in path.read_bytes(), path
    for name in ("credentials", "credentials.key"):
        assert os.stat(Path(store.folder("dircrd"), name)).st_mode & 0o777 == 0o600
    assert "heim" not in repr(credentials.load(store))


def test_a_password_is_asked_for_twice(store, monkeypatch):
    """Without an echo; nobody can be asked in a script."""
    assert "nobody can be asked" in bad(store, "ALTER CREDENTIALSTORE ADD USER u ALIAS u")
    session = OperatorSession(store.root, may_ask=True)
    answers = iter(["geheim5", "geheim6", "geheim7", "geheim7"])
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(answers))
    assert "differ" in bad(store, "ALTER CREDENTIALSTORE ADD USER u", session)
    good(store, "ALTER CREDENTIALSTORE ADD USER u", session)
    assert credentials.find(store, "u").password == "geheim7"


@pytest.mark.parametrize("name", ["credentials", "credentials.key"])
def test_any_changed_byte_of_the_store_is_one_named_error(store, name):
    """Damage, another version; a key of another store; a missing key."""
    path = Path(store.folder("dircrd"), name)
    good_bytes = path.read_bytes()
    for at in range(len(good_bytes.rstrip())):
        path.write_bytes(good_bytes[:at] + bytes([good_bytes[at] ^ 1]) + good_bytes[at + 1 :])
        with pytest.raises((DamageError, VersionError), match="credentials") as caught:
            credentials.load(store)
        assert "heim" not in str(caught.value)
    path.write_bytes(b"ab" * 32 if name.endswith("key") else good_bytes[:10])
    with pytest.raises(DamageError, match="Restore both files from one copy"):
        credentials.load(store)
    path.unlink()
    with pytest.raises(OperatorError, match=r"missing|no credential store"):
        credentials.load(store)


@hostile(100)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_store_or_one_named_error(data):
    """A parser of a file: no other exception."""
    with pytest.raises((DamageError, VersionError), match="/s"):
        credentials._opened(data, bytes(32), "/s")


def test_dblogin_takes_an_alias(store, tmp_path, monkeypatch):
    """With a URL or without one; the password goes to the sub-process's standard input only."""
    log = tmp_path / "asked"
    program = tmp_path / "admin.py"
    program.write_text(
        "import json, sys\nopen(sys.argv[1], 'a').write(sys.stdin.read())\nprint(json.dumps({'ok': True}))"
    )
    command = [*admin.COMMANDS["extract"][:1], str(program), str(log)]
    monkeypatch.setattr(admin, "COMMANDS", {"extract": command, "replicat": command})
    good(store, "DBLOGIN SOURCEDB postgresql://h1:1,h2:2/db, USERIDALIAS capture")
    good(store, "DBLOGIN USERIDALIAS deliver DOMAIN prod")
    good(store, "DBLOGIN TARGETDB mysql://h/db, USERIDALIAS deliver, DOMAIN prod")
    assert [json.loads(line)["url"] for line in log.read_text().splitlines()] == [
        "postgresql://gate:ge%2Fheim%2C%201@h1:1,h2:2/db",
        "postgresql://copy:geheim2@there:5432/shop",
        "mysql://copy:geheim2@h/db",
    ]
    assert "expected SOURCEDB url" in bad(store, "DBLOGIN USERIDALIAS capture")
    assert "exclude each other" in bad(store, "DBLOGIN USERIDALIAS capture, PASSWORD x")
    assert "exclude each other" in bad(store, "DBLOGIN USERIDALIAS capture, USERID x")
    assert "no alias" in bad(store, "DBLOGIN USERIDALIAS nobody")


# --- parameters ------------------------------------------------------------------------------------------------------


def extract(line: str) -> ExtractParams:
    text = f"EXTRACT e\nSOURCEDB {line}\nEXTTRAIL ./dirdat/lt\nENCRYPTTRAIL\nTABLE s.*;\n"
    return ExtractParams.from_statements(params.parse_text(text, "e.prm"))


def replicat(line: str) -> ReplicatParams:
    return ReplicatParams.from_statements(
        params.parse_text(f"REPLICAT r\nTARGETDB {line}\nMAP s.*, TARGET main.*;\n", "r.prm")
    )


def test_useridalias_is_looked_up_at_the_start(store):
    """Two hosts in the URL, options behind the database, a domain or none."""
    found = extract("postgresql://h1:1,h2:2/db?sslmode=require, USERIDALIAS capture")
    assert found.url == "postgresql://h1:1,h2:2/db?sslmode=require"
    assert found.encrypt
    assert found.resolved(store).url == "postgresql://gate:ge%2Fheim%2C%201@h1:1,h2:2/db?sslmode=require"
    found = extract("postgresql:///db?host=/run&port=1, useridalias Deliver, domain PROD")
    assert found.database == Database("postgresql:///db?host=/run&port=1", "Deliver", "PROD")
    assert found.resolved(store).url == "postgresql://copy:geheim2@/db?host=/run&port=1"
    found = replicat("mysql://h/db, USERIDALIAS deliver DOMAIN prod")
    assert found.resolved(store).target_url == "mysql://copy:geheim2@h/db"
    assert extract("postgresql://me:x@h/db").resolved(store).url == "postgresql://me:x@h/db"
    with pytest.raises(OperatorError, match="no alias other"):
        extract("postgresql://h/db, USERIDALIAS other").resolved(store)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("postgresql://me@h/db, USERIDALIAS a", "found both"),
        ("postgresql://h/db, USERIDALIAS", "url, USERIDALIAS alias [DOMAIN domain]"),
        ("postgresql://h/db, USERIDALIAS a b", "url, USERIDALIAS alias [DOMAIN domain]"),
        ("postgresql://h/db, USERIDALIAS 'a b'", "url, USERIDALIAS alias [DOMAIN domain]"),
        ("postgresql://h/db USERIDALIAS a b", "url, USERIDALIAS alias [DOMAIN domain]"),
        ("sqlite:///f, USERIDALIAS a", "no USERIDALIAS"),
        ("oracle://h/db, USERIDALIAS a", "postgresql://"),
    ],
)
def test_wrong_uses_of_useridalias_are_refused(line, expected):
    """At the check of the parameter file."""
    with pytest.raises(OperatorError, match=re.escape(expected)):
        replicat(line)


def test_encrypttrail_takes_AES256_only():
    """The words of GoldenGate that promise less are refused; pump and Extract know it."""
    text = "EXTRACT p\nRMTHOST h, MGRPORT 1\nRMTTRAIL ./dirdat/rt\nENCRYPTTRAIL {}\n"
    for word in ("", "AES256", "aes256"):
        assert PumpParams.from_statements(params.parse_text(text.format(word), "p.prm")).encrypt
    with pytest.raises(OperatorError, match=r"ENCRYPTTRAIL: expected AES256 or nothing, found 'AES128'"):
        PumpParams.from_statements(params.parse_text(text.format("AES128"), "p.prm"))


# --- what is said ----------------------------------------------------------------------------------------------------


def test_what_was_hidden_is_never_said(store):
    """A password of the store, as it is and as a URL has it, wherever it stands; a short one by its place only."""
    url = with_login("postgresql://h/db", credentials.find(store, "capture"))
    assert mask(f"{url} ge/heim, 1 ge%2Fheim%2C%201") == "postgresql://gate:********@h/db ******** ********"
    Database("postgresql://u:Anders77@h/db?password=Weiter88").login(store)
    assert mask('no host "Anders77" nor Weiter88') == 'no host "********" nor ********'
    with_login("postgresql://h/db", Credential(DOMAIN, "a", "u", "abc"))
    assert mask("abc of the alphabet") == "abc of the alphabet"
    for secret in ("Geheimnis", "Geheimnis-mit-Ende", "Ende-und-mehr"):
        masking.hide(secret)
    assert mask("told: Geheimnis-mit-Ende") == "told: ********"


def test_a_password_that_a_variable_puts_into_a_url_is_not_shown_where_it_is_written(home):
    """VIEW PARAMS, and the same in the report's echo: its place alone does not tell that it is one."""
    text = (
        "REPLICAT rep1\nSETENV (DB_KEY = Geheim-eins)\nMACRO #env PARAMS (#v)\nBEGIN\nSETENV (OTHER = #v)\nEND;\n"
        "#env (Geheim-zwei)\nTARGETDB postgresql://u:?DB_KEY@h/d\n-- or\nTARGETDB postgresql://u:?OTHER@h/d\n"
    )
    Path(home.prm("rep1")).write_text(text)
    shown = good(home, "VIEW PARAMS rep1")
    assert "Geheim" not in shown
    assert "SETENV (DB_KEY = ********)" in shown
    assert "#env (********)" in shown


@pytest.mark.parametrize(
    ("kind", "primary", "shown"),
    [
        (psycopg.errors.UniqueViolation, 'duplicate key value violates unique constraint "k"', None),
        (
            psycopg.errors.InvalidTextRepresentation,
            'invalid input syntax for type integer: "Wert "x" y"',
            'invalid input syntax for type integer: "..."',
        ),
        (psycopg.errors.RaiseException, "no Wert here", "a trigger or function refuses it (SQLSTATE P0001)"),
    ],
)
def test_postgresql_refusals_say_no_value(kind, primary, shown):
    """Names stay; DETAIL, CONTEXT and quoted values are for the discard file only."""

    class Diag:
        message_primary, message_detail, context = primary, "Key (a)=(Wert) already exists.", 'COPY t, line 1: "Wert"'
        schema_name, table_name = "s", "t"

    class Refused(kind):  # type: ignore[misc, valid-type]
        diag = Diag()

    error = postgres_link.refusal(Refused("Wert"))
    assert error is not None
    assert error.shown == f"s.t: {shown or primary}"
    assert "Key (a)=(Wert)" in error.message


@pytest.mark.parametrize(
    ("number", "text", "shown"),
    [
        (1062, "Duplicate entry 'Wert's-1' for key 'kv_a'", "Duplicate entry for key 'kv_a'"),
        (
            1292, "Incorrect datetime value: 'Wert' for column `d`.`t`.`c` at row 1",
            "Incorrect datetime value: for column `d`.`t`.`c` at row 1",
        ),
        (1366, "Incorrect integer value: 'x' for column 'Wert' for column `d`.`t`.`c` at row 1", None),
        (1406, "Data too long for column 'c' at row 1", "Data too long for column 'c' at row 1"),
        (1690, "BIGINT value is out of range in '(Wert + 1)'", "BIGINT value is out of range in"),
        (1644, "my Wert", "a trigger refuses it (1644)"),
        (4078, 'Cannot cast "Wert" as x', "Cannot cast"),
    ],
)  # fmt: skip
def test_mysql_refusals_say_no_value(number, text, shown):
    """The same for MySQL and MariaDB."""
    error = mysql_link.refusal(number, text, "d.t")
    assert error is not None
    assert "Wert" not in error.shown
    assert shown is None or error.shown == f"d.t: {shown}"
    assert error.message == f"d.t: {text}"
