"""Changes of shape that nobody captures are told: what a type's labels were renamed to, and what rows look like now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from extract.retention import RetentionWatch
from extract.source import SourceSettings
from tests.support.capturing import Capture, ask, step_until
from tests.support.trigger_source import HOME_ID, TriggeredDb, run_until_captured
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.position import TrailName

pytestmark = pytest.mark.e2e
MOOD = "CREATE TYPE mood AS ENUM ('sad', 'ok')"
HELD = (
    "CREATE DOMAIN felt AS mood", "CREATE TYPE pair AS (m felt, n int)", "CREATE TYPE span AS RANGE (subtype = mood)",
)  # fmt: skip
TABLE = "CREATE TABLE t (id int PRIMARY KEY, m mood, many mood[], p pair, r span)"


@dataclass
class Told(Capture):
    """A group without DDL, with a file of labels; `quiet`: as if it had DDL."""

    quiet: bool = False

    @property
    def journal(self) -> str:
        """The file that it keeps."""
        return str(self.folder / "EXT1.journal")

    def register(self, *, trandata: bool = True) -> None:
        if trandata:
            ask("add_trandata", url=self.url, pattern="*.*")
        self.note(ask("register", url=self.url, group="EXT1", home_id="0" * 32, journal=self.journal))

    def told(self) -> SourceSettings:
        return replace(super().told(), journal=self.journal, reshaped=None if self.quiet else self.heard.append)

    def lives_until(self, count: int) -> list[str]:
        """The group runs until so much was said; all of it."""
        with self.running() as extract:
            step_until(extract, lambda: len(self.heard) >= count)
            self.drain(extract)
        return self.heard


@pytest.fixture
def capture(source_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A group on a table with an enum, and another table with one that is not captured."""
    monkeypatch.setattr("extract.sources.postgres.guard.RetentionWatch", partial(RetentionWatch, every=0.05))
    made = Told(source_db, tmp_path, tables="TABLE public.*;\nTABLEEXCLUDE public.other;\n")
    made.sql(MOOD, *HELD, "CREATE TYPE aside AS ENUM ('a')", TABLE, "CREATE TABLE other (id int PRIMARY KEY, a aside)")
    made.register()
    return made


def test_a_renamed_label_is_told_whenever_it_was_renamed(capture: Told) -> None:
    """Before the first START, while it runs, while it does not; each once. What no captured table has is not told."""
    capture.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'", "ALTER TYPE aside RENAME VALUE 'a' TO 'b'")
    (said,) = capture.lives_until(1)
    assert said.startswith("enum public.mood: 'sad' was renamed to 'bad'. DDL is not captured")
    assert "where public.t.m, public.t.many, public.t.p, 1 more is text" in said
    assert len(said.split()) <= 40
    with capture.running() as extract:
        capture.sql("ALTER TYPE mood RENAME VALUE 'bad' TO 'low'", "ALTER TYPE mood ADD VALUE 'top'")
        step_until(extract, lambda: len(capture.heard) >= 2)
    assert "'bad' was renamed to 'low'" in capture.heard[1]
    capture.sql("ALTER TYPE mood RENAME TO felt_mood", "ALTER TYPE felt_mood RENAME VALUE 'low' TO 'poor'")
    assert "enum public.felt_mood: 'low' was renamed to 'poor'" in capture.lives_until(3)[2]
    with capture.running() as extract:
        capture.drain(extract)
        Path(capture.journal).unlink()
        step_until(extract, lambda: Path(capture.journal).exists())
    assert len(capture.heard) == 3


def test_a_type_that_was_made_anew_is_told_by_the_labels_that_are_gone(capture: Told) -> None:
    """The usual way to take a label away: another type, USING, the old one's name."""
    capture.sql(
        "ALTER TABLE t DROP COLUMN many, DROP COLUMN p, DROP COLUMN r", "ALTER TYPE mood RENAME TO old",
        "CREATE TYPE mood AS ENUM ('ok', 'low')",
        "ALTER TABLE t ALTER m TYPE mood USING replace(m::text, 'sad', 'low')::mood", "DROP TYPE old CASCADE",
    )  # fmt: skip
    (said,) = capture.lives_until(1)
    assert said.startswith("enum public.mood: 'sad' is gone, as the type was made anew. DDL is not captured")


