"""Each source type and edge value of E1, E5 and E6 through the whole path to each target: docs/types.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from tests.support.types_page import EXACT, Observer, page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
PAGE = Path(__file__).parents[2] / "docs" / "types.md"


def test_e1_e5_e6_every_value_arrives_exact_or_by_rule_or_is_refused(tmp_path: Path, mariadb: MariaServer):
    """As an insert, an update's after image, a before image, a key and beside a NULL; the page says what was seen."""
    mariadb.start()
    # Debian's server, which has extensions, xml and ICU.
    with PostgresServer(version="system", tcp=True) as server:
        server.sql("CREATE DATABASE source")
        server.sql("CREATE DATABASE target")
        observer = Observer(server.url("source"), tmp_path)
        observer.observe(server.url("target"), mariadb, "types")
    assert observer.faults == []
    like_to_like = [seen for seen in observer.seen if seen.kind == "postgresql"]
    assert {outcome.verdict for seen in like_to_like for outcome in seen.outcomes} == {EXACT}
    assert all(outcome.sqlstate for seen in observer.seen for outcome in seen.outcomes if outcome.verdict == "refused")
    assert page(observer) == PAGE.read_text(), "make it anew: python -m tests.support.types_page > docs/types.md"
