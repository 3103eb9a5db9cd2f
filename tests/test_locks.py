"""How locks are held: an interrupt (Ctrl-C) in the wrong place leaves one locked for ever.

Where a loop goes back Python looks for signals. Since 3.12, if it goes back on a condition, that
jump lies outside of the `with` around the loop, as far as exceptions are concerned
(python/cpython#130279): what a signal handler raises there leaves the block, and nobody unlocks.
So there is none under a lock of ours but in a function that is called there, whose frame is its
own. A plain `for` does no harm, nor does a generator expression, which is such a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

SOURCE = Path(__file__).parents[1] / "src/holdfast"
KINDS = {"Lock", "RLock", "Condition"}
APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)

TREES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def name_of(node: ast.AST) -> str:
    """Of `self._lock`, `_lock` or `threading.Lock` the last part."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def locks_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        if name_of(getattr(node.value, "func", node)) in KINDS:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from map(name_of, targets)


def loops_in(node: ast.AST) -> Iterator[int]:
    """The lines of the loops in a statement that go back on a condition."""
    if isinstance(node, APART):
        return
    if goes_back_on_a_condition(node):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from loops_in(child)


def goes_back_on_a_condition(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    if isinstance(node, COMPREHENSIONS):
        return any(part.ifs for part in node.generators)
    if isinstance(node, ast.For):
        plain = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete)
        return not isinstance(node.body[-1], plain) or ast.Continue in map(type, ast.walk(node))
    return isinstance(node, ast.While)


def loops_under_locks(tree: ast.AST, locks: set[str]) -> Iterator[int]:
    ours = set(locks_in(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.With):
            continue
        if any(is_lock(item.context_expr, ours, locks) for item in node.items):
            for part in node.body:
                yield from loops_in(part)


def is_lock(node: ast.expr, ours: set[str], locks: set[str]) -> bool:
    """By its name; another object's is one of any module."""
    is_own = isinstance(node, ast.Name) or name_of(getattr(node, "value", node)) == "self"
    return name_of(node) in (ours if is_own else locks)


def test_no_loop_under_a_lock_goes_back_on_a_condition():
    locks = {name for tree in TREES.values() for name in locks_in(tree)}
    assert {"_lock", "writing", "syncing", "turn"} <= locks
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path, tree in TREES.items()
        for line in loops_under_locks(tree, locks)
    ]
    assert found == []


def test_no_lock_is_taken_but_by_with():
    """An interrupt between `acquire` and the `try` after it would leave it locked."""
    bells = "stores/groups.py"  # of which each is rung by another thread, and protects nothing
    locks = {name for tree in TREES.values() for name in locks_in(tree)}
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "acquire"
        and name_of(node.value) in locks
        and path != SOURCE / bells
    ]
    assert found == []


def test_such_a_loop_is_found_wherever_it_is():
    code = """
lock = threading.Lock()
with lock, other:
    if x:
        while y: z()
    with other:
        a = [b for b in c if b]
    d = any(e for e in f if e) or [e for e in f]
    def g():
        while h: i()
    for j in k:
        if j: l()
    for m in n: o()
for p in q:
    with lock: r()
    if p: s()
"""
    tree = ast.parse(code)
    assert sorted(loops_under_locks(tree, set(locks_in(tree)))) == [5, 7, 11]
