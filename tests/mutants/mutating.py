"""Small changes of meaning to one source file, each of them to one line.

A mutation is found in the syntax tree and made in the text, so that the rest of the file stays as
it was. Left out is what no promise speaks of: annotations, protocols, messages, the sizes and times
that a module sets for itself, and `strict=True`, which asserts what is so.
"""

from __future__ import annotations

import ast
import io
import token
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
_ORDERED = {"cast", "getattr", "isinstance", "issubclass", "setattr"}
"""Calls that fail at once when their arguments are swapped."""
_SYMMETRIC = {"compare_digest", "max", "min", "suppress"}
"""Calls that don't care."""
_MESSAGES = {"warn", "debug", "info", "warning", "error", "exception"}
_LITERALS = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple, ast.Dict)


class Mutant(NamedTuple):
    path: str
    line: int
    old: str
    new: str
    where: str
    """The function or class it is in, with those around it."""
    span: tuple[int, int]
    """The lines that run when it does, as far as a test of it is looked for."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old.strip()} -> {self.new.strip()}"

    def applied(self, source: str) -> str:
        """The file with this change."""
        lines = source.splitlines(keepends=True)
        lines[self.line - 1] = lines[self.line - 1].replace(self.old, self.new)
        return "".join(lines)

    def compiles(self, source: str) -> bool:
        """Whether it is a program at all; a few are not."""
        try:
            compile(self.applied(source), self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All the changes we know to make, in the order of the file.

    >>> for mutant in mutants_of("a.py", "def f(a, b):\\n    return a < b and not b"):
    ...     print(mutant)
    a.py:2: return a < b and not b -> return None
    a.py:2: return a < b and not b -> return a < b and b
    a.py:2: return a < b and not b -> return a < b or not b
    a.py:2: return a < b and not b -> return a <= b and not b
    """
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found)


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.found: set[Mutant] = set()
        self._path = path
        self._lines = source.splitlines()
        self._tokens = [
            found
            for found in tokenize.generate_tokens(io.StringIO(source).readline)
            if found.type in (token.OP, token.NAME)
        ]
        self._where: list[str] = []
        self._in_function = False
        self._span = (1, len(self._lines))

    # What is around a change.

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and self._in_function:
            before, self._span = self._span, (node.lineno, node.lineno)
            super().visit(node)
            self._span = before
        else:
            super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            self._enter(node, node.body, in_function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._span = self._span, (node.lineno, node.end_lineno or node.lineno)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._enter(node, node.body, in_function=True)
        self._span = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def _enter(
        self,
        node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        body: list[ast.stmt],
        in_function: bool,
    ) -> None:
        before, self._in_function = self._in_function, in_function
        self._where.append(node.name)
        for inner in body:
            self.visit(inner)
        self._where.pop()
        self._in_function = before

    # What is left alone.

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and (self._where or not _is_size(node.value)):
            self.visit(node.value)

    # Statements.

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await | ast.Yield | ast.YieldFrom):
            self._drop(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self._where and _is_size(node.value):
            return
        # Without its first value a name or an attribute fails at once.
        is_first = any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
        if not is_first and self._where[-1:] != ["__init__"]:
            self._drop(node)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        before, self._span = self._span, (node.lineno, node.lineno)
        kind = node.type
        if isinstance(kind, ast.Tuple):
            for left_out in kind.elts:
                kept = [ast.unparse(one) for one in kind.elts if one is not left_out]
                self._replace(kind, f"({', '.join(kept)},)")
        elif kind is not None:
            self._replace(kind, "()")
        for inner in node.body:
            self.visit(inner)
        self._span = before

    # Expressions.

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            self._between(left, right, _COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if isinstance(node.op, ast.Add | ast.Sub) and not any(map(_is_sequence, sides)):
            self._between(*sides, "-" if isinstance(node.op, ast.Add) else "+")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._edit(node.lineno, node.col_offset, node.col_offset + len("not "), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _MESSAGES:
            return
        if isinstance(node.func, ast.Name) and name in _NAMES:
            self._replace(node.func, _NAMES[name])
        if name not in _ORDERED | _SYMMETRIC:
            self._swap(node.args[:2])
        self.generic_visit(node)

    # Changes.

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant | ast.UnaryOp):
            return
        if isinstance(test, ast.Compare) and isinstance(
            test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
        ):
            return  # the other comparison is the same change
        self._replace(test, f"not ({self._text(test)})")

    def _drop(self, node: ast.stmt) -> None:
        line = self._lines[node.lineno - 1].encode()
        if not line[: node.col_offset].strip():
            self._edit(node.lineno, node.col_offset, node.col_offset, "if False: ")

    def _swap(self, pair: list[ast.expr]) -> None:
        if len(pair) < 2 or any(isinstance(argument, ast.Starred) for argument in pair):
            return
        left, right = pair
        a, b = self._text(left), self._text(right)
        if left.lineno == right.end_lineno and a != b:
            end = right.end_col_offset or 0
            line = self._lines[left.lineno - 1].encode()
            middle = line[left.end_col_offset : right.col_offset].decode()
            self._edit(left.lineno, left.col_offset, end, b + middle + a)

    def _between(self, left: ast.expr, right: ast.expr, new: str) -> None:
        """Replace the operator that stands between two operands."""
        first = (left.end_lineno or 0, left.end_col_offset or 0)
        last = (right.lineno, right.col_offset)
        operator = [
            found
            for found in self._tokens
            if first <= self._place(found.start) < last and found.string not in "()"
        ]
        if operator and operator[0].start[0] == operator[-1].end[0]:
            line, start = self._place(operator[0].start)
            self._edit(line, start, self._place(operator[-1].end)[1], new)

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        if node.lineno == node.end_lineno:
            self._edit(node.lineno, node.col_offset, node.end_col_offset or 0, new)

    def _edit(self, number: int, start: int, end: int, new: str) -> None:
        """Change a part of a line. Syntax trees count in bytes."""
        old = self._lines[number - 1]
        changed = b"".join((old.encode()[:start], new.encode(), old.encode()[end:])).decode()
        span = (self._span[0], max(self._span[1], number))
        where = ".".join(self._where)
        self.found.add(Mutant(self._path, number, old, changed, where, span))

    def _text(self, node: ast.expr) -> str:
        if node.lineno != node.end_lineno:
            return ""
        line = self._lines[node.lineno - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode()

    def _place(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        return line, len(self._lines[line - 1][:column].encode())


def _is_size(value: ast.expr) -> bool:
    """Whether a value is made of numbers alone, as the sizes and times of a module are."""
    kinds: Iterator[ast.AST] = ast.walk(value)
    return all(
        isinstance(
            node,
            ast.Constant
            | ast.Name
            | ast.Load
            | ast.BinOp
            | ast.UnaryOp
            | ast.operator
            | ast.unaryop,
        )
        for node in kinds
    )


def _is_sequence(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, _LITERALS)
