"""docs/own-database.md: every block of the page is run, in its order, on real servers, as the roles that it makes.

What is of a machine (hosts, ports, folders) is put in place of the page's names, and passwords are given where the page
has them asked for. Only the page's lines of pg_hba.conf let anybody in over TCP. The Replicat runs without Spark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from demo.compare import compare, tables_of
from demo.guard import Guard
from demo.mariadb import MariaServer
from demo.patience import PATIENCE, wait_for
from demo.pipeline import Host
from demo.ports import free_ports
from demo.servers import PostgresServer
from replicat.batches.scratch import sweep
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("own-database")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-database.md").read_text()
HOWTO = (ROOT / "docs" / "howto.md").read_text()
UNINSTALL = (ROOT / "docs" / "upgrade.md").read_text().partition("\n## Uninstall\n")[2]
TRIED = (
    "Change a table's columns",
    "Make trail files smaller",
    "Encrypt the trails",
    "Change a password",
    "Renew certificates",
    "Watch it",
)
BLOCK = re.compile(r"^```(\w+) (\w+)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PASSWORDS = dict(re.findall(r"CREATE ROLE (\w+) .*PASSWORD '([^']+)'", PAGE))
TABLES = """
CREATE TABLE customer (id bigint PRIMARY KEY, name text, note text);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES customer, cents bigint, at timestamptz);
CREATE TABLE "Odd name" (id int PRIMARY KEY, "Col umn" text);
INSERT INTO customer SELECT n, 'customer ' || n, repeat(md5(n::text), 200) FROM generate_series(1, 200) n;
INSERT INTO orders SELECT n, n % 200 + 1, n, now() FROM generate_series(1, 1000) n;
INSERT INTO "Odd name" VALUES (1, 'one');
"""


@dataclass
class Site:
    """The page's two hosts: servers, homes, and what stands in place of the page's names."""

    servers: dict[str, PostgresServer]
    hosts: dict[str, Host]
    folder: Path
    ports: range

    def sql(self, side: str, text: str, user: str = "postgres") -> None:
        """A block of SQL, by psql."""
        self._psql(side, text, user)
        if "wal_level" in text:
            self.servers[side].restart()

    def _psql(self, side: str, text: str, user: str) -> None:
        server = self.servers[side]
        url = server.url(DATABASES[side], user=user)
        command = [str(server.bindir / "psql"), "-q", "-v", "ON_ERROR_STOP=1", url]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stderr}"

    def hba(self, side: str, text: str) -> None:
        """Lines of pg_hba.conf; what the test itself needs is on the socket only."""
        server = self.servers[side]
        lines = text.replace("hostssl", "host   ") + "local all all trust\n"
        (server.data / "pg_hba.conf").write_text(self.placed(side, lines))
        server.reload()

    def shell(self, side: str, text: str) -> None:
        """Commands of a shell."""
        for one in ("source", "target") if side == "both" else (side,):
            text_here = self.placed(one, text).replace("scp ", "cp ").replace("target.example:", "")
            path = f"{self.servers['target'].bindir}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            env = {**self.hosts[one].environment, "PATH": path}
            command = ["sh", "-e", "-c", text_here]
            done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{text_here}\n{done.stdout}{done.stderr}"

    def parameters(self, side: str, name: str, text: str) -> None:
        """A parameter file, by its name or by the group in its first line."""
        home = self.hosts[side].home
        group = text.split("\n", 1)[0].split()[1].lower()
        path = home / "GLOBALS" if name == "GLOBALS" else home / "dirprm" / f"{name or group}.prm"
        path.write_text(self.placed(side, text))

    def commands(self, side: str, text: str) -> str:
        """Commands at the prompt; passwords are given where it would ask."""
        text = re.sub(r"(ADD USER (\w+) ALIAS.*)", lambda m: f"{m[1]}, PASSWORD '{PASSWORDS[m[2]]}'", text)
        text = re.sub(r"(DBLOGIN .*//(\w+)@.*)", lambda m: f"{m[1]}, PASSWORD '{PASSWORDS[m[2]]}'", text)
        return self.hosts[side].run(*self.placed(side, text).splitlines()).out

    def placed(self, side: str, text: str) -> str:
        """What is of this machine in place of the page's names."""
        for one, server in self.servers.items():
            for user in ("shop_owner", "postgres"):
                there = f"postgresql://{user}@{one}.example:5432/{DATABASES[one]}"
                text = text.replace(there, server.url(DATABASES[one], user=user))
            text = text.replace(f"{one}.example:5432", f"127.0.0.1:{server.port}")
        text = re.sub(r"\b10\.0\.0\.\d|0\.0\.0\.0", "127.0.0.1", text)
        text = re.sub(r"^PORT 7809", f"PORT {self.hosts[side].port}", text, flags=re.MULTILINE)
        text = text.replace("MGRPORT 7809", f"MGRPORT {self.hosts['target'].port}")
        text = text.replace("RMTHOST target.example", "RMTHOST 127.0.0.1")
        text = text.replace("7820-7829", f"{self.ports[2]}-{self.ports[-1]}")
        if "HOMEID" in text:
            (found,) = re.findall(r"[0-9a-f]{32}", self.hosts["target"].run("INFO CERTIFICATES").out)[:1]
            text = re.sub(r"[0-9a-f]{32}", found, text)
        text = text.replace("target.example:/opt/gate", str(self.hosts["target"].home))
        return text.replace("/opt/gate", str(self.hosts[side].home))


