"""A parameter file's text before its statements are looked at: INCLUDE, OBEY, macros, ?variables, SETENV.

Rule: like the parser behind it, this looks at a file whole and raises nothing about its text. A mistake becomes the
`fault` of the line it stands in. Every line remembers where it was written: a line of an INCLUDEd file its own place,
a line made by a macro the place of the call, and in `via` the macro's line.

    INCLUDE ./dirprm/lib.inc          the file's lines stand here; 16 deep
    OBEY ./dirprm/common.prm          the same for whole parameters; a file that is obeyed obeys no other
    MACRO #to PARAMS (#schema)        a macro; called as #to (sales), anywhere outside quotes
    BEGIN
    TARGET #schema.*
    END;
    MACROCHAR $                       another character than # for macros from here on
    SETENV (REGION = eu)              ?REGION in later lines is eu; else it is taken from the process's environment
    LIST, NOLIST, CMDTRACE ON         what the report shows of all that

Paths are taken from the home (the parent of dirprm), or from the file's own folder where it lies in no dirprm.
Bounded: 4 MiB and 100,000 lines in all, also after macros; a macro that calls itself ends at 16.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trails.controlflow import ControlFlowError
from trails.errors import ParamError

MAX_BYTES = 4 << 20
MAX_LINES = 100_000
DEPTH = 16
MAX_PARAMS = 99
MAX_CALL_LINES = 1000
MAX_WORK = 16 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and where it was written. `via` names the macro that made it; `fault` what is wrong with it."""

    text: str
    file: str
    number: int
    via: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro's parameters and body. `file` and `number` are the place of its body's first line."""

    name: str
    params: tuple[str, ...]
    body: tuple[str, ...]
    file: str
    number: int


@dataclass(slots=True)
class ParameterText:
    """A whole file, expanded. `echo` is what a report shows of it (passwords not masked yet)."""

    lines: list[Line] = field(default_factory=list)
    echo: list[str] = field(default_factory=list)


def read(path: str, environment: Mapping[str, str] | None = None) -> ParameterText:
    """The file at `path`, expanded. Raises ParamError if that file itself can't be read."""
    return _FileReader(environment).whole(_load(path), path)


def expand(text: str, name: str, environment: Mapping[str, str] | None = None) -> ParameterText:
    """`text`, expanded; `name` stands for its file."""
    return _FileReader(environment).whole(text, name)


