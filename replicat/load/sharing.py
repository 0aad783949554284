"""Whose rows a target table has: by what MAPs may take, not by what was met, and by what is noted of other groups.

Rule: a table is emptied for one source table alone. What can't be told apart is taken for shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from replicat.load.group import LoadingGroup
from replicat.model.mapparams import MapRule
from replicat.params import ReplicatParams
from trails.errors import GateError
from trails.record import DELETE, TRUNCATE, TableId
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.language import params as language
from trails.runtime.language.params import Pattern


def others_of(home: Home, group: LoadingGroup, source: TableId, target: TableId) -> str:
    """Who else fills a target table, for people; empty where nobody does."""
    for rule in group.params.maps:
        if fills(rule, target, group.params.excludes, but=source):
            return f"MAP {rule.source} at {rule.where} may take other tables there"
    noted = group.target.read(*group.tables.others_of(".".join(target)))
    if noted:
        name, table = noted[0]
        return f"{name} loads {table} into it"
    for reg in registrations.all(home):
        if reg.kind != "REPLICAT" or reg.name == group.name:
            continue
        try:
            path = home.prm(reg.name)
            params = ReplicatParams.from_statements(language.parse_file(path), path).resolved(home)
        except (GateError, OSError) as error:
            return f"nobody knows what {reg.name} fills, as its parameter file can't be read: {error}"
        if _database(params.target_url) == _database(group.params.target_url):
            for rule in params.maps:
                if fills(rule, target, params.excludes):
                    return f"{reg.name} may fill it too, by MAP {rule.source} at {rule.where}"
    return ""


def keeps_more(rule: MapRule) -> str:
    """The option by which its target has rows that the source has no more; empty where there is none."""
    toggles = rule.toggles
    options = {
        "INSERTALLRECORDS": toggles.insert_all, "INSERTDELETES": toggles.insert_deletes,
        "INSERTUPDATES": toggles.insert_updates, "UPDATEDELETES": toggles.update_deletes,
    }  # fmt: skip
    options |= {"IGNOREDELETES": DELETE in rule.ignored, "IGNORETRUNCATES": TRUNCATE in rule.ignored}
    return next((name for name, on in options.items() if on), "")


def fills(rule: MapRule, target: TableId, excludes: Sequence[Pattern], but: TableId | None = None) -> bool:
    """Whether the MAP may take a source table to this target table; one other than `but`."""
    exception = [rule.exception.target] if rule.exception else []
    return any(_leads(rule.source, to, target, excludes, but) for to in (rule.target, *exception))


def _leads(source: Pattern, to: Pattern, target: TableId, excludes: Sequence[Pattern], but: TableId | None) -> bool:
    found: list[str | None] = []
    for (asked, asked_quoted), (name, quoted), wanted in zip(source.parts, to.parts, target, strict=True):
        first, star, last = (name, "", "") if quoted else name.partition("*")
        if not (_same(wanted, first) if not star else _between(wanted, first, last)):
            return False
        if star:
            found.append(wanted[len(first) : len(wanted) - len(last)])
        else:
            wild = not asked_quoted and ("*" in asked or "?" in asked)
            found.append(None if wild else asked)
    if None in found:
        return True
    one = str(found[0]), str(found[1])
    if one == but or any(pattern.matches(*one) for pattern in excludes):
        return False
    return source.matches(*one)


def _same(one: str, other: str) -> bool:
    """There are databases to which a table's name is one whatever its case."""
    return one.lower() == other.lower()


def _between(text: str, first: str, last: str) -> bool:
    return (
        len(text) >= len(first) + len(last)
        and text.lower().startswith(first.lower())
        and text.lower().endswith(last.lower())
    )


def _database(url: str) -> str:
    """Server and database, without who connects and how."""
    return url.partition("://")[2].partition("?")[0].rpartition("@")[2]
