"""Replicat's parameter file: what is taken, and how what is wrong is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replicat.batches.engine import on_command_line
from replicat.load.rounds import rested
from replicat.params import KEYWORDS, DbOptions, End, ReplicatParams
from trails.errors import ParamError
from trails.runtime.language.params import ParamErrors, parse_text

GOOD = "REPLICAT rep1\nTARGETDB postgresql://u@h/d\nMAP s.*, TARGET p.*;\n"


def read(text: str) -> ReplicatParams:
    return ReplicatParams.from_statements(parse_text(text, "rep1.prm"))


def test_all_parameters():
    """Each keyword's own example is accepted, all together."""
    opposed = {"UPDATEDELETES", "USERIDALIAS", "USERID"} | {f"NO{name}" for name in KEYWORDS}
    maps = [KEYWORDS[name].example for name in ("MAP", "MAPEXCLUDE")]
    opposed |= {"REPLICAT", "MAP", "MAPEXCLUDE"} | {name for name, keyword in KEYWORDS.items() if keyword.refused}
    others = [k.example for k in KEYWORDS.values() if k.name not in opposed]
    params = read("\n".join(["REPLICAT rep1", *others, *maps]))
    assert params.group == "REP1"
    assert params.batch_bytes == 64 << 20
    assert params.commit_wait
    assert params.spark_options == (("spark.executor.cores", "2"),)
    assert params.checkpoint_table == ("ggadmin", "checkpoint")
    assert (params.group_trans_ops, params.max_trans_ops, params.batch_seconds) == (1000, 1_000_000, 2.0)
    assert params.end == End(csn="0000000001A2B3C0")
    assert params.db_options == DbOptions(defer_ref_const=True, follow_sequences=True)
    assert params.check_only
    assert params.ddl is not None
    assert len(params.ddl_errors) == 1
    assert [str(pattern) for pattern in params.excludes] == ["sales.tmp_*", "sales.log"]