def _load(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ParamError(f"{path}: the parameter file does not exist", hint="Write it with EDIT PARAMS") from None
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise ParamError(f"{path}: {what}", hint="It must be readable for this user") from None
    if len(data) > MAX_BYTES:
        raise ParamError(f"{path}: expected at most {MAX_BYTES} bytes", hint="Is this a parameter file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ParamError(f"{path}:{line}: expected UTF-8 text, found byte 0x{data[error.start]:02x}") from None


# What macros and variables never touch: strings, comments, URLs.
_OPAQUE = r"""'(?:[^'\n]|'')*'|"(?:[^"\n]|"")*"|(?:(?<=\s)|^)--.*|\b[A-Za-z][A-Za-z0-9+.-]{0,40}://\S*"""
_VARIABLE = re.compile(rf"(?P<opaque>{_OPAQUE})|(?P<variable>(?:(?<=[\s(,=])|^)\?(?P<name>[A-Za-z_]\w*))")
_URL_VARIABLE = re.compile(r"(?<=[/:@=])\?(?P<name>[A-Za-z_]\w*)(?=[@:/]|$)")
_WORD = re.compile(r"\s*([^\s,;()'\"]+)\s*(.*)", re.DOTALL)
_NAME = r"[A-Za-z0-9_$-]+"
_END = re.compile(r"(?i)(?:^|\s)END\s*;(.*)$")
SETENV = re.compile(r"""\(\s*([A-Za-z_]\w*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^)]*))\)$""")
CHARACTERS = "#$%@!^&~"
WORDS = ("INCLUDE", "OBEY", "MACRO", "LIST", "NOLIST", "CMDTRACE", "MACROCHAR")
"""Obeyed while a file is read, wherever a parameter may begin."""
UNTIL_SEMICOLON = frozenset(("TABLE", "MAP", "SEQUENCE"))
LISTS = frozenset(("TABLEEXCLUDE", "MAPEXCLUDE"))
"""Lists of tables: GoldenGate's users write them with a `;` and without."""
_PARENTHESES = re.compile(rf"(?P<opaque>{_OPAQUE})|[();]")
_IN_CALL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[(),]")
_CALLED = re.compile(r"[ \t]*\(")
_CALLED_EMPTY = re.compile(r"[ \t]*\([ \t]*\)")
_TRACES = ("ON", "OFF", "DETAIL")


class _Wrong(ControlFlowError):  # noqa: N818  -- becomes a line's fault
    """What was expected of a macro's call."""


class _FileReader:
    """The state of one reading: macros and variables known so far, what is listed, how much was made."""

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        self._variables = dict(os.environ if environment is None else environment)
        self._macros: dict[str, Macro] = {}
        self._char = "#"
        self._listing = True
        self._trace = "OFF"
        self._made = self._bytes = self._work = 0
        self._in_table = False  # a TABLE or MAP is being read, which goes on up to its `;`, with `&` or without
        self._depth = 0  # parentheses open in it
        self._goes_on = False  # the line before of another parameter ends with `&`: this one begins none
        self._out = ParameterText()

    def whole(self, text: str, name: str) -> ParameterText:
        self._file(text, name, (name,), obeyed=False)
        return self._out

    # --- lines in, lines out ---

    def _take(self, line: Line) -> bool:
        """A line of a parameter: its variables are replaced, SETENV is obeyed. False: as _emit()."""
        word = "" if self._goes_on else _first(line.text)
        if line.via and word in WORDS and not self._depth:
            return self._emit(replace(line, fault=f"{word} in a file: a macro's body holds parameters only"))
        line = self._with_variables(line)
        if word == "SETENV" and not self._depth:
            self._set_variable(line)
        if self._in_table or word in UNTIL_SEMICOLON:
            self._in_table, self._depth = _table_goes_on(line.text, self._depth)
        else:
            self._goes_on = word != "COMMENT" and _goes_on(line.text)
        return self._emit(line)

    def _emit(self, line: Line) -> bool:
        """Put a finished line out. False once the whole has become too large: nothing more is taken then."""
        self._made += 1
        self._bytes += len(line.text)
        if self._made > MAX_LINES or self._bytes > MAX_BYTES:
            if self._made != MAX_LINES + 2:  # told once
                self._made = MAX_LINES + 2
                text = f"at most {MAX_LINES} lines and {MAX_BYTES} bytes after INCLUDEs and macros"
                self._out.lines.append(replace(line, text=_first(line.text) or "INCLUDE", fault=text))
            return False
        self._out.lines.append(line)
        return True

    @property
    def _full(self) -> bool:
        return self._made > MAX_LINES

    def _file(self, text: str, name: str, stack: tuple[str, ...], *, obeyed: bool) -> None:
        lines = [Line(each, name, number) for number, each in enumerate(text.splitlines(), 1)]
        last_end = max((at for at, line in enumerate(lines) if _END.search(line.text)), default=-1)
        at = 0
        while at < len(lines) and not self._full:
            if _first(lines[at].text) == "MACRO" and not (self._depth or self._goes_on):
                at = self._define(lines, at, last_end)
            else:
                at = self._line(lines, at, stack, obeyed=obeyed)

    def _line(self, lines: list[Line], at: int, stack: tuple[str, ...], *, obeyed: bool) -> int:
        """Take one line (and those that belong to it). Returns the next line's index."""
        line = lines[at]
        word = _first(line.text)
        if self._goes_on or (self._depth and word != "INCLUDE"):
            word = ""  # such as DDL & INCLUDE MAPPED, or in a TABLE's or MAP's parentheses a column of that name
        if self._listing:
            self._out.echo.append(line.text)
        if word in ("INCLUDE", "OBEY"):
            self._insert(line, word, stack, obeyed=obeyed)
            return at + 1
        if word in ("LIST", "NOLIST", "CMDTRACE", "MACROCHAR"):
            self._switch(line, word)
            return at + 1
        if word == "COMMENT" or not self._macros_in(line.text):
            self._take(line)
            return at + 1
        return self._call(lines, at)

    # --- INCLUDE, OBEY, switches ---

    def _insert(self, line: Line, word: str, stack: tuple[str, ...], *, obeyed: bool) -> None:
        path, fault = self._path(line, word, stack, obeyed=obeyed)
        text = ""
        if not fault:
            try:
                text = _load(path)
            except ParamError as error:
                fault = f"a readable file: {error.message}"
        if fault:
            self._emit(replace(line, fault=fault))
            return
        self._file(text, path, (*stack, path), obeyed=obeyed or word == "OBEY")

    def _path(self, line: Line, word: str, stack: tuple[str, ...], *, obeyed: bool) -> tuple[str, str]:
        """(the file that is meant, "") or ("", what is wrong)."""
        given = _argument(self._with_variables(line).text)
        if not given:
            return "", "one file, such as ./dirprm/library.inc"
        folder = os.path.dirname(os.path.abspath(stack[0]))
        if os.path.basename(folder) == "dirprm":
            folder = os.path.dirname(folder)
        path = os.path.normpath(os.path.join(folder, given))
        if word == "OBEY" and obeyed:
            return "", "no OBEY within a file that is obeyed itself (INCLUDE may be nested)"
        if path in map(os.path.abspath, stack):
            return "", f"another file: {given} is being read already ({' > '.join(map(os.path.basename, stack))})"
        if len(stack) > DEPTH:
            return "", f"at most {DEPTH} files deep"
        return path, ""

    def _switch(self, line: Line, word: str) -> None:
        given = _argument(line.text)
        if word in ("LIST", "NOLIST"):
            self._listing = word == "LIST"
            fault = "no argument" if given else ""
        elif word == "CMDTRACE":
            self._trace = given.upper()
            fault = "" if self._trace in _TRACES else "ON, OFF or DETAIL"
        else:
            fault = "" if len(given) == 1 and given in CHARACTERS else f"one of {' '.join(CHARACTERS)}"
            self._char = self._char if fault else given
        if fault:
            self._emit(replace(line, fault=fault))

    def _set_variable(self, line: Line) -> None:
        match = SETENV.match(_argument(line.text))
        if match:
            self._variables[match[1]] = next((g for g in match.groups()[1:] if g is not None), "").strip()

    def _with_variables(self, line: Line) -> Line:
        """The line with each ?NAME replaced."""
        if "?" not in line.text:
            return line
        missing: list[str] = []

        def value(match: re.Match[str]) -> str:
            if match.groupdict().get("opaque") is not None:
                inside = match[0]
                return _URL_VARIABLE.sub(value, inside) if "://" in inside and inside[0] not in "'\"-" else inside
            found = self._variables.get(match["name"])
            if found is None or "\n" in found:
                missing.append(match["name"])
                return match[0]
            return found

        text = _VARIABLE.sub(value, line.text)
        if not missing:
            return replace(line, text=text)
        shown = ", ".join(missing)
        return replace(
            line, fault=f"a value for ?{shown} (one line): set it by SETENV ({missing[0]} = ...) or in the environment"
        )

    # --- macros ---

    def _define(self, lines: list[Line], at: int, last_end: int) -> int:
        """MACRO ... END; Returns the next line's index. `last_end`: where the file's last END; stands."""
        begin, texts = at, []
        while at <= last_end:
            end = _END.search(lines[at].text)
            texts.append(lines[at].text[: end.start()] if end else lines[at].text)
            at += 1
            if end:
                fault = self._take_macro(lines[begin], "\n".join(texts), end[1].strip())
                break
        else:
            at, fault = begin + 1, "END; behind the macro's body, found none"
        if self._listing:
            self._out.echo += [each.text for each in lines[begin:at]]
        if fault:
            self._emit(replace(lines[begin], text="MACRO", fault=fault))
        return at

    def _take_macro(self, first: Line, text: str, rest: str) -> str:
        """Note a macro; `text` is what stands before its END;. Returns what is wrong with it."""
        char = re.escape(self._char)
        head = re.match(rf"(?i)\s*MACRO\s+{char}({_NAME})\s*(?:,?\s*PARAMS\s*\(([^)]*)\))?\s*BEGIN\b[ \t]*\n?", text)
        if head is None:
            return f"MACRO {self._char}name [PARAMS ({self._char}p1, ...)] BEGIN body END;"
        if rest and not rest.startswith("--"):
            return f"a new line after END;, found {rest!r}"
        params = tuple(each.strip() for each in (head[2] or "").split(",") if each.strip())
        if any(not re.fullmatch(rf"{char}{_NAME}", each) for each in params) or len(set(params)) != len(params):
            return f"parameters such as ({self._char}p1, {self._char}p2), each once"
        if len(params) > MAX_PARAMS:
            return f"at most {MAX_PARAMS} parameters"
        name = head[1].upper()
        if name in self._macros:
            known = self._macros[name]
            return f"a new name; {self._char}{head[1]} is defined already in {known.file}:{known.number}"
        number = first.number + text.count("\n", 0, head.end())
        body = tuple(text[head.end() :].rstrip(" \t").removesuffix("\n").split("\n"))
        self._macros[name] = Macro(head[1], tuple(p[1:] for p in params), body, first.file, number)
        return ""

    def _pattern(self) -> re.Pattern[str]:
        char = re.escape(self._char)
        return re.compile(rf"(?P<opaque>{_OPAQUE})|(?<![\w$#@./:-]){char}(?P<name>{_NAME})")

    def _macros_in(self, text: str) -> bool:
        return self._char in text and any(m["name"] for m in self._pattern().finditer(text))

    def _call(self, lines: list[Line], at: int) -> int:
        """Expand the macros of a line; a call's arguments may go on in the next lines. Returns the next index."""
        line, pattern = lines[at], self._pattern()
        taken = [line.text]
        depth = _open_call(line.text, pattern, 0)
        while depth and at + len(taken) < len(lines) and len(taken) < MAX_CALL_LINES:
            more = lines[at + len(taken)].text
            depth = _open_call(more, pattern, depth)
            taken.append(more)
        if self._listing:
            self._out.echo += taken[1:]
        for made in self._lines_of(replace(line, text="\n".join(taken))):
            if self._trace != "OFF":
                self._out.echo.append(f"--> {made.text}")
            if not self._take(made):
                break
        return at + len(taken)

    def _lines_of(self, line: Line) -> list[Line]:
        """The lines that `line` becomes; the line itself with its fault, where a call in it is wrong."""
        try:
            return [replace(line, text=text, via=via) for text, via in self._expanded(line.text, "", 1)]
        except _Wrong as error:
            return [replace(line, text=line.text.split("\n")[0], fault=str(error))]

    def _expanded(self, text: str, via: str, depth: int) -> list[tuple[str, str]]:
        """`text` with its calls replaced, as (line, the macro's place that made it)."""
        made, at = [("", via)], 0
        for call in self._pattern().finditer(text):
            if not call["name"] or call.start() < at:
                continue
            _join(made, [(each, via) for each in text[at : call.start()].split("\n")])
            macro, arguments, at = self._understood(text, call)
            self._work += len(made[-1][0])  # each call copies its line so far
            _join(made, self._body(macro, arguments, depth))
        _join(made, [(each, via) for each in text[at:].split("\n")])
        return made

    def _understood(self, text: str, call: re.Match[str]) -> tuple[Macro, list[str], int]:
        """(the macro, its arguments, the index behind the call)."""
        macro = self._macros.get(call["name"].upper())
        if macro is None:
            raise _Wrong(self._unknown(call["name"]))
        arguments, end = _arguments(text, call.end()) if macro.params else _no_arguments(text, call.end())
        if arguments is None or len(arguments) != len(macro.params):
            raise _Wrong(f"{len(macro.params)} arguments for {self._char}{macro.name} ({', '.join(macro.params)})")
        return macro, arguments, end

    def _body(self, macro: Macro, arguments: list[str], depth: int) -> list[tuple[str, str]]:
        """A macro's lines for these arguments, the calls in them replaced too."""
        if depth > DEPTH:
            raise _Wrong(f"macros at most {DEPTH} deep ({self._char}{macro.name} calls itself?)")
        made: list[tuple[str, str]] = []
        for number, text in enumerate(macro.body, macro.number):
            via = f"{self._char}{macro.name}, {macro.file}:{number}"
            filled = self._filled(text, macro, arguments)
            self._work += len(filled) + 64  # the 64: calls of empty macros are work too
            if self._work > MAX_WORK:
                raise _Wrong(f"less than {MAX_WORK} bytes made by macros")
            if self._trace == "DETAIL":
                self._out.echo.append(f"--> {via}: {filled}")
            made += self._expanded(filled, via, depth + 1)
        return made

    def _filled(self, text: str, macro: Macro, arguments: list[str]) -> str:
        if not macro.params:
            return text
        values = dict(zip((p.upper() for p in macro.params), arguments, strict=True))

        def value(match: re.Match[str]) -> str:
            return match[0] if match["opaque"] else values.get(match["name"].upper(), match[0])

        char = re.escape(self._char)
        # A parameter also stands within a name: copy.#table, #schema.#table.
        return re.sub(rf"(?P<opaque>{_OPAQUE})|{char}(?P<name>[A-Za-z0-9_$]+)", value, text)

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name.upper(), list(self._macros), n=1, cutoff=0.6)
        hint = f"; did you mean {self._char}{self._macros[near[0]].name}?" if near else ""
        return f"a macro that is defined before this line; there is no {self._char}{name}{hint}"


def _first(text: str) -> str:
    match = _WORD.match(text)
    return match[1].upper() if match else ""


def _argument(text: str) -> str:
    """What follows the first word, without a comment and the quotes around all of it."""
    match = _WORD.match(text)
    rest = re.sub(r"(?:^|\s)--.*$", "", match[2]).strip().removesuffix(";").strip() if match else ""
    return rest[1:-1] if len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\"" else rest


def _join(made: list[tuple[str, str]], more: list[tuple[str, str]]) -> None:
    """Put lines behind lines: the first one of `more` continues the last one of `made`."""
    text, via = made[-1]
    made[-1] = (text + more[0][0], more[0][1] or via)
    made += more[1:]


def _goes_on(text: str) -> bool:
    """Whether a line ends with `&`, but for a comment."""
    if "&" not in text:
        return False
    comment = next((m for m in _PARENTHESES.finditer(text) if m[0].startswith("--")), None)
    return text[: comment.start() if comment else None].rstrip().endswith("&")


def _no_arguments(text: str, at: int) -> tuple[list[str], int]:
    """A macro without parameters may be called with `()`; other parentheses behind it are not its own."""
    match = _CALLED_EMPTY.match(text, at)
    return [], match.end() if match else at


def _open_call(line: str, pattern: re.Pattern[str], depth: int) -> int:
    """Parentheses of a macro's call that are open behind `line`, where `depth` are open before it."""
    at = 0
    while True:
        if not depth:
            calls = (_CALLED.match(line, m.end()) for m in pattern.finditer(line, at) if m["name"])
            begun = next((m for m in calls if m), None)
            if begun is None:
                return 0
            depth, at = 1, begun.end()
        for token in _IN_CALL.finditer(line, at):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            if not depth:
                at = token.end()
                break
        else:
            return depth


def _table_goes_on(text: str, depth: int) -> tuple[bool, int]:
    """Whether a TABLE or MAP goes on behind this line, and parentheses open then; `depth` are open before it."""
    for token in _PARENTHESES.finditer(text):
        if token[0] == ";":
            return False, 0
        depth += {"(": 1, ")": -1}.get(token[0], 0)
    return True, max(0, depth)


def _arguments(text: str, at: int) -> tuple[list[str] | None, int]:
    """(the arguments in parentheses behind a macro's name, the index behind them); None if they never close."""
    match = _CALLED.match(text, at)
    if not match:
        return [], at
    begin = match.end()
    depth, found = 1, []
    for token in _IN_CALL.finditer(text, begin):
        place = token.start()
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        if depth == 0 or (depth == 1 and token[0] == ","):
            found.append(text[begin:place].strip())
            begin = place + 1
        if depth == 0:
            return ([] if found == [""] else found), place + 1
    return None, len(text)
