"""What an ordinary user of a source tries with changes of shape: from a live source to a live target."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg
import pytest

from tests.support.ddl_capturing import capture_with_trigger, ddls
from tests.support.ddl_hostile import TRAP, Victim
from trails.fs import RealFs, read_bytes

pytestmark = pytest.mark.e2e

AT_THE_SOURCE = [
    "CREATE FUNCTION public.evil(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
    "CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
    "CREATE TABLE public.plain (id int PRIMARY KEY)",
    "INSERT INTO public.plain VALUES (1)",
    "CREATE TABLE public.trap (id int PRIMARY KEY, g int GENERATED ALWAYS AS (public.evil(id)) STORED)",
    "SELECT set_config('app.secret', 'hunter2', false); ALTER TABLE public.plain ADD d int DEFAULT public.evil(1)",
    "ALTER TABLE public.plain ADD f text GENERATED ALWAYS AS (public.lower('s3cret'::text)) STORED",
    "CREATE TABLE public.last (id int PRIMARY KEY, n int DEFAULT 7)",
    "INSERT INTO public.last VALUES (1)",
]


def test_functions_that_stand_at_both_ends_make_nobody_superuser(
    source_db: str, target_db: str, tmp_path: Path
) -> None:
    """They run with the rights of whoever writes at the target: none of them is carried, and no secret either."""
    (tmp_path / "source").mkdir(mode=0o700)
    capture = capture_with_trigger(source_db, tmp_path / "source")
    capture.sql("CREATE ROLE app", "GRANT CREATE ON SCHEMA public TO app")
    (tmp_path / "target" / "dirdat").mkdir(mode=0o700, parents=True)
    with psycopg.connect(target_db, autocommit=True) as link, contextlib.ExitStack() as after:
        after.callback(capture.sql, "DROP OWNED BY app CASCADE", "DROP ROLE app")
        after.callback(link.execute, "DROP OWNED BY app CASCADE; DROP ROLE app")
        for statement in TRAP:
            link.execute(statement.encode())
        capture.register(trandata=False)
        with psycopg.connect(source_db, autocommit=True) as user, capture.running() as extract:
            user.execute("SET ROLE app")
            for statement in AT_THE_SOURCE:
                user.execute(statement.encode())
            capture.drain(extract)
        assert len(ddls(capture.changes())) == 5  # all of it was captured
        victim = Victim(tmp_path / "target", target_db, "public", lambda text: link.execute(text.encode()).fetchall())
        victim.feed.close()
        victim.apply_trail(capture.trail, more="DDLERROR DEFAULT IGNORE", maps="MAP public.*, TARGET public.*;")
        assert victim.query("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'") == [(False,)]
        assert victim.query("SELECT * FROM public.plain") == [(1,)]
        assert victim.query("SELECT * FROM public.last") == [(1, 7)]
    assert sum("is left out by DDLERROR" in note for note in victim.notes) == 3
    written = b"".join(read_bytes(RealFs(), str(path)) for path in Path(capture.trail.folder).iterdir())
    assert b"hunter2" not in written
    assert not any(secret in note for note in victim.notes for secret in ("hunter2", "s3cret"))
