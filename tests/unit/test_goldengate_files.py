"""Parameter files as GoldenGate's users have them load, or stop with the lines to write; what they hold without a
meaning here is told, and what would change data is refused by its name.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from extract.params import ExtractParams
from ggsci import checkprm
from replicat.params import ReplicatParams
from tests.support.homes import bad, good, make_home
from trails.ddl import DdlChange, TableShape
from trails.errors import OperatorError, ParamError
from trails.runtime import masking
from trails.runtime.language import accepted
from trails.runtime.language.params import ParamErrors, parse_file, parse_text
from trails.runtime.masking import mask_parameters
from trails.runtime.secrets import credentials
from trails.runtime.secrets.credentials import DOMAIN, Credential

FILES = Path(__file__).parents[1] / "support" / "goldengate"
SILENT = {
    "ext_hr": "TRANLOGOPTIONS UPDATERECORDFORMAT CACHEMGR BR REPORT DYNAMICRESOLUTION WILDCARDRESOLVE "
    "FETCHOPTIONS FLUSHSECS EOFDELAY DISCARDFILE DISCARDROLLOVER THREADOPTIONS NUMFILES FORMAT REPORTFETCH "
    "NOTRIMSPACES",
    "ext_old": "NOCOMPRESSDELETES NOCOMPRESSUPDATES GETAPPLOPS TRANLOGOPTIONS "
    "TRANSMEMORY RECOVERYOPTIONS TCPSOURCETIMER WARNRATE NODISCARDFILE FETCHCOLS DEF",
    "pmp_hr": "USERIDALIAS COMPRESS COMPRESSTHRESHOLD ENCRYPT KEYNAME TCPBUFSIZE TCPFLUSHBYTES FORMAT "
    "DYNAMICRESOLUTION EOFDELAY SEQUENCE",
    "ext_alias": "TRANLOGOPTIONS DBOPTIONS UPDATERECORDFORMAT FETCHUSERIDALIAS",
    "ext_dsn": "CHARSET",
    "ext_ddl": "ADDTRANDATA RETRYOP RETRYDELAY MAXRETRIES REPORT GETREPLICATES NOCROSSRENAME NAMEMATCHEXACT",
    "pmp_user": "USERID COMPRESS ENCRYPT TCPBUFSIZE TCPFLUSHBYTES DDL WARNLONGTRANS",
    "rep_user": "ASSUMETARGETDEFS UPDATEMETADATA REPORT",
    "rep_alias": "INTEGRATEDPARAMS NOCATALOGCONNECT BATCHSQL",
    "rep_hist": "ASSUMETARGETDEFS",
    "pmp_two": "SOURCEDEFS STREAMING UPDATERECORDFORMAT WILDCARDRESOLVE NUMFILES",
    "rep_hr": "ASSUMETARGETDEFS MAXDISCARDRECS LIMITROWS BATCHSQL MAXSQLSTATEMENTS NODYNSQL DYNAMICRESOLUTION "
    "TRANSACTIONTIMEOUT NOTRIMSPACES",
    "rep_par": "SOURCEDEFS MAP_PARALLELISM MIN_APPLY_PARALLELISM MAX_APPLY_PARALLELISM SPLIT_TRANS_RECS "
    "COMMIT_SERIALIZATION CHUNK_SIZE LOOK_AHEAD_TRANSACTIONS APPLYNOOPUPDATES INTEGRATEDPARAMS DISABLECOMMITNOWAIT "
    "INSERTAPPEND THREADRANGE COORDINATED THREAD DEF",
    "mgr": "USERIDALIAS PURGEDDLHISTORY PURGEMARKERHISTORY STARTUPVALIDATIONDELAY DOWNCRITICAL SYSLOG",
    "GLOBALS": "MGRSERVNAME ENABLEMONITORING TRAIL_SEQLEN_9D USEANSISQLQUOTES ALLOWOUTPUTDIR OUTPUTFILEUMASK SYSLOG",
}


@pytest.fixture
def home(tmp_path):
    """A home with all these files in place."""
    made = make_home(tmp_path / "home")
    for path in FILES.iterdir():
        folder = Path(made.root) if path.name == "GLOBALS" else Path(made.folder("dirprm"))
        (folder / path.name).write_text(path.read_text())
    return made


@pytest.mark.parametrize("name", SILENT)
def test_files_of_goldengate_load(home, name):
    """CHECK PARAMS' text check finds no mistake, and says of each word without a meaning here why it has none."""
    path = home.globals if name == "GLOBALS" else home.prm(name)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = checkprm.main(["--text", "--home", home.root, path])
    text = out.getvalue()
    assert code == 0, text
    told = [line for line in text.splitlines() if "is accepted, without meaning here: " in line]
    for word in SILENT[name].split():
        assert any(f"{word} is accepted" in line for line in told), (word, text)
    assert len({line.split(" is accepted")[0].split()[-1] for line in told}) == len(SILENT[name].split())


