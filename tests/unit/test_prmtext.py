"""INCLUDE, OBEY, macros, ?variables, SETENV: what a file's text becomes, and where each line says it stands."""

from pathlib import Path

import pytest

from trails.errors import ParamError
from trails.runtime.language import params, prmtext
from trails.runtime.language.params import Keyword, ParamErrors, check, parse_file, parse_text

EMPTY: dict[str, str] = {}


def lines(text: str, **environment: str) -> list[str]:
    """The lines that `text` becomes."""
    return [line.text for line in prmtext.expand(text, "x.prm", environment).lines]


def fault(text: str, **environment: str) -> str:
    """The one fault in it."""
    (found,) = [line.fault for line in prmtext.expand(text, "x.prm", environment).lines if line.fault]
    return found


def statements(text: str, **environment: str) -> list[tuple[str, str, int]]:
    """(keyword, text, line) of each statement; none may have a fault."""
    found = parse_text(text, "x.prm", environment)
    assert [each.fault for each in found if each.fault] == []
    return [(each.keyword, " ".join(each.text.split()), each.line) for each in found]


def home(tmp_path: Path, **files: str) -> Path:
    """A folder with dirprm and these files in it."""
    folder = tmp_path / "dirprm"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.prm").write_text(text)
    return folder


# --- macros ---


def test_a_macro_is_replaced_by_its_body_with_its_arguments():
    text = "MACRO #to PARAMS (#s, #t)\nBEGIN\nMAP #s.*, TARGET #t.*;\nEND;\n#to (sales, copy)\n#TO(a,b)\n"
    assert statements(text) == [("MAP", "sales.*, TARGET copy.*", 5), ("MAP", "a.*, TARGET b.*", 6)]


def test_a_macro_may_stand_in_the_middle_of_a_line_and_in_another_macro():
    text = (
        "MACRO #stamp BEGIN at = current_timestamp() END;\n"
        "MACRO #cols PARAMS (#c)\nBEGIN\nCOLMAP (USEDEFAULTS,\n #c = 1, #stamp ())\nEND;\n"
        "MAP a.b, TARGET c.d, #cols (x), KEYCOLS (id);\n"
    )
    (statement,) = parse_text(text, "x.prm", EMPTY)
    shown = " ".join(statement.text.split())
    assert shown == "a.b, TARGET c.d, COLMAP (USEDEFAULTS, x = 1, at = current_timestamp()), KEYCOLS (id)"
    assert {statement.line_at(at) for at in range(len(statement.text))} == {7}


def test_a_macro_is_called_by_name_alone_too_and_its_arguments_may_hold_commas_in_quotes_and_parentheses():
    text = "MACRO #m PARAMS (#a, #b) BEGIN TABLE #a.#b; END;\nMACRO #n BEGIN TABLE z.z; END;\n#n\n#n ()\n"
    assert [each[1] for each in statements(text)] == ["z.z", "z.z"]
    text = "MACRO #m PARAMS (#a, #b)\nBEGIN\nX #a : #b\nEND;\n#m ('a,b', f(c, d))\n"
    assert lines(text) == ["X 'a,b' : f(c, d)"]


def test_a_call_may_span_lines():
    text = "MACRO #m PARAMS (#a, #b)\nBEGIN\nX #a #b\nEND;\n#m (one,\n    two)\nY\n"
    assert lines(text) == ["X one two", "Y"]


def test_quotes_comments_and_urls_are_left_alone():
    text = "MACRO #m BEGIN BAD END;\nA '#m' \"#m\" -- #m\nB postgresql://u:p#m@h/d\nCOMMENT #m\nC a#m x.#m\n"
    assert lines(text) == text.splitlines()[1:]


@pytest.mark.parametrize(
    "line", [", at = #now ()", "comment = #now ()", "(#now ())", "list = #now ()", "setenv = #now ()"]
)
def test_a_macro_is_replaced_however_its_line_begins_in_parentheses(line: str):
    text = f"MACRO #now BEGIN clock() END;\nMAP a.b, TARGET c.d, COLMAP (USEDEFAULTS\n{line}\n);\n"
    assert lines(text)[1] == line.replace("#now ()", "clock()")


