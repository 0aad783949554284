"""What must stay secret does: passwords stand nowhere, row values nowhere but where rows are meant to be.

One pipeline with ENCRYPTTRAIL and DECRYPTTRAIL on both sides, the Extract by USERIDALIAS, the Replicat with the
password in its parameter file; it runs, an Extract is refused for a wrong password, a Replicat abends on a row. Then
everything is searched that the homes, the process table, the control sockets and Spark's folder hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from demo.pipeline import Host, Options, Pipeline
from demo.servers import PostgresServer
from replicat.batches.scratch import stems_of
from tests.support.pipelines import Rig, rig
from trails.runtime.home.home import Home
from trails.runtime.process.control import ask

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-secrets")]

# Each has what must be quoted in a URL, and between that a word to search for.
CAPTURE, WRONG, DELIVER = "c/Kapselung,1@x", "w/Kapselung,2@x", "d/Kapselung,3@x"
PASSWORD = b"Kapselung"
ROW, REFUSED = "Zeilenwert-A", "Zeilenwert-B"
VERBS = ("STATUS", "STATS", "GETPARAMINFO", "GETLAG", "METRICS", "CHILDSTATUS", "PING")


@contextmanager
def role(server: PostgresServer, password: str) -> Iterator[None]:
    """A role `vault` that must prove this password."""
    hba = server.data / "pg_hba.conf"
    trust = hba.read_text()
    server.sql(f"CREATE ROLE vault LOGIN SUPERUSER PASSWORD '{password}'")
    hba.write_text("local all vault scram-sha-256\nlocal replication vault scram-sha-256\n" + trust)
    server.reload()
    try:
        yield
    finally:
        hba.write_text(trust)
        server.reload()
        server.sql("DROP ROLE vault")


@pytest.fixture
def running(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Rig]:
    """The pipeline as the module says; everything runs."""
    options = Options(
        extract=["ENCRYPTTRAIL AES256"],
        pump=["PASSTHRU", "ENCRYPTTRAIL", "DECRYPTTRAIL"],
        replicat=["SPARKMEMORY 512M", "DECRYPTTRAIL AES256", "REPERROR (23514, ABEND)"],
        restart_seconds=None,
        checkpoint_seconds=1,
    )
    with (
        role(postgres16, CAPTURE),
        role(postgres18, DELIVER),
        rig(postgres16, postgres18, options) as made,
    ):
        pipeline = made.pipeline
        source, target = bare(pipeline.source_url), bare(pipeline.target_url)
        pipeline.source.run(
            "ADD MASTERKEY",
            "ADD CREDENTIALSTORE",
            f"ALTER CREDENTIALSTORE ADD USER vault PASSWORD '{CAPTURE}' ALIAS capture DOMAIN prod",
            f"DBLOGIN SOURCEDB {source}, USERIDALIAS CAPTURE, DOMAIN prod",
            "INFO TRANDATA shop.*",
        )
        pipeline.target.run("ADD MASTERKEY")
        put(pipeline.source, "EXT1", pipeline.source_url, f"{source}, USERIDALIAS capture DOMAIN prod")
        login = "vault:" + DELIVER.replace("/", "%2F").replace(",", "%2C").replace("@", "%40")
        put(pipeline.target, "REP1", pipeline.target_url, target.replace("://", f"://{login}@"))
        pipeline.start()
        yield made


def bare(url: str) -> str:
    """The URL without a user."""
    return url.replace("postgres@", "")


def put(host: Host, group: str, old: str, new: str) -> None:
    """Another URL in a parameter file."""
    path = host.home / "dirprm" / f"{group.lower()}.prm"
    path.write_text(path.read_text().replace(old, new))


def sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def insert(pipeline: Pipeline, number: int, remark: str) -> None:
    """A row with a value to search for."""
    sql(pipeline.source_url, f"INSERT INTO shop.readings (id, remark) VALUES ({number}, '{remark}')")


# --- where to look ---------------------------------------------------------------------------------------------------


def files(*folders: Path) -> dict[str, bytes]:
    """The content of all files, but for parameter files (where a password may stand) and what is gone meanwhile."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and path.parent.name != "dirprm":
                try:
                    found[str(path)] = path.read_bytes()
                except OSError:
                    continue
    return found