def test_check_params_tells_what_has_no_meaning(home):
    """The same lines by CHECK PARAMS, before it looks at anything else."""
    text = good(home, "CHECK PARAMS mgr")
    assert "mgr.prm:3: USERIDALIAS is accepted, without meaning here: the Manager needs no database" in text


def either(there: str) -> str:
    """A URL of each kind of source that is a server."""
    return f"postgresql://{there} or mysql://{there}"


LOOP = "two ways between the same tables would be a loop (docs/topologies.md); remove it where no Replicat writes"
BY_FILE = "INSTANTIATE REPLICAT loads tables; EXTFILE of a task writes them to a file (docs/initial-load.md)"
RUNS = "no statement is run on the way; "
IN_MAP = "is not supported: write it in the MAP of a Replicat"
IN_URL = "is not supported: host and port stand in the URL"
STOPS = {
    "ext_refused": [
        (4, f"EXCLUDEUSER is not supported: changes are captured whoever made them, so {LOOP}"), (5, LOOP),
        (6, "SEQUENCE: is not supported: sequences are not captured; remove it, and set them at the switch"),
        (9, f"option SQLEXEC is not supported: {RUNS}"),
        (3, "expected the user once, found one in SOURCEDB too"),
    ],
    "ext_tns": [
        (3, ("USERID: a password that GoldenGate encrypted can't be read here; ALTER CREDENTIALSTORE ADD USER ogg "
            "ALIAS ogg asks for it anew; then write USERIDALIAS ogg")),
        (5, "RMTTRAIL: is not supported: an Extract on a database writes EXTTRAIL"),
        (6, f"SQLEXEC: is not supported: {RUNS}session settings go into the URL (?options=-c%20name=value)"),
        (10, "SEQUENCE: is not supported"),
        (11, "KEYCOLS is not supported: write it in the MAP of a Replicat, and GETUPDATEBEFORES here"),
        (12, f"TARGET {IN_MAP}"), (12, f"COLMAP {IN_MAP}"),
    ],
    "ext_bi": [(4, f"EXCLUDEUSER is not supported: changes are captured whoever made them, so {LOOP}"),
               (5, "option EXCLUDETAG is not"), (6, "option FILTERTABLE is not"), (7, "option IGNOREREPLICATES is not"),
               (9, LOOP)],
    "ext_mysql": [
        (4, f"HOST {IN_URL}"), (4, f"CONNECTIONPORT {IN_URL}"),
        (2, ("SOURCEDB: expected a URL, as nothing says where 'shop@db7.example:3306' is; write "
            f"SOURCEDB {either('db7.example:PORT/shop')}, and keep USERID")),
    ],
    "ext_load": [
        (2, "SOURCEISTABLE: is not supported: ADD EXTRACT e, SOURCEISTABLE says so; remove it"),
        (7, f"SQLPREDICATE is not supported: {BY_FILE}"),
        (3, f"nothing says where 'orcl' is; write SOURCEDB {either('HOST:PORT/orcl')}, and keep USERID"),
    ],
    "pmp_rows": [
        (4, "option PORT is not supported: Collectors are started by a Manager; write MGRPORT, its port"),
        (4, "option PARAMS is not supported"), (6, (f"EXCLUDETAG: is not supported: changes are captured whoever made "
                                                   f"them, so {LOOP}")),
        (7, f"SQLEXEC is not supported: {RUNS}"),
        (8, "EVENTACTIONS is not supported: no record is an event; STOP, END and SEND act where you say"),
    ],
    "rep_refused": [
        (6, RUNS),
        (7, "SPACESTONULL: is not supported: write @STRRTRIM"),
        (8, "expected DYNAMIC, as tables that are made later can't be left out"),
        (9, "DEFERAPPLYINTERVAL: is not"), (10, "option SETTAG is not supported: no change bears a tag"),
        (11, "option EVENTACTIONS is not supported"),
    ],
    "rep_mysql": [
        (3, f"HOST {IN_URL}"), (3, f"CONNECTIONPORT {IN_URL}"), (5, "DEFERAPPLYINTERVAL: is not supported"),
        (2, ("TARGETDB: expected a URL, as nothing says where 'dw@mysql01.example:3306' is; write "
            "TARGETDB postgresql://mysql01.example:PORT/dw or mysql://mysql01.example:PORT/dw, and keep USERID")),
    ],
    "rep_map": [
        (4, RUNS), (5, "GETUPDATEBEFORES: is not supported: name old values as before.column in COLMAP"),
        (6, "TRIMSPACES: is not supported"), (9, f"SQLEXEC is not supported: {RUNS}look values up in a view"),
        (14, "TOKENS is not supported: it belongs to TABLE"), (14, "EVENTACTIONS is not supported"),
    ],
    "rep_bi": [(4, ("option SETTAG is not supported: no change bears a tag, and none is left out by one "
                   "(docs/topologies.md); remove it where data goes one way only"))],
}  # fmt: skip
"""For each file that stops all its mistakes, by line; 0: of the whole file."""