def test_columns_named_like_words_of_the_language_stay_where_they_stand():
    """A line LIST within COLS was taken for the switch once: the column was not captured, and nobody was told."""
    text = "TABLE s.t, COLS (\n id,\n list\n);\nNOLIST\nTABLE s.u, COLS (\n macro,\n obey,\n cmdtrace);\nLIST\n"
    assert [each[1] for each in statements(text)] == ["s.t, COLS ( id, list )", "s.u, COLS ( macro, obey, cmdtrace)"]


def test_what_stands_behind_an_ampersand_begins_no_parameter():
    """DDL & INCLUDE MAPPED is how DDL is written: no file is meant; so too where a macro makes the lines."""
    assert statements("DDL & -- a comment\n INCLUDE MAPPED, &\n OBEY & \n MACRO\nLIST\nEXTRACT e\n") == [
        ("DDL", "INCLUDE MAPPED, OBEY MACRO", 1), ("EXTRACT", "e", 6),
    ]  # fmt: skip
    assert statements("MACRO #ddl\nBEGIN\nDDL &\nINCLUDE MAPPED\nEND;\n#ddl ()\n") == [("DDL", "INCLUDE MAPPED", 6)]
    for text in ("COMMENT so &\n", "EXTRACT e -- this & that &\n"):
        assert "a readable file" in fault(text + "INCLUDE ./nothing\n")


@pytest.mark.parametrize(
    "text",
    [
        "TABLEEXCLUDE a.b, c.d\nDDL &\n  INCLUDE MAPPED\nTABLE a.*;",
        "TABLEEXCLUDE a.b,\n-- a comment\n  c.d\nDDL INCLUDE MAPPED\nTABLE a.*;",
        "TABLEEXCLUDE a.b\n  , c.d\nDDL INCLUDE MAPPED\nTABLE a.*;",
        "tableexclude\n  a.b &\n c.d\n;\nDDL INCLUDE MAPPED\nTABLE a.*;",
        "TABLEEXCLUDE a.b,\n  c.d;\nDDL INCLUDE MAPPED\nTABLE a.*;",
    ],
)
def test_a_list_of_tables_may_do_without_its_semicolon(text: str):
    """Oracle's own examples have none."""
    found = [(each.keyword, " ".join(each.words)) for each in parse_text(text, "e.prm")]
    assert found == [("TABLEEXCLUDE", "a.b c.d"), ("DDL", "INCLUDE MAPPED"), ("TABLE", "a.*")]


def test_another_macro_character():
    assert lines("MACROCHAR $\nMACRO $m BEGIN X END;\n$m\n#m\n") == ["X", "#m"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#nope (1)\n", "there is no #nope"),
        ("MACRO #mine BEGIN X END;\n#mime\n", "did you mean #mine?"),
        ("MACRO #m PARAMS (#a) BEGIN #a END;\n#m (1, 2)\n", "1 arguments for #m (a)"),
        ("MACRO #m PARAMS (#a) BEGIN #a END;\n#m (1\n", "1 arguments for #m (a)"),
        ("MACRO #m BEGIN\nX\n", "END; behind the macro's body"),
        ("MACRO m BEGIN X END;\n", "MACRO #name [PARAMS"),
        ("MACRO #m PARAMS (a) BEGIN X END;\n", "parameters such as (#p1, #p2)"),
        ("MACRO #m PARAMS (#a, #a) BEGIN X END;\n", "each once"),
        ("MACRO #m BEGIN X END;\nMACRO #M BEGIN Y END;\n", "is defined already in x.prm:1"),
        ("MACRO #m BEGIN X END; Y\n", "a new line after END;"),
        ("MACRO #m BEGIN #m END;\n#m\n", "calls itself?"),
        ("MACROCHAR a\n", "one of # $ % @"),
        ("CMDTRACE maybe\n", "ON, OFF or DETAIL"),
        ("INCLUDE\n", "one file"),
        ("TABLE ?nowhere.*;\n", "a value for ?nowhere"),
        ("MACRO #m BEGIN INCLUDE x END;\n#m\n", "a macro's body holds parameters only"),
    ],
)
def test_what_is_wrong_is_a_fault_of_its_line(text: str, wanted: str):
    assert wanted in fault(text)