DATABASES = {"source": "shop", "target": "head"}


@pytest.fixture
def site() -> Iterator[Site]:
    """Two servers as they come, with an application's tables in the first, and two empty homes."""
    with (
        PostgresServer(version=16, tcp=True, options={"wal_level": "replica"}) as source,
        PostgresServer(version=18, tcp=True) as target,
        folder() as place,
    ):
        guard = Guard()
        try:
            ports = free_ports(12)
            hosts = {name: Host(place / name, ports[n], guard.environment) for n, name in enumerate(DATABASES)}
            site = Site({"source": source, "target": target}, hosts, place, ports)
            for name, server in site.servers.items():
                server.options.pop("wal_level", None)
                server.start()
                server.sql("CREATE ROLE shop_owner LOGIN")
                server.sql(f"CREATE DATABASE {DATABASES[name]} OWNER shop_owner")
                server.sql("ALTER SCHEMA public OWNER TO shop_owner", DATABASES[name])
            site.sql("source", TABLES, user="shop_owner")
            yield site
        finally:
            guard.kill_rest(patience=0)
            guard.dismiss()
            sweep()


def change(site: Site, first: int) -> None:
    """The application goes on, whatever is set up meanwhile."""
    site.sql(
        "source",
        f"""
        INSERT INTO customer VALUES ({first}, 'new', NULL);
        INSERT INTO orders SELECT n, {first}, n, now() FROM generate_series({first}, {first + 50}) n;
        UPDATE orders SET cents = cents + 1 WHERE id % 3 = 0;
        UPDATE customer SET name = upper(name) WHERE id % 5 = 0;
        DELETE FROM orders WHERE id % 7 = {first % 7};
        UPDATE "Odd name" SET "Col umn" = "Col umn" || '.', id = id + 1;
        """,
        user="shop_owner",
    )