@pytest.mark.parametrize("name", STOPS)
def test_what_would_change_data_is_refused_by_name(home, name):
    """All at once, each with its line and what to write instead in at most 40 words; no password is shown."""
    text = bad(home, f"CHECK PARAMS {name}")
    told = [line.removeprefix("ERROR: ").split(f"{name}.prm:", 1)[1] for line in text.splitlines()
            if f"{name}.prm:" in line]  # fmt: skip
    assert len(told) == len(STOPS[name]), text
    for line, (number, reason) in zip(told, STOPS[name], strict=True):
        assert re.match(r"(\d*)", line)[1] == (str(number) if number else "")
        assert reason in line
        assert len(line.split()) <= 40
    for secret in ("secret", "my_ggs_pw", "oracle_1", "asm_oracle1", "AACAAAAA"):
        assert secret not in text


def test_every_file_here_loads_or_stops():
    """None stands here unread."""
    assert {path.name.removesuffix(".prm") for path in FILES.iterdir()} == {*SILENT, *STOPS}


def test_no_parameter_of_goldengate_is_simply_unknown():
    """Each that its reference names is obeyed, accepted with its reason, or refused with what to write."""
    from ggsci.parameters import PROGRAMS
    from trails.runtime.language.params import ALWAYS, LANGUAGE

    tables = {program.upper(): keywords for program, _, keywords in PROGRAMS}
    names = FILES.with_name("goldengate_parameters.txt").read_text().partition("\n")[2]
    read = 0
    for paragraph in names.strip().split("\n\n"):
        program, _, listed = paragraph.partition(":")
        unknown = set(listed.split()) - set(tables[program]) - set(ALWAYS) - set(LANGUAGE)
        assert not unknown, (program, sorted(unknown))
        read += len(listed.split())
    assert read > 400


def extract(lines: str) -> ExtractParams:
    """An Extract's file with these lines."""
    return ExtractParams.from_statements(parse_text(f"EXTRACT e\n{lines}\nEXTTRAIL ./dirdat/lt\nTABLE s.*;", "e.prm"))


@pytest.fixture
def store(home):
    """A credential store: one alias leads to a database, the other is a user only."""
    credentials.create(home)
    credentials.add(home, Credential(DOMAIN, "ggpg", "gate@db1:5433/shop", "pw/with sign"))
    credentials.add(home, Credential(DOMAIN, "ggonly", "gate@orcl", "another_pw"))
    return home


