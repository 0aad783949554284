"""SOURCEDB, TARGETDB, USERIDALIAS and USERID in a parameter file: where a database is, and who logs in there.

    SOURCEDB scheme://db.example:5432/shop, USERIDALIAS capture DOMAIN prod
    SOURCEDB scheme://db.example:5432/shop, USERID gate, PASSWORD secret
    USERIDALIAS capture                                   the alias's user is gate@db.example:5432/shop
    USERID gate@db.example:5432/shop, PASSWORD secret     both may also stand on the line behind SOURCEDB

Rule: who logs in is said once. Where the database is, a URL says, or `@host:port/database` behind the user, to which
the process's table of databases adds a scheme, as for DBLOGIN. GoldenGate's bare name of a database is never looked up:
it is accepted where a user leads to a database of that very name, and else refused with the line to write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from trails.errors import OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language.params import Group, Keyword, Statement, Values, Word
from trails.runtime.secrets.credentials import DOMAIN, NAME, Credential, find, hide_url, with_login

ALIAS_SHAPE: Final = "alias [DOMAIN domain]"
USER_SHAPE: Final = "user [, PASSWORD password]"
SHAPE: Final = f"[, USERIDALIAS {ALIAS_SHAPE} | , USERID {USER_SHAPE}]"
INSTEAD: Final = ("USERIDALIAS", "USERID")
"""Where one of these stands, SOURCEDB or TARGETDB may be left out."""


@dataclass(frozen=True, slots=True)
class Urls:
    """What a process's table of databases (its kinds.py) says of URLs.

    `schemes`: what people call the database of each; the first one is meant by `host:port/database`, where nothing says
    what kind of database is there. `files`: those of them that are a file of this host.
    """

    schemes: Mapping[str, str] = field(default_factory=dict)
    files: Collection[str] = ()

    def url(self, where: str) -> str:
        """The URL that `host:port/database` means."""
        return f"{next(iter(self.schemes))}://{where}"

    def title(self, scheme: str) -> str:
        """What people call the database of a scheme, or of a trail's header; an unknown one is itself."""
        return self.schemes.get(scheme, scheme)

    def file_of(self, url: str) -> str:
        """What people call the database of a URL, if it is a file; else nothing."""
        title = self.schemes.get(url.partition(":")[0], "")
        return title if title in self.files else ""

    def rooted(self, url: str, folder: str) -> str:
        """The URL of a file, whose path begins in a folder, with an absolute path."""
        scheme, slashes, path = url.partition(":///")
        return f"{scheme}{slashes}{os.path.join(folder, path)}" if slashes else url

    def example(self, keyword: str, name: str) -> str:
        """The line to write in place of a bare name, such as `shop` or `shop@host:3306`: a URL of each kind."""
        shop, _, host = name.partition("@")
        there = f"://{host.partition(':')[0] or 'HOST'}:PORT/{shop or 'DATABASE'}"
        backwards = reversed(list(self.schemes.items()))  # so that of several schemes of a kind the first one is left
        urls = {title: scheme + there for scheme, title in backwards if title not in self.files}
        return f"{keyword} {' or '.join(reversed(urls.values()))}"


@dataclass(frozen=True, slots=True)
class Database:
    """What a file says of its database. `name`: a bare name, where no URL stands; `where`: its place, for messages."""

    url: str = ""
    alias: str = ""
    domain: str = DOMAIN
    user: str = ""
    password: str = field(default="", repr=False)
    name: str = ""
    keyword: str = field(default="", compare=False)
    where: str = field(default="", compare=False)
    urls: Urls = field(default_factory=Urls, compare=False, repr=False)

    def login(self, home: Home) -> str:
        """The URL to connect with, user and password put in. Raises OperatorError if the alias leads nowhere."""
        if self.alias:
            found = self._of_store(home)
        elif self.user:
            found = Credential("", "", self.user, self.password)
        else:
            hide_url(self.url)
            return self.url
        return with_login(self.url or self._place_of(found), found)

    def _of_store(self, home: Home) -> Credential:
        try:
            return find(home, self.alias, self.domain)
        except OperatorError as error:
            if self.url:
                raise
            hint = f"{error.hint}; and write {self.urls.example(self.keyword, self.name)}, as no URL is there"
            raise OperatorError(f"{self.where}: {error.message}", hint=hint) from None

    def _place_of(self, found: Credential) -> str:
        where, fault = _leads_to(found.user, self.name)
        if fault:
            who = f"alias {self.alias}" if self.alias else "USERID"
            written = f"{self.urls.example(self.keyword, self.name)}, USERIDALIAS {self.alias}"
            raise OperatorError(f"{self.where}: {who} {fault}", hint=f"Write {written}")
        return self.urls.url(where)


