"""ADD, ALTER, INFO and DELETE HEARTBEATTABLE, and LAG ..., HISTORY, in a target: for replicat/admin.py.

Rule: each can be run again. What is there already is left as it is, and what is missing is made; views are replaced.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from replicat.targets.contract import RunStatement
from replicat.targets.kinds import admin_for, kind_of
from replicat.targets.sql.heartbeatsql import HeartbeatSql
from trails.errors import OperatorError
from trails.runtime.language.heartbeattable import HeartbeatSettings, HeartbeatTable

Reply = dict[str, Any]
Request = dict[str, Any]
FIELDS = ("database", "from", "path", "age_s", "lag_s")


def add(request: Request) -> Reply:
    """Settings, and for a `target` tables and views; `made` says what was not there before."""
    sql = _sql(request)
    made: list[str] = []
    with admin_for(request["url"]).statements(request["url"]) as run:
        if not _exists(run, sql, sql.table.settings):
            _all(run, sql.create_settings())
            made.append(f"table {sql.table.schema}.{sql.table.settings}")
        settings = _settings(run, sql)
        new = _changed(settings or HeartbeatSettings(), request)
        if new != settings:
            run(*sql.set_settings(new, new=settings is None))
        if request["target"]:
            made += _add_target(run, sql)
    return {"made": made, "settings": asdict(new)}


def _add_target(run: RunStatement, sql: HeartbeatSql) -> list[str]:
    names = (sql.table.base, sql.table.history)
    there = [name for name in names if _exists(run, sql, name)]
    _all(run, sql.create_target(there))
    views = [f"view {sql.table.schema}.{name}" for name in ("gg_lag", "gg_lag_history")]
    return [*(f"table {sql.table.schema}.{name}" for name in names if name not in there), *(views if not there else [])]


def alter(request: Request) -> Reply:
    """Other settings; Extracts obey them within a minute."""
    sql = _sql(request)
    with admin_for(request["url"]).statements(request["url"]) as run:
        settings = _needed(run, sql)
        new = _changed(settings, request)
        run(*sql.set_settings(new, new=False))
    return {"settings": asdict(new)}


def info(request: Request) -> Reply:
    """What is there, and the last heartbeat of each path."""
    sql = _sql(request)
    with admin_for(request["url"]).statements(request["url"]) as run:
        settings = _settings(run, sql) if _exists(run, sql, sql.table.settings) else None
        there = _exists(run, sql, sql.table.base)
        rows = run(sql.lags()) if there else []
    lags = [dict(zip(FIELDS, (*row[:3], *map(_number, row[3:])), strict=True)) for row in rows]
    return {
        "exists": there,
        "table": f"{sql.table.schema}.{sql.table.base}",
        "settings": asdict(settings) if settings else None,
        "lags": lags,
    }


def delete(request: Request) -> Reply:
    """Drop all of it."""
    sql = _sql(request)
    with admin_for(request["url"]).statements(request["url"]) as run:
        names = (sql.table.base, sql.table.history, sql.table.settings)
        gone = [f"table {sql.table.schema}.{name}" for name in names if _exists(run, sql, name)]
        _all(run, [*sql.drop_target(), sql.drop_settings()])
    return {"deleted": gone}


def history(request: Request) -> Reply:
    """Least, mean and greatest lag of each day and path that has this group in it."""
    sql = _sql(request)
    with admin_for(request["url"]).statements(request["url"]) as run:
        _needed(run, sql)
        rows = run(sql.days())
    days = [
        {"date": str(day), "path": path, "min_s": _number(low), "avg_s": _number(mean), "max_s": _number(high),
         "heartbeats": int(count)}
        for day, path, low, mean, high, count in rows
    ]  # fmt: skip
    return {"days": days}


def _sql(request: Request) -> HeartbeatSql:
    return HeartbeatSql.of(kind_of(request["url"]).words, HeartbeatTable.parse(str(request["heartbeat"])))


def _all(run: RunStatement, statements: list[str]) -> None:
    for statement in statements:
        run(statement)


def _exists(run: RunStatement, sql: HeartbeatSql, name: str) -> bool:
    return bool(run(*sql.columns(name)))


def _settings(run: RunStatement, sql: HeartbeatSql) -> HeartbeatSettings | None:
    found = run(sql.settings())
    return HeartbeatSettings(*(int(value) for value in found[0])) if found else None


def _needed(run: RunStatement, sql: HeartbeatSql) -> HeartbeatSettings:
    settings = _settings(run, sql) if _exists(run, sql, sql.table.settings) else None
    if settings is None:
        raise OperatorError(
            f"there is no heartbeat table {sql.table.schema}.{sql.table.base}", hint="ADD HEARTBEATTABLE makes it"
        )
    return settings


def _changed(settings: HeartbeatSettings, request: Request) -> HeartbeatSettings:
    given = {one.name: request.get(one.name) for one in fields(settings)}
    return replace(settings, **{name: int(value) for name, value in given.items() if value is not None})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