def test_macros_that_double_end_bounded():
    """A dozen macros that each call the former ten times would be 10^12 lines."""
    text = "MACRO #m0 BEGIN x END;\n" + "".join(
        f"MACRO #m{n} BEGIN {f'#m{n - 1} () ' * 10} END;\n" for n in range(1, 13)
    )
    assert "bytes made by macros" in fault(text + "#m12\n")


def test_a_mistake_names_the_call_and_the_macros_line():
    text = "EXTRACT e\nMACRO #bad PARAMS (#t)\nBEGIN\nTABLE #t\nEND;\n#bad (a.b)\n"
    keywords = params.table(
        Keyword("EXTRACT", "group", "", "", params.group), Keyword("TABLE", "t", "", "", params.text)
    )
    with pytest.raises(ParamErrors) as caught:
        check(parse_text(text, "x.prm", EMPTY), keywords, "extract")
    assert str(caught.value) == "x.prm:6: TABLE: expected ';' at its end, found none (made by #bad, x.prm:4)"


# --- INCLUDE and OBEY ---


def test_an_included_file_stands_where_it_is_named_and_keeps_its_lines(tmp_path: Path):
    folder = home(tmp_path, ext1="EXTRACT ext1\nINCLUDE ./dirprm/lib.prm\n#all (s)\nZ\n", lib="-- a library\nY 1\n")
    (folder / "lib.prm").write_text("-- a library\nMACRO #all PARAMS (#s) BEGIN TABLE #s.*; END;\nY 1\n")
    found = [(each.keyword, Path(each.file).name, each.line) for each in parse_file(str(folder / "ext1.prm"), EMPTY)]
    assert found == [("EXTRACT", "ext1.prm", 1), ("Y", "lib.prm", 3), ("TABLE", "ext1.prm", 3), ("Z", "ext1.prm", 4)]


def test_a_statement_may_go_on_in_an_included_file(tmp_path: Path):
    folder = home(tmp_path, rep="MAP a.b,\nINCLUDE ./dirprm/rest.prm\nX\n", rest="  TARGET c.d;\n")
    found = parse_file(str(folder / "rep.prm"), EMPTY)
    assert [(each.keyword, " ".join(each.text.split())) for each in found] == [("MAP", "a.b, TARGET c.d"), ("X", "")]


@pytest.mark.parametrize("begin", ["a.b, TARGET c.d, &\n", "a.b, &\nTARGET c.d, COLMAP (x = 1, &\n y = 2), &\n"])
def test_in_a_map_an_ampersand_changes_nothing(tmp_path: Path, begin: str):
    """It goes on up to its `;` anyway: a file may be included behind a line with `&` as behind one without."""
    text = f"MAP {begin}INCLUDE ./dirprm/rest.prm\nDDL &\nINCLUDE MAPPED\n"
    found = parse_file(str(home(tmp_path, rep=text, rest="KEYCOLS (id);\n") / "rep.prm"), EMPTY)
    assert [(each.keyword, each.fault) for each in found] == [("MAP", ""), ("DDL", "")]
    assert found[0].text.endswith("KEYCOLS (id)")


def test_obey_is_not_nested_but_include_is(tmp_path: Path):
    folder = home(tmp_path, a="OBEY ./dirprm/b.prm\n", b="INCLUDE ./dirprm/c.prm\nOBEY ./dirprm/c.prm\n", c="X\n")
    found = prmtext.read(str(folder / "a.prm"), EMPTY).lines
    assert [(line.text, line.fault[:10]) for line in found] == [("X", ""), ("OBEY ./dirprm/c.prm", "no OBEY wi")]