def test_a_file_of_goldengate_without_a_url_leads_to_the_database_of_its_alias(store):
    """USERIDALIAS alone, and behind a DSN of the same name."""
    url = "postgresql://gate:pw%2Fwith%20sign@db1:5433/shop"
    assert extract("USERIDALIAS ggpg").resolved(store).url == url
    assert extract("SOURCEDB Shop, USERIDALIAS ggpg").resolved(store).url == url
    assert extract("SOURCEDB shop\nUSERIDALIAS ggpg").resolved(store).url == url
    found = ReplicatParams.from_statements(parse_text("REPLICAT r\nUSERIDALIAS ggpg\nMAP s.*, TARGET t.*;", "r.prm"))
    assert found.resolved(store).target_url == url
    assert extract("SOURCEDB postgresql://db9/x\nUSERIDALIAS ggonly").resolved(store).url == (
        "postgresql://gate:another_pw@db9/x"
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("USERIDALIAS ggonly", ("e.prm:2: USERIDALIAS: alias ggonly says no host and database. "
                               f"Write SOURCEDB {either('HOST:PORT/DATABASE')}, USERIDALIAS ggonly")),
        ("SOURCEDB erp, USERIDALIAS ggpg", ("alias ggpg leads to the database shop, expected erp. "
                                           f"Write SOURCEDB {either('HOST:PORT/erp')}, USERIDALIAS ggpg")),
        ("USERIDALIAS nobody", ("e.prm:2: USERIDALIAS: the credential store has no alias nobody in domain Trailgate. "
                               f"INFO CREDENTIALSTORE shows all; and write SOURCEDB {either('HOST:PORT/DATABASE')}")),
    ],
)  # fmt: skip
def test_an_alias_that_leads_nowhere_stops_with_the_line_to_write(store, lines, told):
    """Never another database than the one that was named."""
    with pytest.raises(OperatorError, match=re.escape(told)):
        extract(lines).resolved(store)


@pytest.mark.parametrize(
    ("lines", "url"),
    [
        ("SOURCEDB postgresql://db/shop\nUSERID gate, PASSWORD p@ss/w", "postgresql://gate:p%40ss%2Fw@db/shop"),
        ("SOURCEDB postgresql://db/shop, USERID gate@orcl, PASSWORD 'a b'", "postgresql://gate:a%20b@db/shop"),
        ('USERID gate@db:5433/shop, PASSWORD "pw"', "postgresql://gate:pw@db:5433/shop"),
        ("SOURCEDB shop, USERID gate@db:5433/shop PASSWORD pw", "postgresql://gate:pw@db:5433/shop"),
        ("SOURCEDB postgresql://db/shop\nUSERID gate", "postgresql://gate@db/shop"),
        ("SOURCEDB postgresql:///shop\nUSERID /", "postgresql:///shop"),
    ],
)  # fmt: skip
def test_userid_and_password_are_the_login_of_the_url(home, lines, url):
    """On a line of its own or behind SOURCEDB; `/` is the user of the operating system."""
    assert extract(lines).resolved(home).url == url


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("SOURCEDB shop", ("e.prm:2: SOURCEDB: expected a URL, as nothing says where 'shop' is; write "
                          f"SOURCEDB {either('HOST:PORT/shop')}, USERIDALIAS alias")),
        ("USERID gate@orcl, PASSWORD secret1", ("e.prm:2: USERID: expected a URL, as nothing says where 'orcl' is; "
                                               f"write SOURCEDB {either('HOST:PORT/orcl')}, and keep USERID")),
        ("USERID gate@//db:1521/orcl, PASSWORD secret1", "expected a URL, as nothing says where"),
        ("SOURCEDB erp\nUSERID gate@db/shop, PASSWORD secret1", "expected a URL, as nothing says where 'erp' is"),
        ("SOURCEDB postgresql://me@db/shop\nUSERID gate", "e.prm:3: USERID: expected the user once"),
        ("SOURCEDB postgresql://db/shop\nUSERID gate\nUSERIDALIAS a", "expected the user once, found one in line"),
        ("SOURCEDB postgresql://db/shop, USERID gate PASWORD secret1", "expected url, USERIDALIAS alias"),
        ("SOURCEDB postgresql://db/shop\nUSERID gate, PASSWORD secret1 SYSDBA", "expected user [, PASSWORD password]"),
        ("", "e.prm: SOURCEDB is missing"),
    ],
)  # fmt: skip
def test_a_login_that_is_no_login_is_told_with_the_line_to_write(lines, told):
    """At the check of the file, and the password is not."""
    with pytest.raises(ParamError, match=re.escape(told)) as raised:
        extract(lines)
    assert "secret1" not in str(raised.value) or "PASWORD" in lines


def test_passwords_of_other_parameters_are_not_shown():
    """They stand in the report's copy of the file too."""
    for text in ("TRANLOGOPTIONS ASMUSER sys@asm, ASMPASSWORD oracle1", "USERID a@b, PASSWORD oracle1, ENCRYPTKEY k",
                 "DDLOPTIONS DEFAULTUSERPASSWORD oracle1"):  # fmt: skip
        assert "oracle1" not in mask_parameters(text)