def processes() -> dict[str, bytes]:
    """Command line and environment of every process."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                found[f"{entry}/{name}"] = (entry / name).read_bytes()
            except OSError:
                continue
    return found


def sockets(host: Host, *groups: str) -> dict[str, bytes]:
    """What the control sockets answer."""
    home = Home(str(host.home))
    found = {}
    for group in groups:
        for verb in VERBS:
            try:
                found[f"{group} {verb}"] = json.dumps(ask(home, group, verb)).encode()
            except Exception as error:  # noqa: BLE001  -- an answer too, whatever it is
                found[f"{group} {verb}"] = str(error).encode()
    return found


def commands(host: Host, *lines: str) -> dict[str, bytes]:
    """What ggsci prints."""
    return {line: host.run(line, check=False).text.encode() for line in lines}


def holders(places: dict[str, bytes], secret: bytes) -> list[str]:
    """Where the secret stands."""
    return [name for name, content in places.items() if secret in content]


def everything(pipeline: Pipeline) -> dict[str, bytes]:
    """All places."""
    source, target = pipeline.source, pipeline.target
    stems = [Path(stem) for stem in stems_of(str(target.home), str(target.home / "dirtmp"), "REP1")]
    scratch = [folder for stem in stems for folder in stem.parent.glob(f"{stem.name}*")]
    assert scratch
    return {
        **files(source.home, target.home, *scratch),
        **processes(),
        **sockets(source, "EXT1", "PMP1", "MGR"),
        **sockets(target, "REP1", "MGR"),
        **commands(source, "VIEW PARAMS EXT1", "VIEW REPORT EXT1", "INFO CREDENTIALSTORE", "INFO ALL --json"),
        **commands(target, "VIEW PARAMS REP1", "VIEW REPORT REP1", "VIEW GGSEVT", "INFO REP1, DETAIL", "HISTORY"),
    }


def test_secrets_stay_where_they_belong(running: Rig) -> None:
    """Passwords nowhere; row values in no log, report, status or trail; the rows arrive all the same."""
    pipeline = running.pipeline
    source, target = pipeline.source, pipeline.target
    insert(pipeline, 900_001, ROW)
    running.ends_equal()
    places = everything(pipeline)
    assert holders(places, PASSWORD) == []
    assert holders({name: data for name, data in places.items() if "/dir" in name}, ROW.encode()) == []
    assert b"USERIDALIAS capture" in places["VIEW REPORT EXT1"]
    assert b"vault:********@" in places["VIEW REPORT REP1"]
    for host, trail in ((source, "lt"), (target, "rt")):
        assert host.json("INFO MASTERKEY")["versions"][0]["files"] >= 1, trail

    # An Extract with a wrong password, and a Replicat that meets a row which its target refuses.
    source.run(f"ALTER CREDENTIALSTORE REPLACE USER vault PASSWORD '{WRONG}' ALIAS capture DOMAIN prod", "STOP EXT1")
    told = source.run("START EXT1", check=False).text
    assert "password authentication failed" in told
    source.run(f"ALTER CREDENTIALSTORE REPLACE USER vault PASSWORD '{CAPTURE}' ALIAS capture DOMAIN prod", "START EXT1")
    sql(pipeline.target_url, f"ALTER TABLE shop.readings ADD CONSTRAINT picky CHECK (remark <> '{REFUSED}')")
    insert(pipeline, 900_002, REFUSED)
    message = pipeline.wait_status(target, "REP1", "ABENDED")["message"]
    assert 'violates check constraint "picky"' in message
    assert "row (900002)" in message
    csn = message.partition("CSN ")[2].partition(",")[0]
    places = {**files(source.home, target.home), **processes(), "told": told.encode()}
    assert holders(places, PASSWORD) == []
    assert holders(places, REFUSED.encode()) == []

    # Who has the home has the row.
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "trails.show.dump", str(target.home / "dirdat/rt"), "--csn", csn],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert REFUSED in shown