def test_files_in_a_circle_or_missing_are_told_with_file_and_line(tmp_path: Path):
    folder = home(tmp_path, a="INCLUDE ./dirprm/b.prm\nINCLUDE gone.inc\n", b="\nINCLUDE ./dirprm/a.prm\n")
    with pytest.raises(ParamErrors) as caught:
        check(parse_file(str(folder / "a.prm"), EMPTY), {}, "extract")
    first, second = str(caught.value).split("\n")
    assert "b.prm:2: INCLUDE: expected another file" in first and "a.prm > b.prm" in first
    assert "a.prm:2: INCLUDE: expected a readable file" in second and "gone.inc" in second


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"A\0B"])
def test_an_included_file_that_is_no_text_is_one_fault(tmp_path: Path, content: bytes):
    folder = home(tmp_path, a="INCLUDE ./dirprm/b.bin\n")
    (folder / "b.bin").write_bytes(content)
    assert len(prmtext.read(str(folder / "a.prm"), EMPTY).lines) == 1


def test_includes_end_bounded(tmp_path: Path):
    """Sixteen files that each include the next twice would be 65536 copies of a large one."""
    folder = home(tmp_path, a0="X\n" * 3000)
    for n in range(1, 15):
        (folder / f"a{n}.prm").write_text(f"INCLUDE ./dirprm/a{n - 1}.prm\n" * 2)
    found = prmtext.read(str(folder / "a14.prm"), EMPTY).lines
    assert len(found) <= prmtext.MAX_LINES + 1
    assert "lines and" in found[-1].fault


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(ParamError, match="does not exist"):
        prmtext.read(str(tmp_path / "no.prm"), EMPTY)


# --- variables ---


def test_variables_come_from_setenv_then_from_the_environment():
    text = "A ?REGION\nSETENV (REGION = eu)\nA ?REGION x(?REGION,?REGION)\n"
    assert lines(text, REGION="us") == ["A us", "SETENV (REGION = eu)", "A eu x(eu,eu)"]


def test_setenv_takes_variables_and_may_come_from_a_macro():
    """What the process gets as its environment, and what later lines show, are one value."""
    assert lines("SETENV (A = ?X)\nSETENV (B = ?A)\nB ?B\n", X="eu")[-1] == "B eu"
    assert lines("MACRO #e BEGIN SETENV (A = x) END;\n#e\nA ?A\n")[-1] == "A x"


def test_a_call_within_a_calls_arguments_may_span_lines_too():
    text = "MACRO #m PARAMS (#a, #b) BEGIN X #a #b END;\nMACRO #n PARAMS (#c) BEGIN <#c> END;\n#m (#n (1),\n 2)\nY\n"
    assert lines(text) == ["X <1> 2", "Y"]


def test_a_variable_in_a_url_and_none_in_quotes_or_names():
    text = "SOURCEDB postgresql://u:?PASS@h/db?x=1\nTABLE s.ord?rs;\nTABLE s.?rders;\nX 'is ?PASS' \"?PASS\"\n"
    assert lines(text, PASS="secret") == [
        "SOURCEDB postgresql://u:secret@h/db?x=1", "TABLE s.ord?rs;", "TABLE s.?rders;", "X 'is ?PASS' \"?PASS\"",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"), [("(A = b)", "b"), ('(A="b c")', "b c"), ("(A = 'it')", "it"), ("(A=)", "")]
)
def test_setenv_takes_quotes(text: str, value: str):
    assert lines(f"SETENV {text}\nX ?A\n")[-1].rstrip() == f"X {value}".rstrip()


def test_setenv_and_getenv_are_parameters_of_every_file():
    found = check(parse_text("SETENV (A = b)\nGETENV (A)\n", "x", EMPTY), {}, "any")
    assert (found.all("SETENV"), found.all("GETENV")) == ([("A", "b")], ["A"])
    with pytest.raises(ParamErrors, match=r"expected \(NAME = value\)"):
        check(parse_text("SETENV A=b\n", "x", EMPTY), {}, "any")


def test_unknown_words_near_the_languages_own_are_guessed():
    with pytest.raises(ParamErrors, match="did you mean INCLUDE"):
        check(parse_text("INCLUD x\n", "x", EMPTY), {}, "any")


# --- the echo ---


def test_the_report_shows_what_was_read_unless_told_not_to():
    text = "A\nNOLIST\nB\nLIST\nCMDTRACE ON\nMACRO #m BEGIN C END;\n#m\n"
    echo = prmtext.expand(text, "x", EMPTY).echo
    assert echo == ["A", "NOLIST", "CMDTRACE ON", "MACRO #m BEGIN C END;", "#m", "--> C"]
