"""The table of source databases: what each entry must answer, and what becomes of what belongs to another one."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from extract import kinds
from extract.admin import answer
from extract.params import ExtractParams
from extract.source import VERBS, CaptureMethod, SourceKind, SourceSettings
from extract.sources.postgres.kind import POSTGRES
from trails.errors import OperatorError, ParamError
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts

SCHEMES = sorted(kinds.KINDS)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_database_answers_all_that_is_asked(scheme: str):
    """Each verb of ggsci's commands, and each method of the contract with the contract's own parameters."""
    kind = kinds.KINDS[scheme]
    assert set(kind.verbs()) == {*VERBS, *(["find_place"] if kind.places else [])}
    for one, contract in ((kind, SourceKind), *((method, CaptureMethod) for method in kind.methods.values())):
        for name, method in inspect.getmembers(contract, inspect.isfunction):
            if not name.startswith("_"):
                own = list(inspect.signature(getattr(one, name)).parameters)
                assert own == list(inspect.signature(method).parameters)[1:], name
    assert kinds.of(kind.example).name == kind.name


def test_a_database_is_loaded_by_whoever_uses_it():
    """The table alone loads no driver, and neither do the parameters."""
    code = "import sys, extract.admin; sys.exit(any(m.split('.')[0] in ('psycopg', 'sqlite3') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("url", ["oracle://u@h/d", "postgresql:h", "", "POSTGRESQL://h/d"])
def test_a_url_of_no_known_kind_is_refused_with_what_was_expected(url: str):
    """By every request of ggsci, and without the rest of the URL."""
    with pytest.raises(OperatorError, match=r"SOURCEDB: a URL of kind .* Expected a URL such as postgresql://"):
        kinds.of(url)
    assert "a URL of kind" in answer({"verb": "dblogin", "url": url})["error"]


def test_a_request_that_a_database_does_not_know(monkeypatch: pytest.MonkeyPatch):
    """It is refused before anything is connected."""
    kind = kinds.KINDS["postgresql"]
    monkeypatch.setattr(type(kind), "connect", lambda *_: pytest.fail("connected"))
    assert (
        "unknown request 'drop_all' to PostgreSQL" in answer({"verb": "drop_all", "url": "postgresql://h/d"})["error"]
    )
    assert "lacks 'url'" in answer({"verb": "drop_all"})["error"]


def test_a_parameter_of_another_database_is_refused_by_its_line(monkeypatch: pytest.MonkeyPatch):
    """As it would do nothing, and nobody would know."""

    class Other(type(kinds.KINDS["postgresql"])):  # type: ignore[misc]
        name = "Other"
        keywords = {}  # noqa: RUF012

    monkeypatch.setitem(kinds.KINDS, "other", Other())
    head = "EXTRACT e\nSOURCEDB {}://h/d\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\nWALWARN 1G\n"
    given = ExtractParams.from_statements(parse_text(head.format("postgresql"), "e.prm"))
    assert list(given.settings(None).own) == ["WALWARN"]
    with pytest.raises(ParamError, match=r"e\.prm:5: WALWARN: it means nothing where the source is Other; remove it"):
        ExtractParams.from_statements(parse_text(head.format("other"), "e.prm"))


def test_a_source_that_is_not_registered_says_what_to_do():
    """Before anything is connected."""
    text = "EXTRACT e\nSOURCEDB postgresql://h/d\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n"
    settings = ExtractParams.from_statements(parse_text(text, "e.prm")).settings(None)
    with pytest.raises(OperatorError, match=r"group E is not registered .*\. DBLOGIN, then REGISTER"):
        kinds.method(kinds.of(settings.url), "").source(settings, print, print, DdlCounts())


@pytest.mark.parametrize(("url", "taken"), [("postgresql://h/d", False), ("sqlite:////var/lib/shop.db", True)])
def test_any_is_for_sources_whose_columns_hold_any_type(url: str, taken: bool):
    """Elsewhere it would do nothing; and the parameters of a slot are for the source that has one."""
    text = f"EXTRACT e\nSOURCEDB {url}\nEXTTRAIL ./dirdat/lt\nTABLE s.t, ANY (a, b);\n"
    if taken:
        found = ExtractParams.from_statements(parse_text(text, "e.prm"))
        assert found.tables.anys("s", "t", ["A", "b", "c"]) == ("A", "b")
        with pytest.raises(ParamError, match=r"e\.prm:5: WALWARN: it means nothing"):
            ExtractParams.from_statements(parse_text(text + "WALWARN 5G\n", "e.prm"))
        return
    with pytest.raises(ParamError, match=r"e\.prm:4: TABLE: ANY means nothing where the source is PostgreSQL"):
        ExtractParams.from_statements(parse_text(text, "e.prm"))


def settings_of(url: str, method: str, line: str = "") -> SourceSettings:
    """What a source is told."""
    text = f"EXTRACT e\nSOURCEDB {url}\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n{line}\n"
    return ExtractParams.from_statements(parse_text(text, "e.prm")).settings(None, method=method)


def test_a_method_that_a_database_lacks_is_refused_with_those_that_it_has():
    """Wherever it is named: at START, and by a command of ggsci."""
    expected = r"PostgreSQL can't be captured by FLASHBACK; expected TRANLOG or TRIGGERLOG"
    with pytest.raises(OperatorError, match=expected):
        kinds.method(POSTGRES, "FLASHBACK")
    reply = answer({"verb": "register", "url": "sqlite:////nowhere/shop.db", "method": "TRIGGERLOG"})
    assert reply["error"].startswith("SQLite can't be captured by TRIGGERLOG; expected TRANLOG. DELETE EXTRACT")


@pytest.mark.parametrize(
    ("method", "good", "bad"), [("TRIGGERLOG", "QUEUEWARN 5", "WALWARN 5G"), ("", "WALWARN 5G", "QUEUEWARN 5")]
)
def test_a_parameter_that_means_nothing_to_the_method_is_refused(method: str, good: str, bad: str):
    """A guard over what is not there would guard nothing."""
    settings_of("postgresql://h/d", method, good)
    with pytest.raises(OperatorError, match=f"{bad.partition(' ')[0]} means nothing where PostgreSQL is captured by"):
        settings_of("postgresql://h/d", method, bad)
