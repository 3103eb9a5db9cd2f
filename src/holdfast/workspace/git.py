"""Commit a folder to the git repository it stands in, without touching what is not ours.

People work in that repository too: they have a branch, changes they have staged, and changes they
have not. So a commit is made beside them. It is put together in an index of its own, from the
branch's last commit and the files in the folder; in the user's index only those files are brought
up to date that the user has not staged himself, and no file is ever written. In a crash between
two of these, the files of the commit are staged and not committed, and the next commit has them.

Hooks are not run and commits are not signed: this is bookkeeping, and nobody sits at the keyboard.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import BadInput, HoldfastError
from holdfast.stores import system

__all__ = [
    "commit_workspace",
    "step_message",
]

_ATTEMPTS = 5
_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "BISECT_LOG": "bisect",
}
"""The files that git leaves in its folder while it is in the middle of something."""

# In a hook, or a program that one starts, these point to another repository.
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE"),
)


def commit_workspace(
    folder: str | os.PathLike[str],
    message: str,
    paths: Iterable[str | os.PathLike[str]] | None = None,
    *,
    init: bool = False,
) -> str | None:
    """Commit what changed in a folder, or only at some paths in it; None if nothing did.

    New, changed and removed files are committed, those that git ignores are not, nor anything
    outside of the folder. Returns the commit. With `init` a repository is made if there is none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "report.md").write_text("all is well")
    ...     made = commit_workspace(folder, "nightly: report", init=True)
    ...     again = commit_workspace(folder, "nightly: report")
    >>> len(made), again
    (40, None)
    """
    place = Path(folder)
    if not place.is_dir():
        raise BadInput(f"{place} is no folder, so nothing in it can be committed")
    chosen = None if paths is None else [os.fspath(path) for path in paths]
    git = _repository(place, init)
    with _turn(git.dir):
        for _ in range(_ATTEMPTS):
            git.must_be_at_rest()
            with suppress(_Moved):
                return _commit(git, message, chosen)
    raise HoldfastError(
        f"{place}: the branch moved {_ATTEMPTS} times while a commit for it was being made. "
        f"Nothing was committed: try again when the others are done"
    )


def step_message(task: str, name: str, path: str, key: str) -> str:
    """The message of the commit after a step: which step of which task, by its path and its key.

    >>> print(step_message("nightly", "fetch", "1", "nightly:1:fetch:99a8"))
    nightly: fetch
    <BLANKLINE>
    Holdfast-Task: nightly
    Holdfast-Path: 1
    Holdfast-Key: nightly:1:fetch:99a8
    """
    trailers = {"Holdfast-Task": task, "Holdfast-Path": path, "Holdfast-Key": key}
    lines = [f"{name}: {value}" for name, value in trailers.items() if value]
    return f"{task}: {name}\n\n" + "\n".join(lines)


class _Moved(Exception):
    """Somebody else committed meanwhile."""


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One of us at a time: several agents that commit at once would drive each other off."""
    with open(folder / "holdfast.lock", "ab") as lock:
        system.lock(lock.fileno())
        yield


