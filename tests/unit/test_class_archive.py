"""The archive of Spark's classes: its name, who makes it, and that it is never more than a hint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replicat.batches.classes import ClassArchive


@pytest.fixture(autouse=True)
def _nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no archive is named; tests have one of their own."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def of(folder: Path, group: str = "REP1", *, sql: bool = False) -> ClassArchive:
    found = ClassArchive.of(str(folder), group, sql=sql)
    assert found is not None
    return found


def test_the_first_group_that_ends_in_order_leaves_it_for_all(tmp_path: Path) -> None:
    """Each has a place of its own for what is not whole yet; what others use is replaced by a rename."""
    first, second = of(tmp_path), of(tmp_path, "REP2")
    assert first.stem == second.stem and first.left != second.left
    assert first.option.startswith(f"-XX:ArchiveClassesAtExit={first.left} ")
    Path(first.left).write_bytes(b"classes")
    assert not second.path
    first.keep()
    assert second.option == f"-XX:SharedArchiveFile={second.path} -XX:+VerifySharedSpaces"
    assert os.listdir(tmp_path) == [os.path.basename(first.path)]


def test_what_has_expressions_has_one_of_its_own(tmp_path: Path) -> None:
    """In the other's it would find none of Spark SQL; and neither takes the other away."""
    plain, sql = of(tmp_path), of(tmp_path, "REP2", sql=True)
    for one, other in ((plain, sql), (sql, plain), (plain, sql)):
        Path(one.left).write_bytes(b"classes")
        one.keep()
        assert one.path and one.path != other.path
        other.forget(keep=other.path)
        assert one.path
    assert len(os.listdir(tmp_path)) == 2


def test_one_that_was_cut_is_none(tmp_path: Path) -> None:
    """Java would die of it."""
    made = of(tmp_path)
    Path(made.left).write_bytes(b"classes")
    made.keep()
    path = Path(made.path)
    for text in (b"", b"class", b"classes and more"):
        path.write_bytes(text)
        assert not made.path
        assert "ArchiveClassesAtExit" in made.option
    Path(made.left).write_bytes(b"classes anew")
    made.keep()
    assert os.listdir(tmp_path) == [os.path.basename(made.path)]


def test_another_java_or_other_jars_make_another_one_and_the_old_one_goes(tmp_path: Path) -> None:
    """Java looks by itself if an archive fits; one that never fits again would only take room."""
    old = tmp_path / "spark-classes-00000000-7.jsa"
    other, begun = tmp_path / "ext1.cpe", tmp_path / "spark-classes-00000000-REP9.new"
    for path in (old, other, begun):
        path.touch()
    made = of(tmp_path)
    Path(made.left).touch()
    made.keep()
    assert not old.exists()
    assert other.exists() and begun.exists()


def test_who_left_none_keeps_nothing(tmp_path: Path) -> None:
    """A JVM that was killed, or a full disk."""
    made = of(tmp_path)
    made.keep()
    assert not made.path
    Path(made.left).write_bytes(b"half")
    made.forget()
    made.forget()
    assert os.listdir(tmp_path) == []


def test_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has named his own; Java's options are parted at spaces; or there is no Java."""
    assert ClassArchive.of(str(tmp_path / "a home"), "REP1") is None
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa")
    assert ClassArchive.of(str(tmp_path), "REP1") is None
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert ClassArchive.of(str(tmp_path), "REP1") is None
