"""Mutants: copies of the library with one small bug each, made from its syntax trees.

Every function of the library is read. A mutant changes one expression, one default or one statement in it. Nothing is
changed that no test should depend on: annotations, texts, errors, `__repr__` and the looks of charts and terminals.

Which mutants are tried depends on a hash of each one, so that an edit of the library replaces few of them.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from trust.campaign import ROOT

LIBRARY = ROOT / "src" / "manyarms"
SEED = 16
LEAST_PER_PACKAGE = 4
LINES_PER_MUTANT = 600
"""Large packages get one mutant more for every so many lines."""

LOOKS = ("experiments/method_style.py", "experiments/figure_chart.py", "decision/plots.py", "cli/terminal.py")
"""Files that say how charts and terminals look."""
TEXT_FUNCTIONS = ("__repr__", "__str__", "_repr_html_", "__rich__", "__rich_console__")
TEXT_CALLS = ("warn", "print", "echo", "cast", "TypeVar", "Option", "Argument")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
OPPOSITES = {
    left: right
    for pair in (
        ("min", "max"),
        ("argmin", "argmax"),
        ("minimum", "maximum"),
        ("any", "all"),
        ("floor", "ceil"),
        ("zeros", "ones"),
        ("rows", "columns"),
    )
    for left, right in (pair, pair[::-1])
}


@dataclass(frozen=True)
class Mutant:
    """One bug: a piece of a source file and what stands in its place.

    Attributes:
        file: The source file, relative to the package folder of the library.
        function: The function the bug is in, with its class.
        operator: The kind of bug.
        line: The number of the line where the piece starts.
        text: That line, without the spaces around it.
        before: The piece.
        after: What stands in its place.
        start: The position of the first byte of the piece in the file.
        end: The position after its last byte.
        run_lines: The lines that a test must run to notice the bug.
    """

    file: str
    function: str
    operator: str
    line: int
    text: str
    before: str
    after: str
    start: int
    end: int
    run_lines: tuple[int, ...]

    @property
    def package(self) -> str:
        """The package of the library; the modules beside the packages count as the package `.`."""
        return self.file.split("/")[0] if "/" in self.file else "."

    @property
    def key(self) -> str:
        """What names the mutant when its line has moved."""
        return f"{self.file} | {self.function} | {self.operator} | {self.text} | {self.before} -> {self.after}"

    @property
    def rank(self) -> str:
        """A random number that depends on nothing but the mutant and the seed."""
        return hashlib.sha256(f"{SEED} {self.key}".encode()).hexdigest()

    def applied(self, source: bytes) -> bytes:
        """The source with the bug."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(file: Path) -> list[Mutant]:
    """Every mutant of a source file."""
    return list(_Maker(file.relative_to(LIBRARY).as_posix(), file.read_bytes()).mutants())