class _Git:
    """The git of one folder, called without a shell, hooks or questions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE}
        self.env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"}
        self.dir = Path()
        self.root = ""
        """The repository's top, from where git names paths."""

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run git, whatever comes of it."""
        options = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
        try:
            return subprocess.run(
                ["git", "-C", str(self.folder), *options, *words],
                input=given,
                env=self.env,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            raise BadInput(
                "git is not installed (or not on the PATH), and a commit was asked for: install "
                "it, or leave --git out"
            ) from None

    def __call__(self, *words: str, given: bytes = b"") -> bytes:
        """The output of git, or its complaint."""
        done = self.run(*words, given=given)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise HoldfastError(f"{self.folder}: git {words[0]} failed: {said}")
        return done.stdout

    def find(self, *words: str) -> str:
        """One word that git prints, or '' if it has none to tell."""
        done = self.run(*words)
        return "" if done.returncode else done.stdout.decode(errors="surrogateescape").rstrip("\n")

    def must_be_at_rest(self) -> None:
        """Refuse to commit in the middle of something that only its user can finish."""
        for name, what in _UNDER_WAY.items():
            if (self.dir / name).exists():
                raise BadInput(
                    f"{self.folder}: its git repository is in the middle of a {what}, and a commit "
                    f"now would become part of it: finish or abort the {what} first"
                )
        if self("diff-files", "--name-only", "--diff-filter=U"):
            raise BadInput(
                f"{self.folder}: its git repository has conflicts that are not resolved: resolve "
                f"them first (git status shows them)"
            )

    @contextmanager
    def own_index(self) -> Iterator[_Git]:
        """The same git with an index of its own, which begins as the last commit."""
        with tempfile.TemporaryDirectory(prefix="holdfast-index-") as scratch:
            index = Path(scratch, "index")
            users = self.dir / "index"
            if users.exists():  # for what it knows of unchanged files, which need not be read then
                shutil.copy2(users, index)
            other = _Git(self.folder)
            other.dir = self.dir
            other.env["GIT_INDEX_FILE"] = str(index)
            yield other


def _repository(folder: Path, init: bool) -> _Git:
    git = _Git(folder)
    found = git.run("rev-parse", "--absolute-git-dir", "--is-inside-work-tree")
    if found.returncode and init:
        git("init", "--quiet")
        found = git.run("rev-parse", "--absolute-git-dir", "--is-inside-work-tree")
    said = found.stderr.decode(errors="replace").strip()
    if found.returncode and "not a git repository" not in said:
        raise BadInput(f"{folder}: git can't be used there: {said}")
    if found.returncode:
        raise BadInput(
            f"{folder} is in no git repository: make one (git init, or --git-init), or leave "
            f"--git out"
        )
    where, inside = found.stdout.decode(errors="surrogateescape").rstrip("\n").rsplit("\n", 1)
    if inside != "true":
        raise BadInput(f"{folder} is inside of git's own folder, or of a bare repository")
    git.dir = Path(where)
    git.root = git.find("rev-parse", "--show-toplevel")
    return git


def _commit(git: _Git, message: str, paths: Sequence[str] | None) -> str | None:
    head = git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    with git.own_index() as own:
        own("read-tree", "--reset", "HEAD") if head else own("read-tree", "--empty")
        if chosen := _chosen(own, paths):
            own("add", "--all", "--", *chosen)
        tree = own("write-tree").decode().strip()
    before = git("rev-parse", f"{head}^{{tree}}").decode().strip() if head else ""
    if tree == before or (not head and not git("ls-tree", tree)):
        return None
    parents = ("-p", head) if head else ()
    made = _signed_by(git)("commit-tree", tree, *parents, given=message.encode()).decode().strip()
    _bring_up_to_date(git, head, made)
    subject = message.partition("\n")[0]
    moved = git.run("update-ref", "-m", f"holdfast: {subject}", "HEAD", made, head)
    if moved.returncode == 0:
        return made
    if git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") != head:
        raise _Moved
    said = moved.stderr.decode(errors="replace").strip()
    raise HoldfastError(f"{git.folder}: git update-ref failed, so nothing was committed: {said}")


def _chosen(git: _Git, paths: Sequence[str] | None) -> Sequence[str]:
    """The paths that git can add: in the folder, there or once there, and not ignored."""
    if paths is None:
        return (".",)
    root = git.folder.resolve()
    for path in paths:
        where = Path(os.path.normpath(root / path))
        if not where.is_relative_to(root):
            raise BadInput(f"{path} is not in {git.folder}, and only what is may be committed")
    known = [
        path
        for path in paths
        if os.path.lexists(git.folder / path) or git("ls-files", "-z", "--", path)
    ]
    ignored = _ignored(git, known)
    return [path for path in known if path not in ignored]


def _ignored(git: _Git, paths: Sequence[str]) -> set[str]:
    named = {os.fsencode(os.path.join(".", path)): path for path in paths}
    asking = _Git(git.folder)
    asking.env = {k: v for k, v in git.env.items() if k != "GIT_LITERAL_PATHSPECS"}  # it knows none
    done = asking.run("check-ignore", "-z", "--stdin", given=b"".join(n + b"\0" for n in named))
    return {named[name] for name in done.stdout.split(b"\0") if name in named}


def _signed_by(git: _Git) -> _Git:
    """The same git, which knows whom to name where nobody told it."""
    other = _Git(git.folder)
    for part, ours in (("name", "Holdfast"), ("email", "holdfast@localhost")):
        if not git.find("config", f"user.{part}"):
            for role in ("AUTHOR", "COMMITTER"):
                other.env.setdefault(f"GIT_{role}_{part.upper()}", ours)
    return other


def _bring_up_to_date(git: _Git, head: str, made: str) -> None:
    """Let the user's index know what was committed, apart from what he has staged himself.

    Otherwise it would seem to take the commit back. It comes before the branch moves: what is
    staged twice does no harm.
    """
    trees = (head, made) if head else (git("mktree").decode().strip(), made)
    if head:
        staged = set(_differing(git("diff-index", "--cached", "-z", "--raw", head)))
    else:
        staged = set(git("-C", git.root, "ls-files", "-z").split(b"\0"))
    lines = [
        b"%b %b\t%b" % (mode, digest, path)
        for path, (mode, digest) in _differing(
            git("diff-tree", "-r", "-z", "--raw", *trees)
        ).items()
        if path not in staged
    ]
    if lines:
        git("update-index", "-z", "--index-info", given=b"\0".join(lines) + b"\0")


def _differing(raw: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Of a `--raw -z` diff: the mode and the digest that each path has after it."""
    words = raw.split(b"\0")[:-1]
    found = {}
    for about, path in zip(words[::2], words[1::2], strict=True):
        _, mode, _, digest, _ = about.split(b" ")
        found[path] = (mode if mode.strip(b"0") else b"0", digest)
    return found
