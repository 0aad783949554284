"""Each error says cause, place and what to do in at most 40 words, its hint included; a placeholder counts as one word.

tests/support/errortexts.py reads the product's code for them, and follows each text to where it is written.
"""

from __future__ import annotations

import re

import pytest

from tests.support.errortexts import Module, Product, words

pytestmark = pytest.mark.xdist_group("house")  # whose process has parsed the code
MOST_WORDS = 40
PASSED_ON = re.compile(r"expected|\A\ufffd\Z|\ufffd refused: \ufffd\Z|\Aggsci\.web: ")
FOR_THE_SUBJECT = 6
"""Words that may stand before a message that is kept for later, such as whose certificate it is of."""
ERRORS = "class GateError(Exception):\n    pass\n\n\nclass OperatorError(GateError):\n    pass\n"


@pytest.fixture(scope="module")
def product() -> Product:
    """The product's code."""
    return Product.read()


def test_no_error_is_longer_than_a_person_reads(product):
    """Cause first, then place, then what to do: short whole sentences. What needs more is a page's."""
    found = {(message.place, message.whole) for message in product.messages()}
    assert len(found) > 1000
    found |= {(message.place, f"{'word ' * FOR_THE_SUBJECT}{message.whole}") for message in product.pairs()}
    long = [f"{place}: {words(said)} words: {said}" for place, said in sorted(found) if words(said) > MOST_WORDS]
    assert not long, "\n".join(long)


def test_what_only_a_person_can_mend_says_how(product):
    """No wait and no restart helps where files or peers don't fit, or a lock is held: each such error has a hint.

    Where what was `expected` is all that is wrong it says enough; so do the words of another error that are passed on.
    """
    always = {"KeyMissingError", "LockedError", "MismatchError", "UntrustedError", "VersionError"}
    mostly = {"DamageError", "OperatorError"}
    bare = {
        f"{told.place}: {told.message}"
        for told in product.messages()
        if not told.hint and (told.kind in always or (told.kind in mostly and not PASSED_ON.search(told.message)))
    }
    assert not bare, "\n".join(sorted(bare))


def said(code: str) -> list[str]:
    """What the errors of a program say, as that of the product is read."""
    program = Product([Module.of("trails/errors.py", ERRORS), Module.of("trails/x.py", code)])
    return sorted({message.whole for message in program.messages()})


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('OperatorError("one two", hint="three")', 3),
        ('OperatorError(f"one {x} of {y:d}: {z.name(1)!r}")', 5),
        ('OperatorError("a b" if x else "a b c")', 3),
        ('OperatorError(x or ("a b" if x else "a b c"))', 3),
        ('OperatorError("a " + b + " c")', 3),
        ("OperatorError(f\"a{x}b - {'' if x else 'two words'}\")", 3),
    ],
)
def test_how_words_are_counted(code, count):
    """A placeholder is one word, with what it is glued to; the longer branch counts."""
    (whole,) = said(code)
    assert words(whole) == count


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('HINT = "b c"\nOperatorError("a", hint=HINT)', ["a b c"]),
        ('def f(x):\n    what = f"b {x}"\n    raise OperatorError(f"a {what}")\nf("c d")', ["a b c d"]),
        ('def f(x):\n    raise OperatorError(f"a {x}")\nf("b")\nf(x="c")', ["a b", "a c"]),
        ('def f(x, hint="h"):\n    raise OperatorError(x, hint=hint)\nf("b")\nf("c", "d")', ["b h", "c d"]),
        ('def f(x) -> str:\n    return x + " c" if x else "d"\nOperatorError(f"a {f(\'b\')}")', ["a b c"]),
        ('class S:\n    def wrong(self, x):\n        return OperatorError(f"a {x}")\ns.wrong("b c")', ["a b c"]),
        ('def f(x):\n    g(f"{x} b")\ndef g(y):\n    raise OperatorError(y)\nf("a")', ["a b"]),
        ('WHY = {1: "b", 2: "b c"}\nOperatorError(f"a {WHY[x]}")', ["a b c"]),
    ],
)
def test_a_text_is_followed_to_where_it_is_written(code, texts):
    """Through names, functions and what their callers give them: no way to write an error is out of the count."""
    assert said(code) == texts
