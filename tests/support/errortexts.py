"""Every error text of the product, read from its code: what an operator may get to see, whoever makes the error.

Rule: a text is followed to where it is written. A name stands for what its function, its module or another module gives
it, a parameter for what each caller gives, a call for what the function returns. Of several texts the longest counts.
What is known only when the program runs is one word. A pair of texts is a message and its hint, for a later error.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.parsed import no_collection, product

PLACEHOLDER = "\N{REPLACEMENT CHARACTER}"
DEEP = 3
"""So many calls are followed, up and down."""

Function = ast.FunctionDef
Bound = Mapping[str, str]


@dataclass
class Module:
    """One file: its functions, and the texts that its names stand for."""

    path: str
    bases: dict[str, set[str]] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)
    pairs: list[ast.Tuple] = field(default_factory=list)
    texts: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    around: dict[int, Function] = field(default_factory=dict)
    given: dict[tuple[int, str], list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    """What a function gives a name, by the function and the name; its returns by the empty name."""

    @classmethod
    def of(cls, path: str, source: str) -> Module:
        """Source text that stands at this path."""
        return cls.read(path, ast.parse(source))

    @classmethod
    def read(cls, path: str, tree: ast.Module) -> Module:
        """A file at this path."""
        found = cls(path)
        for node in tree.body:
            for name, value in _assigned(node):
                found.texts[name] = value
        found._visit(tree, None)
        return found

    def _visit(self, node: ast.AST, function: Function | None) -> None:
        """Note what this node says, and all below it; `function` is the one around it."""
        match node:
            case ast.ImportFrom(module=origin, names=names):
                self.imported |= {name.asname or name.name: (origin or "", name.name) for name in names}
            case ast.ClassDef(name=name, bases=bases):
                self.bases[name] = {last_name(base) for base in bases}
            case ast.FunctionDef(name=name):
                self.functions[name].append(node)
                function = node
            case ast.Call():
                self.calls.append(node)
            case ast.Tuple(elts=[one, other]) if _is_text(one) and (_is_text(other) or isinstance(other, ast.Name)):
                self.pairs.append(node)
            case ast.Return(value=value) if value is not None:
                self.given[id(function), ""].append(value)
        if function is not None:
            self.around[id(node)] = function
            for name, value in _assigned(node):
                self.given[id(function), name].append(value)
        for below in ast.iter_child_nodes(node):
            self._visit(below, function)

    @property
    def name(self) -> str:
        """As imports name it."""
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass(frozen=True)
class Message:
    """What one way to one call says: the message, and the hint behind it."""

    place: str
    kind: str
    message: str
    hint: str

    @property
    def whole(self) -> str:
        """As people get to see it."""
        return f"{self.message} {self.hint}".strip()


class Product:
    """All modules, and who calls whom by which name."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = {module.name: module for module in modules}
        self.classes = self._errors()
        self._known: dict[tuple[int, frozenset[str], int], list[Bound]] = {}
        self.calls: dict[str, list[tuple[Module, ast.Call]]] = defaultdict(list)
        for module in modules:
            for call in module.calls:
                self.calls[last_name(call.func)].append((module, call))

    @classmethod
    def read(cls) -> Product:
        """The product of this checkout."""
        with no_collection():
            return cls([Module.read(str(path), tree) for path, tree in product().items()])

    def _errors(self) -> set[str]:
        """GateError, and each class that derives from one that is found."""
        bases = {name: above for module in self.modules.values() for name, above in module.bases.items()}
        found = {"GateError"}
        while more := {name for name, above in bases.items() if above & found} - found:
            found |= more
        return found

    def messages(self) -> Iterator[Message]:
        """What each call that makes an error says, once for each way that leads to it."""
        for name in sorted(self.classes):
            for module, call in self.calls[name]:
                if not call.args:
                    continue
                said = ast.Tuple(elts=call.args) if len(call.args) > 1 else call.args[0]
                hints = [word.value for word in call.keywords if word.arg == "hint"]
                for bound in self._ways(module, call, DEEP):
                    texts = [self.text(one, module, bound) for one in (said, *hints)]
                    yield Message(f"{module.path}:{call.lineno}", name, texts[0], "".join(texts[1:]))

    def pairs(self) -> Iterator[Message]:
        """Each message that is written down with its hint, for an error that is made later."""
        for module in self.modules.values():
            for pair in module.pairs:
                yield Message(f"{module.path}:{pair.lineno}", "", *(self.text(one, module, {}) for one in pair.elts))

    def _ways(self, module: Module, call: ast.Call, deep: int) -> list[Bound]:
        """What the parameters of the function around a call are, for each that calls it; one empty way if none does."""
        function = module.around.get(id(call))
        if function is None or deep == 0:
            return [{}]
        params = {*_parameters(function), *(arg.arg for arg in function.args.kwonlyargs)}
        used = params & self._needed(module, function, call)
        if not used:
            return [{}]
        key = (id(function), frozenset(used), deep)
        if key not in self._known:
            ways = {
                tuple(sorted((name, said) for name, said in bound.items() if name in used))
                for where, caller in self.calls[function.name]
                if self._may_mean(where, caller, module, function)
                for above in self._ways(where, caller, deep - 1)
                for bound in [self._bound(function, caller, where, above)]
            }
            self._known[key] = [dict(way) for way in sorted(ways)] or [{}]
        return self._known[key]

    def _needed(self, module: Module, function: Function, call: ast.Call) -> set[str]:
        """The names that a call's text is made of, and those that these are made of."""
        found: set[str] = set()
        new = _names(call)
        while new:
            found |= new
            values = [value for name in new for value in module.given.get((id(function), name), ())]
            new = {name for value in values for name in _names(value)} - found
        return found

    def _may_mean(self, where: Module, caller: ast.Call, module: Module, function: Function) -> bool:
        """Whether a call by that name may be one of this function."""
        if isinstance(caller.func, ast.Name):
            return where is module or where.imported.get(function.name, ("",))[0] == module.name
        takes = _parameters(function)
        given = {word.arg for word in caller.keywords if word.arg}
        needs = set(takes[: len(takes) - len(function.args.defaults)][len(caller.args) :]) - given
        if len(caller.args) > len(takes) or needs or given - set(takes) - {arg.arg for arg in function.args.kwonlyargs}:
            return False
        receiver = caller.func.value if isinstance(caller.func, ast.Attribute) else None
        return where is module or not (isinstance(receiver, ast.Name) and receiver.id == "self")

    def _bound(self, function: Function, caller: ast.Call, where: Module, above: Bound, deep: int = DEEP) -> Bound:
        given = dict(zip(_parameters(function), caller.args, strict=False))
        given |= {word.arg: word.value for word in caller.keywords if word.arg}
        bound = {name: self.text(value, where, above, deep - 1) for name, value in given.items()}
        return _defaults(function) | bound

    def text(self, node: ast.expr, module: Module, bound: Bound, deep: int = DEEP) -> str:
        """The longest text that an expression can be."""

        def each(nodes: list[ast.expr]) -> list[str]:
            return [self.text(one, module, bound, deep) for one in nodes]

        match node:
            case ast.Constant(value=value):
                return str(value)
            case ast.Tuple(elts=parts):
                return " ".join(each(parts))
            case ast.JoinedStr(values=parts):
                return "".join(each(parts))
            case ast.FormattedValue(value=value) | ast.NamedExpr(value=value):
                return self.text(value, module, bound, deep)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return "".join(each([left, right]))
            case ast.IfExp(body=body, orelse=other):
                return max(each([body, other]), key=words)
            case ast.BoolOp(op=op, values=parts):
                first, *others = each(parts)
                sure = isinstance(op, ast.Or) and first not in ("", PLACEHOLDER)
                return first if sure else max([first, *others], key=words)
            case _ if deep:
                return self._followed(node, module, bound, deep)
        return PLACEHOLDER

    def _followed(self, node: ast.expr, module: Module, bound: Bound, deep: int) -> str:
        """What a name, an item of a table or a call stands for."""
        match node:
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(module.texts.get(name), ast.Dict):
                values = [self.text(one, module, {}, deep - 1) for one in module.texts[name].values]  # type: ignore[attr-defined]
                return max(values, key=words, default=PLACEHOLDER)
            case ast.Name(id=name):
                return self._named(name, node, module, bound, deep)
            case ast.Attribute(value=ast.Name(id=above), attr=name) if above in module.imported:
                other = self.modules.get(".".join(module.imported[above]))
                return self._constant(other, name, deep)
            case ast.Call():
                return self._returned(node, module, bound, deep)
        return PLACEHOLDER

    def _named(self, name: str, node: ast.expr, module: Module, bound: Bound, deep: int) -> str:
        function = module.around.get(id(node))
        texts = [bound[name]] if name in bound else []
        if function is not None and deep:
            others = {other: said for other, said in bound.items() if other != name}
            texts += [self.text(one, module, others, deep - 1) for one in module.given.get((id(function), name), ())]
        if texts:
            return max(texts, key=words)
        if name in module.texts:
            return self._constant(module, name, deep)
        origin, original = module.imported.get(name, ("", ""))
        return self._constant(self.modules.get(origin), original, deep)

    def _constant(self, module: Module | None, name: str, deep: int) -> str:
        value = module.texts.get(name) if module else None
        if module is None or not isinstance(value, ast.Constant | ast.JoinedStr | ast.BinOp):
            return PLACEHOLDER
        return self.text(value, module, {}, deep - 1) if deep else PLACEHOLDER

    def _returned(self, call: ast.Call, module: Module, bound: Bound, deep: int) -> str:
        """What a function of the product that returns a text may return."""
        name = last_name(call.func)
        where, found = module, module.functions[name]
        if not found and isinstance(call.func, ast.Name):
            origin, original = module.imported.get(name, ("", ""))
            where = self.modules.get(origin, module)
            found = where.functions[original]
        elif not found and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            where = self.modules.get(".".join(module.imported.get(call.func.value.id, ("", ""))), module)
            found = where.functions[name]
        texts = [PLACEHOLDER]
        for function in found:
            if isinstance(function.returns, ast.Name) and function.returns.id == "str":
                inside = self._bound(function, call, module, bound, deep)
                texts += [self.text(one, where, inside, deep - 1) for one in where.given[id(function), ""]]
        return max(texts, key=words)


def last_name(node: ast.expr) -> str:
    """`b` of `a.b` and of `b`; nothing of what has no name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.expr) -> bool:
    """Whether it is written to be read by people."""
    return isinstance(node, ast.Constant | ast.JoinedStr) and words(ast.unparse(node)) > 2


def _parameters(function: Function) -> list[str]:
    """Those that a call may give by their place."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _defaults(function: Function) -> dict[str, str]:
    """What parameters are if a call does not give them, where that is a text."""
    args = function.args
    placed = [*args.posonlyargs, *args.args]
    pairs = [*zip(placed[len(placed) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None]
    return {arg.arg: one.value for arg, one in pairs if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        for goal in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(goal, ast.Name):
                yield goal.id, node.value


def words(said: str) -> int:
    """Words are parted by spaces; signs alone are none."""
    return len([word for word in said.split() if re.search(rf"[\w{PLACEHOLDER}]", word)])
