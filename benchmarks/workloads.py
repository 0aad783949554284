"""The workloads: one table of ten columns (about 200 bytes a row), and the changes that are measured on it.

Rule: a workload is data. `base` rows stand in both databases before; `load` makes the backlog on the source, in its
own transactions; a last transaction moves the marker, so that "all has arrived" is one look at one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SCHEMA = "bench"
TABLE = "bench.accounts"

# Bounded text: a table that can't have values out of line needs no old image to know every value, so ADD TRANDATA
# leaves it at its key, as the peers have it.
DDL = """
CREATE SCHEMA bench;
CREATE TABLE bench.accounts (
    id bigint PRIMARY KEY,
    version int NOT NULL,
    name varchar(30) NOT NULL,
    note varchar(80) NOT NULL,
    amount numeric(14,2) NOT NULL,
    created timestamptz NOT NULL,
    active bool NOT NULL,
    tag varchar(10),
    score int,
    updated timestamptz NOT NULL
);
CREATE TABLE bench.marker (id int PRIMARY KEY, n bigint NOT NULL);
INSERT INTO bench.marker VALUES (1, 0);
"""

_ROW = """
SELECT i, 0, 'customer-' || i, md5(i::text) || ' with a remark of some words', (i % 1000000) / 7.0,
       timestamptz '2026-01-01 00:00:00.123456+00' + i * interval '1 second', i % 3 = 0, 'tag-' || i % 97,
       (i % 1000)::int, timestamptz '2026-02-01 00:00:00.654321+00' + i * interval '1 second'
"""

# The loops commit by themselves: a backlog of 50,000 transactions takes seconds this way.
PROCEDURES = f"""
CREATE PROCEDURE bench.insert_rows(total bigint, per_transaction bigint) LANGUAGE plpgsql AS $$
DECLARE first bigint := 1;
BEGIN
    WHILE first <= total LOOP
        INSERT INTO bench.accounts {_ROW} FROM generate_series(first, least(first + per_transaction - 1, total)) i;
        COMMIT;
        first := first + per_transaction;
    END LOOP;
END $$;
CREATE PROCEDURE bench.spread_rows(total bigint, per_transaction bigint, tables int) LANGUAGE plpgsql AS $$
DECLARE first bigint := 1;
BEGIN
    WHILE first <= total LOOP
        EXECUTE 'INSERT INTO bench.t' || first / per_transaction % tables || $q${_ROW} FROM generate_series($1, $2) i$q$
            USING first, least(first + per_transaction - 1, total);
        COMMIT;
        first := first + per_transaction;
    END LOOP;
END $$;
CREATE PROCEDURE bench.wide_rows(total bigint, per_transaction bigint, width int) LANGUAGE plpgsql AS $$
DECLARE first bigint := 1;
BEGIN
    WHILE first <= total LOOP
        INSERT INTO bench.wide SELECT i, left((SELECT string_agg(md5(i || ' ' || part), '' ORDER BY part)
            FROM generate_series(0, width / 32) part), width)
            FROM generate_series(first, least(first + per_transaction - 1, total)) i;
        COMMIT;
        first := first + per_transaction;
    END LOOP;
END $$;
CREATE PROCEDURE bench.update_rows(total int, per_transaction int, keys bigint, hot_keys bigint, hot_share float)
LANGUAGE plpgsql AS $$
DECLARE k bigint;
BEGIN
    PERFORM setseed(0.5);
    FOR i IN 1..total LOOP
        k := 1 + floor(random() * CASE WHEN random() < hot_share THEN hot_keys ELSE keys END);
        UPDATE bench.accounts SET version = version + 1, note = md5(i::text) || ' with a remark of some words',
            amount = i / 7.0, updated = clock_timestamp() WHERE id = k;
        IF i % per_transaction = 0 THEN COMMIT; END IF;
    END LOOP;
END $$;
"""

FILL = "CALL bench.insert_rows({rows}, 100000)"
MARK = "UPDATE bench.marker SET n = n + 1 WHERE id = 1"
LOOK = "SELECT n FROM bench.marker WHERE id = 1"
DIGEST = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {table} t"


@dataclass(frozen=True, slots=True)
class Workload:
    """`bars`: what the project wants to reach of the peer's figure in the same run, by benchmark and figure.

    `statement`: makes another backlog than the usual ones, in `tables`, which `ddl` makes before.
    """

    name: str
    title: str
    rows: int
    base: int = 0
    per_transaction: int = 0
    hot_keys: int = 0
    bars: tuple[tuple[str, float], ...] = ()
    ddl: str = ""
    statement: str = ""
    tables: tuple[str, ...] = (TABLE,)

    @property
    def load(self) -> str:
        """The statement that makes the backlog."""
        if self.statement:
            return self.statement
        if not self.base:
            return f"CALL bench.insert_rows({self.rows}, {self.per_transaction or self.rows})"
        hot = f"{self.hot_keys or self.base}, {0.9 if self.hot_keys else 0}"
        return f"CALL bench.update_rows({self.rows}, {self.per_transaction}, {self.base}, {hot})"

    def share(self, figure: str) -> float | None:
        """What is wanted of the peer's figure."""
        return dict(self.bars).get(figure)

    def scaled(self, factor: float) -> Workload:
        """A smaller one of the same kind."""
        rows, base, hot = (round(n * factor) for n in (self.rows, self.base, self.hot_keys))
        return replace(self, rows=max(rows, 1000), base=max(base, 1000) if self.base else 0, hot_keys=hot)


CAPTURE = (("capture rows/s", 1.8), ("capture CPU us/row", 0.45))
WORKLOADS = (
    Workload(
        "W1", "inserts, 1,000 a transaction", 1_000_000, per_transaction=1000, bars=(*CAPTURE, ("e2e rows/s", 0.85))
    ),
    Workload(
        "W2",
        "updates of 1M keys, 10 a transaction",
        500_000,
        base=1_000_000,
        per_transaction=10,
        bars=(*CAPTURE, ("e2e rows/s", 1.5)),
    ),
    Workload(
        "W3",
        "updates, 90% on 10,000 keys, 10 a transaction",
        500_000,
        base=1_000_000,
        per_transaction=10,
        hot_keys=10_000,
        bars=(*CAPTURE, ("e2e rows/s", 1.4)),
    ),
    Workload("W4", "inserts, one transaction", 1_000_000, bars=(*CAPTURE, ("e2e rows/s", 0.8))),
)
W5_KEYS = 100_000
W5_RATE = 200