def _leads_to(user: str, name: str) -> tuple[str, str]:
    """(where `user@host:port/database` leads, ""), or ("", why nowhere); `name`: what the database must be called."""
    where = user.partition("@")[2]
    host, _, found = where.partition("/")
    if not host or not found or "/" in found:
        return "", "says no host and database"
    if name and name.lower() != found.lower():
        return "", f"leads to the database {found}, expected {name}"
    return where, ""


# --- text -> Database -------------------------------------------------------------------------------------------------

_LOGIN = re.compile(r"(?is)(?P<place>.*?)\s*[\s,]\s*(?P<keyword>USERIDALIAS|USERID)\s+(?P<login>.*)\Z")
_BARE = re.compile(r"[A-Za-z][\w.$#:@-]*\Z")


def database(parse_url: Callable[[Statement], str], urls: Urls) -> Callable[[Statement], Database]:
    """The parser of SOURCEDB and TARGETDB, with `parse_url` for the URL alone."""

    def parse(statement: Statement) -> Database:
        found = _LOGIN.match(statement.text)
        if found is None:
            if re.search(r"(?i)\bUSERID(?:ALIAS)?\b", statement.text):
                raise statement.error(f"url, {SHAPE.strip('[], ')}")
            return _place(statement, statement.text, parse_url)
        place = _place(statement, found["place"], parse_url)
        kind = found["keyword"].upper()
        if title := urls.file_of(place.url):
            raise statement.wrong(f"expected no {kind}: {title} is a file, and has no users")
        if has_user(place):
            raise statement.wrong(f"expected the user by {kind} or in the URL, found both")
        words = statement.inner(kind, found["login"], found.start("login")).words
        who = _alias_of(words) if kind == "USERIDALIAS" else _user_of(statement, words)
        if who is None:
            raise statement.error(f"url, {SHAPE.strip('[], ')}")
        return replace(who, url=place.url, name=place.name)

    return parse


def _place(statement: Statement, text: str, parse_url: Callable[[Statement], str]) -> Database:
    """A URL, or a bare name: whether that is enough is known when the whole file is."""
    if _BARE.match(text):
        return Database(name=text)
    return Database(parse_url(statement.inner(statement.keyword, text, 0)))


def has_user(place: Database) -> bool:
    """Whether SOURCEDB or TARGETDB itself says who logs in."""
    return bool(place.alias or place.user or "@" in urlsplit(place.url).netloc)


def _alias(statement: Statement) -> Database:
    """USERIDALIAS as a line of its own."""
    found = _alias_of(statement.words)
    if found is None:
        raise statement.error(ALIAS_SHAPE)
    return found


def _alias_of(given: Sequence[Word]) -> Database | None:
    words = [str(word) for word in given]
    domain = words[2] if len(words) == 3 and words[1].upper() == "DOMAIN" else DOMAIN
    if len(words) not in (1, 3) or (len(words) == 3 and domain is DOMAIN) or not all(map(NAME.match, words)):
        return None
    return Database(alias=words[0], domain=domain)


def _user(statement: Statement) -> Database:
    """USERID as a line of its own."""
    found = _user_of(statement, statement.words)
    if found is None:
        raise statement.error(USER_SHAPE)
    return found