def test_defaults():
    """A small file is enough."""
    params = read(GOOD)
    assert (params.batch_rows, params.batch_bytes, params.commit_wait) == (100_000, 64 << 20, False)
    assert (params.spark_master, params.reconnect_seconds) == ("local[2]", 3600)
    assert (params.group_trans_ops, params.max_trans_ops, params.batch_seconds) == (0, 0, None)
    assert (params.end, params.ddl, params.ddl_errors, params.check_only) == (None, None, (), False)
    assert params.db_options == DbOptions()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("TARGETDB oracle://h/d", "rep1.prm:4: TARGETDB: expected postgresql://"),
        ("TARGETDB mysql://u:secret@h", "rep1.prm:4: TARGETDB: expected one database behind the host"),
        (
            "TARGETDB mysql://u:secret@h:70000/d",
            "rep1.prm:4: TARGETDB: expected mysql://user@host:port/database, found",
        ),
        ("TARGETDB mysql:///d", "rep1.prm:4: TARGETDB: expected a host, or mysql:///database?unix_socket=/path"),
        ("TARGETDB sqlite:///", "rep1.prm:4: TARGETDB: expected sqlite:///path of a file, found none"),
        ("TARGETDB just text", "rep1.prm:4: TARGETDB: expected postgresql://"),
        (
            "SOURCEDB oracle://h/d",
            "rep1.prm:4: SOURCEDB: expected a URL such as postgresql://db.example:5432/shop, found",
        ),
        ("SOURCEDB shop", "rep1.prm:4: SOURCEDB: expected a URL, as nothing says where 'shop' is"),
        ("LOADTASKS 33", "rep1.prm:4: LOADTASKS: expected a whole number from 1 to 32"),
        ("MAP s.t TARGET;", "rep1.prm:4: MAP: expected source.table, TARGET target.table"),
        ("MAP s.*, TARGET p.*_*;", "rep1.prm:4: MAP: expected a target with at most one * in each part and no ?"),
        ("MAP s.*, TARGET p.a?;", "rep1.prm:4: MAP: expected a target with at most one * in each part and no ?"),
        ("MAP s.*, TARGET p.*", "rep1.prm:4: MAP: expected ';'"),
        ("MAP s.*, TARGET p.*;", "rep1.prm:4: MAP: s.* goes to p.* already in line 3"),
        ("MAPEXCLUDE s.a, nodots;", "rep1.prm:4: MAPEXCLUDE: expected schema.table"),
        ("MAPEXCLUDE;", "rep1.prm:4: MAPEXCLUDE: expected schema.table"),
        ("BATCHBYTES 5T", "rep1.prm:4: BATCHBYTES: expected a whole number"),
        ("BATCHSECS 1h", "rep1.prm:4: BATCHSECS: expected a whole number from 0 to 600"),
        ("SPARKOPTIONS master=local", "rep1.prm:4: SPARKOPTIONS: expected spark.name=value"),
        ("SPARKOPTIONS spark.master=local[2]", "rep1.prm:4: SPARKOPTIONS: expected SPARKMASTER, which says where"),
        ("SPARKOPTIONS spark.speculation=true", "rep1.prm:4: SPARKOPTIONS: expected none: a second try of a task"),
        ("CHECKPOINTTABLE g.*", "rep1.prm:4: CHECKPOINTTABLE: expected one table without wildcards"),
        ("GROUPTRANSOPS 0", "rep1.prm:4: GROUPTRANSOPS: expected a whole number from 1"),
        ("MAXTRANSOPS many", "rep1.prm:4: MAXTRANSOPS: expected a whole number from 1"),
        ("GROUPTRANSOP 5", "rep1.prm:4: GROUPTRANSOP: REPLICAT has no such parameter; did you mean GROUPTRANSOPS?"),
        ("END", "rep1.prm:4: END: expected RUNTIME, CSN x, or a time"),
        ("END CSN", "rep1.prm:4: END: expected CSN x"),
        ("END tomorrow", "rep1.prm:4: END: expected RUNTIME, CSN x, or a time"),
        ("DBOPTIONS", "rep1.prm:4: DBOPTIONS: expected SUPPRESSTRIGGERS"),
        ("DBOPTIONS SUPRESSTRIGGERS", "did you mean SUPPRESSTRIGGERS?"),
        ("DBOPTIONS (SUPPRESSTRIGGERS, NOSUPPRESSTRIGGERS)", "rep1.prm:4: DBOPTIONS: expected SUPPRESSTRIGGERS or"),
        ("DDL EXCLUDE OPTYPE DROP", "rep1.prm:4: DDL: expected an INCLUDE"),
        ("DDLERROR 42P01 EXPLODE", "rep1.prm:4: DDLERROR: expected {DEFAULT"),
        ("DDLERROR DEFAULT", "rep1.prm:4: DDLERROR: expected {DEFAULT"),
        ("TABLEERROR s.t, PAUSE", "rep1.prm:4: TABLEERROR: expected (schema.table"),
        ("TABLEERROR (s.t, STOP)", "rep1.prm:4: TABLEERROR: expected (schema.table"),
        ("TABLEERROR (s.t, PAUSE, MAXKEEPDAYS 0)", "rep1.prm:4: TABLEERROR: expected a whole number from 1 to 366"),
        ("HANDLECOLLISIONS now", "rep1.prm:4: HANDLECOLLISIONS: expected no argument"),
        ("HANDLECOLLISIONS", "rep1.prm:4: HANDLECOLLISIONS: no MAP stands behind it"),
        ("REPERROR (23505, DISCARD)", "rep1.prm:4: REPERROR: no MAP stands behind it"),
        (
            "INSERTDELETES\nUPDATEDELETES\nMAP s.a, TARGET p.a;",
            "rep1.prm:6: MAP: expected one of INSERTDELETES and UPD",
        ),
    ],
)
def test_mistakes(line: str, message: str):
    """File, line, expected, found."""
    text = GOOD.replace("TARGETDB postgresql://u@h/d\n", "\n") if "TARGETDB" in line else GOOD
    with pytest.raises(ParamError) as caught:
        read(text + line + "\n")
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_neither_spark_nor_a_driver_is_loaded():
    """ggsci checks a file without waiting for either."""
    code = "import sys, replicat.params; print([m for m in ('pyspark', 'psycopg', 'py4j') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SWITCHED = """REPLICAT rep1