def test_every_block_of_the_page_works_as_the_roles_that_it_makes(site: Site, mariadb: MariaServer) -> None:
    """From two servers as they come to two equal databases, with rows that were there before and an application at
    work; the roles may do no more than the page says.
    """
    replicat: subprocess.Popen[bytes] | None = None
    for number, (kind, side, name, text) in enumerate(BLOCK.findall(PAGE), 1):
        if side == "mariadb":
            continue
        change(site, number * 1000) if number % 4 == 0 else None
        if kind == "ggsci" and "START REPLICAT" in text:
            if replicat is not None:
                prm = site.hosts["target"].home / "dirprm" / "rep1.prm"
                prm.write_text(prm.read_text().replace("HANDLECOLLISIONS\n", ""))
                replicat.terminate()
                assert replicat.wait(PATIENCE) == 0
            if others := re.sub(r"(START|STOP) REPLICAT .*\n", "", text):
                site.commands(side, others)
            replicat = _sparkless(site.hosts["target"])
            _runs(site, "REP1")
        elif kind == "prm":
            site.parameters(side, name, text)
        else:
            {"sql": site.sql, "pg_hba": site.hba, "sh": site.shell, "ggsci": site.commands}[kind](side, text)
    change(site, 900_000)
    site.commands("source", "WAIT EXTRACT *")
    site.commands("target", "WAIT REPLICAT rep1")
    _is_equal(site)
    _roles_are_small(site)
    _heartbeats_arrive(site)
    _mariadb(site, mariadb)
    _tasks_of_howto(site)
    _add_a_table(site)
    assert replicat is not None
    replicat.terminate()
    assert replicat.wait(PATIENCE) == 0
    _uninstall(site)


def _tasks_of_howto(site: Site) -> None:
    """docs/howto.md: the sections that need nothing but this pipeline; the Replicat stays as it is."""
    certificate = site.hosts["source"].home / "for-target" / "home.crt"
    certificate.parent.mkdir(mode=0o700)
    certificate.write_bytes((site.hosts["target"].home / "dircrd" / "tls" / "home.crt").read_bytes())
    run = 0
    for section in HOWTO.split("\n## ")[1:]:
        for kind, side, _, text in BLOCK.findall(section) if section.startswith(TRIED) else ():
            lines = re.sub(r"(START|STOP) REPLICAT .*\n", "", text)
            if kind == "ggsci":
                site.commands(side, re.sub(r"(REPLACE USER (\w+) ALIAS.*)", r"\1, PASSWORD 'another'", lines))
                run += 1
    assert run >= 8


def _add_a_table(site: Site) -> None:
    """The section of docs/howto.md, with the publication that a superuser did not make."""
    source, target = site.servers["source"], site.servers["target"]
    for side in DATABASES:
        site.sql(side, "CREATE TABLE invoices (id int PRIMARY KEY, cents bigint)", user="shop_owner")
    site.sql("source", "ALTER ROLE gate_setup LOGIN")
    ((slot,),) = source.sql("SELECT slot_name FROM pg_replication_slots", "shop")
    section = HOWTO.partition("\n## Add a table\n")[2].partition("\n## ")[0]
    login, restart, _ = [text for kind, _, _, text in BLOCK.findall(section) if kind == "ggsci"]
    site.commands("source", login)
    site.sql("source", f'ALTER PUBLICATION "{slot}" ADD TABLE public.invoices')
    site.commands("source", restart)
    site.sql("source", "INSERT INTO invoices VALUES (1, 100)", user="shop_owner")
    site.commands("source", "WAIT EXTRACT *")
    wait_for(lambda: bool(target.sql("SELECT 1 FROM invoices WHERE cents = 100", "head")))


def _uninstall(site: Site) -> None:
    """docs/upgrade.md: nothing of the pipeline is left, and the application's tables are as they were."""
    site.sql("source", "ALTER ROLE gate_setup NOLOGIN")
    site.sql("target", "ALTER ROLE gate_apply PASSWORD 'another'")  # as the how-to section has changed it
    for kind, side, _, text in BLOCK.findall(UNINSTALL):
        lines = re.sub(r"STOP REPLICAT .*\n", "", text)
        {"sql": site.sql, "sh": site.shell, "ggsci": site.commands}[kind](side, lines)
    for side, server in site.servers.items():
        left = server.sql(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'gate%' UNION ALL SELECT slot_name FROM "
            "pg_replication_slots UNION ALL SELECT pubname FROM pg_publication UNION ALL SELECT nspname FROM "
            "pg_namespace WHERE nspname IN ('gate', 'trailgate') UNION ALL SELECT relname FROM pg_class "
            "WHERE relname IN ('orders', 'customer', 'invoices') AND relkind = 'r' AND relreplident = 'f'",
            DATABASES[side],
        )
        assert left == [], left
        assert server.sql("SELECT 1 FROM orders LIMIT 1", DATABASES[side])
        assert not site.hosts[side].home.exists()