def _user_of(statement: Statement, given: Sequence[Word]) -> Database | None:
    """`user [PASSWORD password]`; `/` is the user of the operating system, whom a URL without a user means too."""
    words = [str(word) for word in given]
    upper = [word.upper() for word in words]
    if "ENCRYPTKEY" in upper:
        user = words[0].partition("@")[0]
        raise statement.wrong(
            f"a password that GoldenGate encrypted can't be read here; ALTER CREDENTIALSTORE ADD USER {user} ALIAS "
            f"{user} asks for it anew; then write USERIDALIAS {user}"
        )
    if any(isinstance(word, Group) for word in given) or not (len(words) == 1 or upper[1:2] == ["PASSWORD"]):
        return None
    if len(words) not in (1, 3):
        return None
    user, password = words[0], words[2] if len(words) == 3 else ""
    return Database(user="" if user == "/" else _unquoted(user), password=_unquoted(password))


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word


ALIAS: Final = Keyword(
    "USERIDALIAS", ALIAS_SHAPE,
    "User and password of SOURCEDB or TARGETDB are those of this alias in the credential store, as if USERIDALIAS "
    "stood behind the URL. Without SOURCEDB or TARGETDB the alias's user must be written user@host:port/database.",
    "USERIDALIAS capture DOMAIN prod", _alias,
)  # fmt: skip
USER: Final = Keyword(
    "USERID", USER_SHAPE,
    "User and password of SOURCEDB or TARGETDB, as if they stood in the URL; `USERID /` is the user of the operating "
    "system. Without SOURCEDB or TARGETDB write user@host:port/database. USERIDALIAS keeps the password out of the "
    "file; one that GoldenGate encrypted (ENCRYPTKEY) is refused.",
    "USERID gate, PASSWORD secret", _user,
)  # fmt: skip


# --- a whole file -----------------------------------------------------------------------------------------------------


def one_login(values: Values, keyword: str, urls: Urls) -> Database:
    """SOURCEDB or TARGETDB of a checked file, with the login that stands there or on a line of its own.

    Raises the ParamError of lines that don't fit together. One that is wrong by itself is told by `check`, not here.
    """
    if values.failed & {keyword, *INSTEAD}:
        return Database()
    place: Database = values.one(keyword, Database())
    lines: list[tuple[Statement, Database]] = [pair for name in INSTEAD for pair in values.found.get(name, ())]
    if lines and has_user(place):
        raise lines[0][0].wrong(f"expected the user once, found one in {keyword} too")
    if len(lines) > 1:
        raise lines[1][0].wrong(f"expected the user once, found one in line {lines[0][0].line} too")
    if lines and (title := urls.file_of(place.url)):
        raise lines[0][0].wrong(f"expected none: {title} is a file, and has no users")
    statements = [*values.statements(keyword), *(statement for statement, _ in lines)]
    if not statements:
        return Database()
    found = replace(lines[0][1], url=place.url, name=place.name) if lines else place
    return _with_place(replace(found, keyword=keyword, urls=urls), statements[0])


def own_login(values: Values, keyword: str, urls: Urls) -> Database:
    """A second database of a file, such as SOURCEDB beside TARGETDB. Its login stands in its own line, or its URL."""
    if keyword in values.failed or not values.has(keyword):
        return Database()
    found: Database = values.one(keyword, Database())
    return _with_place(replace(found, keyword=keyword, urls=urls), values.statements(keyword)[0])


def _with_place(found: Database, statement: Statement) -> Database:
    """With a URL, unless only the credential store knows it."""
    if found.url or found.alias:
        return replace(found, where=f"{statement.file}:{statement.line}: {statement.keyword}")
    where, fault = _leads_to(found.user, found.name)
    if fault:
        called = found.name or found.user.partition("@")[2]
        what = f"where {called!r} is" if called else "where the database is"
        login = "and keep USERID" if found.user else "USERIDALIAS alias"
        line = f"{found.urls.example(found.keyword, called)}, {login}"
        raise statement.wrong(f"expected a URL, as nothing says {what}; write {line}")
    return replace(found, url=found.urls.url(where))
