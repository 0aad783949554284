"""What the grammar makes of a statement: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from extract.sources.mysql.ddl.natives import TypeSpec
from extract.sources.mysql.ddl.reader import TableName

PRIMARY = "PRIMARY"
"""What the server calls every primary key."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column as it was written. `null`: None where nothing was said. `default`: in the one form of `default_text`.

    `has_default`: DEFAULT stands there, be it NULL. `volatile`: the default is made for each row. `now`: it is the
    time of the statement. `generated`: the expression. `places`: FIRST as "", AFTER x as x, None where it says nothing.
    """

    name: str
    type: TypeSpec
    null: bool | None = None
    has_default: bool = False
    default: str | None = None
    volatile: bool = False
    now: bool = False
    on_update: str = ""
    auto_increment: bool = False
    generated: str | None = None
    primary: bool = False
    unique: bool = False
    is_json: bool = False
    place: str | None = None


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A key or an index. `whole`: none of its parts is a prefix or an expression."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False
    whole: bool = True
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class TextOptions:
    """What a table or database says of its text; empty where it says nothing.

    `default`: the character set is said to be the one by default, that of the session's database.
    """

    charset: str = ""
    collation: str = ""
    default: bool = False


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE TABLE. `like`: the table it is made after. `selects`: it has a query."""

    table: TableName
    columns: tuple[ColumnSpec, ...] = ()
    indexes: tuple[IndexSpec, ...] = ()
    text: TextOptions = field(default_factory=TextOptions)
    like: TableName | None = None
    if_not_exists: bool = False
    or_replace: bool = False
    selects: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN."""

    column: ColumnSpec
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE and MODIFY: `old` becomes what `column` says."""

    old: str
    column: ColumnSpec
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT; `default` is None for DROP DEFAULT."""

    name: str
    default: str | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX, DROP PRIMARY KEY, and DROP CONSTRAINT, which may drop one."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameIndex:
    """RENAME INDEX."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ConvertText:
    """CONVERT TO CHARACTER SET; an empty one is the database's."""

    text: TextOptions


@dataclass(frozen=True, slots=True)
class MovesRows:
    """Partitions come or go with their rows, of which the log says nothing; `other`: the other table, if any."""

    what: str
    other: TableName | None = None


Action = (
    AddColumn | ChangeColumn | RenameColumn | DropColumn | SetDefault | IndexSpec | DropIndex | RenameIndex
    | ConvertText | MovesRows
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER TABLE. `renamed`: RENAME TO; `text`: the default for new columns."""

    table: TableName
    actions: tuple[Action, ...] = ()
    text: TextOptions = field(default_factory=TextOptions)
    renamed: TableName | None = None
    ignore: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """RENAME TABLE."""

    pairs: tuple[tuple[TableName, TableName], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP TABLE."""

    tables: tuple[TableName, ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class MakeDatabase:
    """CREATE and ALTER DATABASE; without a name it is the default one."""

    name: str
    text: TextOptions
    creates: bool = False
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE: its tables go too."""

    name: str


Statement = Create | Alter | Rename | Drop | TruncateTable | MakeDatabase | DropDatabase