def _mariadb(site: Site, mariadb: MariaServer) -> None:
    """The page's last but one section: a second Replicat on the same trail, as a user of MariaDB with few rights."""
    mariadb.start()
    mariadb.sql("CREATE DATABASE head")
    for table in (
        "customer (id bigint PRIMARY KEY, name text, note text)",
        "`Odd name` (id int PRIMARY KEY, `Col umn` text)",
    ):
        mariadb.sql(f"CREATE TABLE head.{table}")
    mariadb.sql("CREATE TABLE head.orders (id bigint PRIMARY KEY, customer bigint, cents bigint, at datetime(6))")
    blocks = [(kind, text) for kind, side, _, text in BLOCK.findall(PAGE) if side == "mariadb"]
    assert [kind for kind, _ in blocks] == ["sql", "prm", "ggsci"]
    placed = [
        site.placed("target", text.replace("target.example:3306", f"127.0.0.1:{mariadb.port}")) for _, text in blocks
    ]
    try:
        for statement in placed[0].split(";\n")[:-1]:
            mariadb.sql(statement)
        site.parameters("target", "", placed[1])
        before, start, after = placed[2].partition("START REPLICAT rep2\n")
        assert start
        site.commands("target", before)
        replicat = _sparkless(site.hosts["target"], "REP2")
        _runs(site, "REP2")
        site.commands("target", after)
        replicat.terminate()
        assert replicat.wait(PATIENCE) == 0
        ours = site.servers["target"].sql("SELECT count(*), sum(cents) FROM orders WHERE id >= 900000", "head")
        theirs = mariadb.sql("SELECT count(*), sum(cents) FROM head.orders WHERE id >= 900000")
        assert [tuple(map(int, row)) for row in ours] == [tuple(map(int, row)) for row in theirs]
    finally:
        mariadb.sql("DROP DATABASE IF EXISTS head")
        mariadb.sql("DROP DATABASE IF EXISTS gate")
        mariadb.sql("DROP USER IF EXISTS gate_apply@'127.0.0.1'")


def _runs(site: Site, group: str) -> None:
    host = site.hosts["target"]
    wait_for(lambda: host.statuses()[group]["status"] == "RUNNING", lambda: host.report(group)[-2000:])


def _sparkless(host: Host, group: str = "REP1") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "tests.support.sparkless", "--home", str(host.home), group]
    env = {**host.environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _is_equal(site: Site) -> None:
    urls = [site.servers[side].url(database) for side, database in DATABASES.items()]
    tables = tables_of(urls[0], ["public"])
    assert len(tables) == 3
    for table in tables:
        found = compare(*urls, table)
        assert found.equal, str(found)
        assert found.rows


def _roles_are_small(site: Site) -> None:
    """What each role may not do, tried as that role over TCP."""
    for side, role, forbidden in (
        ("source", "gate_capture", "SELECT * FROM customer"),
        ("source", "gate_capture", "CREATE TABLE public.x (id int)"),
        ("target", "gate_apply", "DROP TABLE orders"),
        ("target", "gate_apply", "CREATE TABLE public.x (id int)"),
        ("target", "gate_apply", "SET ROLE shop_owner"),
    ):
        url = site.servers[side].url(DATABASES[side], tcp=True, user=role, password=PASSWORDS[role])
        with psycopg.connect(url) as link, pytest.raises(errors.InsufficientPrivilege):
            link.execute(forbidden.encode())
    closed = site.servers["source"].url("shop", tcp=True, user="gate_setup", password=PASSWORDS["gate_setup"])
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(closed)


def _heartbeats_arrive(site: Site) -> None:
    """With the rights of the page alone; nothing is warned of."""
    target = site.servers["target"]
    wait_for(lambda: bool(target.sql("SELECT 1 FROM gate.gg_heartbeat", "head")))
    for host in site.hosts.values():
        lines = (host.home / "ggserr.log").read_text().splitlines()
        assert [line for line in lines if " TG-00951 " in line or " ERROR " in line] == []