def test_attributes_of_a_composite_type_are_told(capture: Told) -> None:
    """ALTER TYPE changes the text of each value, also in an array, and no shape. Another name changes no value."""
    capture.sql("CREATE TABLE held (id int PRIMARY KEY, pairs pair[])", "ALTER TYPE pair ADD ATTRIBUTE note text")
    (said,) = capture.lives_until(1)
    assert said.startswith("composite type public.pair: 'note' was added. DDL is not captured")
    assert "where public.held.pairs, public.t.p is text, older rows of the targets keep the old text" in said
    assert len(said.split()) <= 40
    with capture.running() as extract:
        capture.sql("ALTER TYPE pair RENAME ATTRIBUTE n TO number", "ALTER TYPE pair DROP ATTRIBUTE note")
        step_until(extract, lambda: len(capture.heard) >= 2)
    assert capture.heard[1].startswith("composite type public.pair: 'note' was dropped.")
    assert len(capture.heard) == 2


def test_a_file_of_labels_that_is_not_one_stops_by_name(capture: Told) -> None:
    """Whoever lost it goes on from what is there; a database of another name is not compared with it.

    With DDL it is kept too: what was carried is not told when DDL is left out one day.
    """
    Path(capture.journal).write_text("{}")
    with pytest.raises(OperatorError, match=r"EXT1\.journal: expected the parts of the source's types"):
        capture.start()
    Path(capture.journal).unlink()
    capture.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'")
    with capture.running() as extract:
        step_until(extract, lambda: Path(capture.journal).exists())
    assert capture.heard == []
    text = Path(capture.journal).read_text()
    assert '"bad"' in text
    capture.quiet = True
    capture.sql("ALTER TYPE mood RENAME VALUE 'bad' TO 'low'")
    with capture.running() as extract:
        step_until(extract, lambda: '"low"' in Path(capture.journal).read_text())
    capture.quiet = False
    capture.sql("ALTER TYPE mood RENAME VALUE 'low' TO 'bad'")
    assert "'low' was renamed to 'bad'" in capture.lives_until(1).pop()
    Path(capture.journal).write_text(text.replace('"source": "', '"source": "x').replace('"bad"', '"sad"'))
    with capture.running() as extract:
        step_until(extract, lambda: '"bad"' in Path(capture.journal).read_text())
    assert capture.heard == []


def test_rows_of_another_shape_are_told_before_the_first_of_them(capture: Told) -> None:
    """A column's type, a new and a lost column: by the trail's own definition, also behind a new start."""
    capture.sql("INSERT INTO t VALUES (1)")
    with capture.running() as extract:
        capture.drain(extract)
        assert capture.heard == []
        capture.sql("ALTER TABLE t ALTER id TYPE bigint USING id * 10", "INSERT INTO t VALUES (2)")
        capture.drain(extract)
    (said,) = capture.heard
    assert "public.t has another shape from CSN " in said and ": id was integer, is bigint. DDL is not" in said
    csn = said.partition("from CSN ")[2].partition(" ")[0]
    assert capture.sql("SELECT $$" + csn + "$$::pg_lsn < pg_current_wal_lsn()") == [(True,)]
    capture.sql("ALTER TABLE t DROP COLUMN many, ADD c text", "INSERT INTO t VALUES (3)")
    with capture.running() as extract:
        capture.drain(extract)
    assert ": c is new; many is gone. DDL is not captured" in capture.heard[1]


def test_labels_are_told_of_a_database_that_is_captured_by_triggers(
    plain_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue has each row's text, and nothing of what was renamed since."""
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.CHECK_SECONDS", 0.0)
    db, heard, journal = TriggeredDb(plain_db), list[str](), str(tmp_path / "EXT1.journal")
    db.run(MOOD, *HELD, TABLE)
    db.ask("add_trandata", pattern="*.*")
    db.note(db.ask("register", group="EXT1", home_id=HOME_ID, journal=journal))
    db.run("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", "INSERT INTO t VALUES (1, 'fine')")
    (tmp_path / "dirdat").mkdir()
    source = db.source(reshaped=heard.append, journal=journal)
    extract = db.extract(RealFs(), TrailName(str(tmp_path / "dirdat"), "lt"), source)
    run_until_captured(extract, db)
    step_until(extract, lambda: bool(heard))
    extract.close()
    assert heard[0].startswith("enum public.mood: 'ok' was renamed to 'fine'.")