def test_a_password_by_a_variable_is_not_shown_where_the_variable_is_set(home, monkeypatch):
    """SETENV, and GETENV in the report: the value is known by its use behind USERID."""
    monkeypatch.setattr(masking, "_secrets", set())
    path = Path(home.prm("ext_var"))
    path.write_text("EXTRACT v\nSETENV (GGPW = geheim99)\nUSERID gate@db/shop, PASSWORD ?GGPW\n")
    assert "geheim99" in mask_parameters(path.read_text())
    credentials.hide_file(str(path))
    assert "geheim99" not in mask_parameters(path.read_text())


def test_exclude_of_what_is_never_carried_is_obeyed():
    """An index, a GRANT: nothing to leave out; to INCLUDE one is refused, and so is a kind that nobody knows."""
    lines = "SOURCEDB postgresql://u@db/shop\nDDL INCLUDE ALL, EXCLUDE {}"
    change = DdlChange("CREATE", None, TableShape("s", "t", ()), "create table s.t ()")
    for clause in ("OBJTYPE INDEX", "OBJTYPE 'MATERIALIZED  VIEW'", "OPTYPE GRANT, OBJNAME s.t", 'OBJTYPE "TRIGGER"'):
        assert extract(lines.format(clause)).ddl.passes(change, mapped=True)
    assert not extract(lines.format("OPTYPE CREATE")).ddl.passes(change, mapped=True)
    for clause in ("OBJNAME 'S.*'", 'OBJNAME "s.t"', "OBJNAME s.t"):  # quotes around all of it are older files' way
        assert not extract(lines.format(clause)).ddl.passes(change, mapped=True)
    for clause in ("EXCLUDE OBJTYPE TABEL", "INCLUDE OBJTYPE INDEX", "INCLUDE OPTYPE GRANT"):
        with pytest.raises(ParamError, match="DDL: expected"):
            extract(lines.replace("EXCLUDE {}", clause))


def test_useridalias_is_a_line_of_its_own():
    """Beside SOURCEDB and TARGETDB; not where a user stands already."""
    lines = "EXTRACT e\nSOURCEDB postgresql://db/shop\nUSERIDALIAS src DOMAIN prod\nEXTTRAIL ./dirdat/lt\nTABLE s.*;"
    found = ExtractParams.from_statements(parse_text(lines, "e.prm")).database
    assert (found.url, found.alias, found.domain) == ("postgresql://db/shop", "src", "prod")
    lines = "REPLICAT r\nTARGETDB mysql://db/shop\nUSERIDALIAS tgt\nMAP s.*, TARGET t.*;"
    assert ReplicatParams.from_statements(parse_text(lines, "r.prm")).database.alias == "tgt"
    for url in ("mysql://me@db/shop", "mysql://db/shop, USERIDALIAS other"):
        with pytest.raises(ParamError, match="expected the user once, found one in TARGETDB too"):
            ReplicatParams.from_statements(parse_text(lines.replace("mysql://db/shop", url), "r.prm"))


def test_an_encrypted_link_is_not_quietly_plain():
    """ENCRYPT means nothing beside TLS, and is refused beside NOTLS."""
    from pump.params import PumpParams

    lines = "EXTRACT p\nRMTHOST there, MGRPORT 7809, ENCRYPT AES256, NOTLS\nRMTTRAIL ./dirdat/rt"
    with pytest.raises(ParamErrors, match="expected ENCRYPT or NOTLS, found both"):
        PumpParams.from_statements(parse_text(lines, "p.prm"))


def test_no_keyword_of_ours_is_said_to_be_without_meaning():
    """A row that a program's own table overrides would be told all the same."""
    from ggsci.parameters import PROGRAMS

    tables = {"Manager": "MANAGER", "Extract": "EXTRACT", "Pump": "PUMP", "Replicat": "REPLICAT", "GLOBALS": "GLOBALS"}
    for program, _, keywords in PROGRAMS:
        for name, row in accepted.BY_KIND.get(tables.get(program, ""), {}).items():
            assert keywords[name] is row, (program, name)


def test_a_file_that_is_read_twice_says_the_same(home):
    """Notes are of statements, whatever macro made them."""
    statements = parse_file(home.prm("ext_old"))
    assert any("GETAPPLOPS" in note for note in accepted.notes(statements, "EXTRACT"))