@cache
def chosen_mutants() -> tuple[Mutant, ...]:
    """The mutants of the campaign, the packages in turn."""
    packages = dict[str, list[Mutant]]()
    lines = dict[str, int]()
    for file in sorted(LIBRARY.rglob("*.py")):
        name = file.relative_to(LIBRARY).as_posix()
        package = name.split("/")[0] if "/" in name else "."
        lines[package] = lines.get(package, 0) + len(file.read_bytes().splitlines())
        packages.setdefault(package, []).extend([] if name in LOOKS else mutants_of(file))
    choices = (
        _varied(mutants, LEAST_PER_PACKAGE + lines[package] // LINES_PER_MUTANT)
        for package, mutants in packages.items()
    )
    return tuple(mutant for turn in zip_longest(*choices) for mutant in turn if mutant)


def _varied(mutants: Iterable[Mutant], n: int) -> list[Mutant]:
    """At most n mutants with the lowest ranks: the operators in turn, no two on one line."""
    operators = dict[str, list[Mutant]]()
    for mutant in sorted(mutants, key=lambda mutant: mutant.rank):
        operators.setdefault(mutant.operator, []).append(mutant)
    picked = dict[tuple[str, int], Mutant]()
    for turn in zip_longest(*operators.values()):
        for mutant in turn:
            if mutant and len(picked) < n and _parses(mutant):
                picked.setdefault((mutant.file, mutant.line), mutant)
    return list(picked.values())


def _parses(mutant: Mutant) -> bool:
    try:
        ast.parse(mutant.applied((LIBRARY / mutant.file).read_bytes()))
    except SyntaxError:
        return False
    return True


class _Maker:
    """The mutants of one file, found by a walk through its functions."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        yield from self._definitions(ast.parse(self.source).body, "")

    def _definitions(self, body: list[ast.stmt], prefix: str) -> Iterator[Mutant]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._definitions(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and node.name not in TEXT_FUNCTIONS:
                yield from self._function(node, prefix + node.name)

    def _function(self, function: ast.FunctionDef, name: str) -> Iterator[Mutant]:
        body_lines = tuple(statement.lineno for statement in function.body)
        for default in (*function.args.defaults, *function.args.kw_defaults):
            if isinstance(default, ast.Constant):
                for after in _other_constants(default):
                    yield self._mutant(name, "changed default", default, after, body_lines)
        kinds = {
            argument.arg: ast.unparse(argument.annotation).split(", '")[0]
            for argument in (*function.args.args, *function.args.kwonlyargs)
            if argument.annotation
        }
        for statement in function.body:
            yield from self._walk(statement, name, kinds)

    def _walk(self, node: ast.AST, name: str, kinds: Kinds) -> Iterator[Mutant]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom | ast.ClassDef):
            return
        if isinstance(node, ast.Call) and (_called(node) in TEXT_CALLS or _called(node).endswith(("Error", "Warning"))):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node, ast.FunctionDef):
            yield from self._function(node, f"{name}.{node.name}")
            return
        for operator, piece, after in _changes(node, kinds):
            yield self._mutant(name, operator, piece, after)
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child, name, kinds)

    def _mutant(
        self, function: str, operator: str, piece: ast.expr | ast.stmt, after: str, run_lines: tuple[int, ...] = ()
    ) -> Mutant:
        start = self.starts[piece.lineno - 1] + piece.col_offset
        end = self.starts[(piece.end_lineno or piece.lineno) - 1] + (piece.end_col_offset or 0)
        text = self.lines[piece.lineno - 1].decode().strip()
        before = " ".join(self.source[start:end].decode().split())
        run_lines = run_lines or tuple(range(piece.lineno, (piece.end_lineno or piece.lineno) + 1))
        return Mutant(self.file, function, operator, piece.lineno, text, before, after, start, end, run_lines)


Change = tuple[str, ast.expr | ast.stmt, str]
Kinds = dict[str, str]
"""The annotated types of a function's arguments, without their shapes."""


def _changes(node: ast.AST, kinds: Kinds) -> Iterator[Change]:
    """The bugs that start at a node: the kind of bug, the piece it replaces and what stands there instead."""
    if isinstance(node, ast.stmt):
        yield from _changed_statements(node)
    elif isinstance(node, ast.Call):
        yield from _changed_calls(node, kinds)
    elif isinstance(node, ast.expr):
        yield from _changed_expressions(node)


def _changed_statements(node: ast.stmt) -> Iterator[Change]:
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) in TEXT_CALLS):
            yield "dropped statement", node, "pass"
    elif isinstance(node, ast.If | ast.While) and "TYPE_CHECKING" not in ast.unparse(node.test):
        if not isinstance(node.test, ast.Compare | ast.BoolOp):
            yield "negated condition", node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Continue):
        yield "break for continue", node, "break"


def _changed_calls(node: ast.Call, kinds: Kinds) -> Iterator[Change]:
    name = _called(node)
    if name in OPPOSITES:
        function = node.func
        other = ast.Name(OPPOSITES[name]) if isinstance(function, ast.Name) else None
        if isinstance(function, ast.Attribute):
            other = ast.Attribute(function.value, OPPOSITES[name])
        if other:
            yield "opposite function", function, ast.unparse(other)
    for first in range(len(node.args) - 1):
        left, right = node.args[first : first + 2]
        if _same_kind(node, left, right, kinds):
            swapped = [*node.args[:first], right, left, *node.args[first + 2 :]]
            yield "swapped arguments", node, ast.unparse(ast.Call(node.func, swapped, node.keywords))
            break
    for keyword in node.keywords:
        if keyword.arg == "axis" and isinstance(keyword.value, ast.Constant | ast.UnaryOp):
            yield "other axis", keyword.value, "1" if ast.unparse(keyword.value) == "0" else "0"


def _changed_expressions(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[operator, *others], comparators=comparators):
            flipped = ast.Compare(left, [COMPARISONS[type(operator)](), *others], comparators)
            yield "flipped comparison", node, f"({ast.unparse(flipped)})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and for or", node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            if not any(_joins(side) for side in (left, right)):
                changed = ast.BinOp(left, ARITHMETIC[type(operator)](), right)
                yield "changed arithmetic", node, f"({ast.unparse(changed)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "dropped not", node, f"({ast.unparse(operand)})"
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "dropped sign", node, f"({ast.unparse(operand)})"
        case ast.Attribute(value=value, attr="T" | "mT"):
            yield "not transposed", node, ast.unparse(value)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "swapped branches", node, f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Constant():
            for after in _other_constants(node):
                yield "changed constant", node, after
        case _:
            pass


def _other_constants(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node.value, int):
        yield str(node.value + 1)
    elif isinstance(node.value, float):
        yield repr(0.8 * node.value if node.value else 0.1)


def _joins(node: ast.expr) -> bool:
    """Whether the node looks like a text, a list or a path, where + and / join."""
    if isinstance(node, ast.JoinedStr | ast.List | ast.Tuple):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith(("path", "folder", "file"))


def _same_kind(call: ast.Call, left: ast.expr, right: ast.expr, kinds: Kinds) -> bool:
    """Whether two arguments are different names for values of one type, as far as the source shows."""
    if not (isinstance(left, ast.Name) and isinstance(right, ast.Name)) or left.id == right.id:
        return False
    annotated = kinds.get(left.id)
    if annotated and annotated == kinds.get(right.id):
        return True
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func).startswith(("np.", "math.", "linalg."))


def _called(call: ast.Call) -> str:
    """The last part of the name that is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