TARGETDB postgresql://u@h/d
MAP s.plain, TARGET p.plain;
INSERTALLRECORDS
REPERROR (DEFAULT, DISCARD)
MAP s.history, TARGET p.history;
NOINSERTALLRECORDS
HANDLECOLLISIONS
REPERROR (23505, IGNORE)
MAP s.collides, TARGET p.collides, REPERROR (23514, ABEND);
MAP s.strict, TARGET p.strict, NOHANDLECOLLISIONS, REPERROR (DEFAULT, IGNORE);
NOHANDLECOLLISIONS
REPERROR RESET
IGNOREMISSINGCOLUMNS
ALLOWDUPTARGETMAP
MAP s.strict, TARGET p.strict, INSERTALLRECORDS;
NOIGNOREMISSINGCOLUMNS
"""


def test_switches_and_error_rules_hold_for_the_maps_behind_them():
    """Their order in the file counts, as in GoldenGate; a MAP's own options beat them."""
    maps = read(SWITCHED).maps
    on = [{name for name in rule.toggles.__slots__ if getattr(rule.toggles, name)} for rule in maps]
    assert on == [
        set(), {"insert_all"}, {"collisions"}, set(), {"insert_all", "ignore_missing_columns", "allow_dup_target"}
    ]  # fmt: skip
    rules = [[(rule.code, rule.action) for rule in m.error_rules] for m in maps]
    assert rules == [
        [],
        [("DEFAULT", "DISCARD")],
        [("23514", "ABEND"), ("DEFAULT", "DISCARD"), ("23505", "IGNORE")],
        [("DEFAULT", "IGNORE")],
        [],
    ]
    assert read(SWITCHED).error_rules == ()


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("END RUNTIME", End()),
        ("END CSN 0/1A2B3C0", End(csn="0/1A2B3C0")),
        ("END '2026-02-03T02:30:05+00:00'", End(time_us=1_770_085_805_000_000)),
        ("END 2026-02-03 02:30:05.5+00:00", End(time_us=1_770_085_805_500_000)),
    ],
)
def test_end(line: str, end: End):
    """A place or a time."""
    assert read(GOOD + line).end == end


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("250ms", 0.25), ("0", 0.0)])
def test_seconds(text: str, seconds: float):
    """Whole seconds or milliseconds."""
    assert read(f"{GOOD}BATCHSECS {text}").batch_seconds == seconds


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("sqlite:///copy.db", "main.*"),
        ("sqlite:////var/lib/copy.db", "main.copy_*"),
        ("mysql://u:pw@h:3306/shop", "shop.*"),
        ("mysql:///shop?unix_socket=/run/x.sock", "shop.*"),
        ("postgres://u@h/d", "p.*"),
    ],
)
def test_targets(url: str, target: str):
    """Each kind of URL; SQLite has one schema."""
    text = f"REPLICAT rep1\nTARGETDB {url}\nMAP s.*, TARGET {target};\n"
    assert read(text).target_url == url
    if url.startswith("sqlite"):
        with pytest.raises(ParamErrors, match=r"rep1\.prm:3: MAP: expected schema main in a SQLite target, found p\.t"):
            read(text.replace(target, "p.t"))


def test_several_mistakes_of_a_map_are_told_at_once_each_with_its_line():
    """A MAP spans lines: the right one is named."""
    text = (
        GOOD
        + """MAP s.orders, TARGET p.orders,
  KEYCOL (id),
  COLMAP (USEDEFAULTS,
     total = @NOSUCH (price),
     note
  ),
  FILTER (a > 1, b > 2),
  WEIGHT heavy;
"""
    )
    with pytest.raises(ParamErrors) as caught:
        read(text)
    lines = [str(error).partition(": ")[0] for error in caught.value.errors]
    assert lines == ["rep1.prm:5", "rep1.prm:7", "rep1.prm:8", "rep1.prm:10", "rep1.prm:11"]
    assert "did you mean KEYCOLS?" in str(caught.value)
    assert "@NOSUCH" in str(caught.value)


def test_secrets_of_spark_are_on_no_command_line():
    """They are given to the JVM once it runs; what it must know to start stays."""
    options = {
        "spark.driver.memory": "1g",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "s",
        "spark.hadoop.fs.s3a.access.key": "a",
        "spark.ssl.keyPassword": "p",
    }
    assert [name for name, _ in on_command_line(options)] == ["spark.driver.memory", "spark.authenticate"]


def test_the_source_has_a_login_of_its_own():
    """A line USERIDALIAS is TARGETDB's; SOURCEDB says in its own line who logs in. Without it there is none."""
    given = read(
        "REPLICAT r\nTARGETDB postgresql://h/d\nUSERIDALIAS deliver\nSOURCEDB mysql://s/d, USERIDALIAS capture\n"
        "LOADTASKS 32\nLOADRATE 500\nMAP a.*, TARGET b.*;"
    )
    assert (given.database.alias, given.source.alias, given.source_url) == ("deliver", "capture", "mysql://s/d")
    assert (given.load_tasks, given.load_chunk, given.load_rate) == (32, 250_000, 500)
    plain = read("REPLICAT r\nTARGETDB postgresql://h/d\nMAP a.*, TARGET b.*;")
    assert (plain.source_url, plain.source.alias, plain.load_tasks, plain.load_rate) == ("", "", 2, 0)


def test_a_round_of_a_load_is_followed_by_a_rest_that_keeps_its_rate():
    """10,000 rows at 500 a second take 20 seconds, however fast they were copied; without a rate there is no rest."""
    assert rested(100.0, 10_000, 500) == 120.0
    assert rested(100.0, 10_000, 0) == rested(100.0, 0, 500) == 100.0
