"""Commits beside the work of others: with a real git, in repositories that are in use."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import BadInput, HoldfastError
from holdfast.workspace import git as ours
from holdfast.workspace.git import commit_workspace, step_message

if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    """No settings of the machine's, and nobody who commits."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))]:
        monkeypatch.delenv(name)


def git(place: Path, *words: str, check: bool = True) -> str:
    ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", place, *ada, *words], capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path):
    """A repository in use: a commit, a folder of ours, and a user's work around it."""
    place = tmp_path / "repo"
    (place / "ours").mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    for name in ("code.py", "ours/plan.md", "ours/old.txt"):
        (place / name).write_text(f"{name}\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    return place


def names(place: Path, commit: str) -> set[str]:
    return set(git(place, "show", "--name-only", "--format=", commit).split())


def test_what_changed_in_the_folder_is_committed_and_nothing_else(repo):
    (repo / "ours/plan.md").write_text("changed\n")
    (repo / "ours/new.txt").write_text("new\n")
    (repo / "ours/old.txt").unlink()
    (repo / "ours/noise.log").write_text("ignored\n")
    (repo / "code.py").write_text("half done\n")
    made = commit_workspace(repo / "ours", "nightly: fetch\n\nHoldfast-Key: k")
    assert made == git(repo, "rev-parse", "main")
    assert names(repo, made) == {"ours/plan.md", "ours/new.txt", "ours/old.txt"}
    assert git(repo, "show", "-s", "--format=%B", made) == "nightly: fetch\n\nHoldfast-Key: k"
    assert git(repo, "status", "--porcelain") == "M code.py"  # stripped: changed, and not staged
    assert (repo / "code.py").read_text() == "half done\n"


def test_the_same_files_make_no_second_commit(repo):
    (repo / "ours/plan.md").write_text("changed\n")
    assert commit_workspace(repo / "ours", "one") is not None
    before = git(repo, "rev-parse", "HEAD")
    assert commit_workspace(repo / "ours", "two") is None
    assert git(repo, "rev-parse", "HEAD") == before


def test_what_the_user_has_staged_stays_staged_and_uncommitted(repo):
    (repo / "code.py").write_text("staged\n")
    (repo / "ours/plan.md").write_text("staged plan\n")
    git(repo, "add", "code.py", "ours/plan.md")
    (repo / "code.py").write_text("and changed once more\n")
    (repo / "ours/plan.md").write_text("the plan as it is\n")
    staged = git(repo, "ls-files", "--stage")
    made = commit_workspace(repo / "ours", "ours")
    assert names(repo, made) == {"ours/plan.md"}
    assert git(repo, "show", f"{made}:ours/plan.md") == "the plan as it is"
    assert git(repo, "ls-files", "--stage") == staged
    assert git(repo, "show", f"{made}:code.py") == "code.py"
    assert (repo / "code.py").read_text() == "and changed once more\n"


def test_only_the_paths_that_are_given_are_committed(repo):
    for name in ("a.txt", "b.txt", "*.txt", "c.log"):
        (repo / "ours" / name).write_text(name)
    (repo / "ours/old.txt").unlink()
    paths = ["a.txt", "*.txt", "old.txt", "c.log", "was never there"]
    made = commit_workspace(repo / "ours", "some", paths)
    assert names(repo, made) == {"ours/a.txt", "ours/*.txt", "ours/old.txt"}
    assert "b.txt" in git(repo, "status", "--porcelain")
    assert commit_workspace(repo / "ours", "none", []) is None


@pytest.mark.parametrize("path", ["../code.py", "/etc/passwd", "x/../../code.py"])
def test_a_path_outside_of_the_folder_is_refused(repo, path):
    (repo / "code.py").write_text("changed\n")
    with pytest.raises(BadInput, match="only what is may be committed"):
        commit_workspace(repo / "ours", "sneaky", [path])
    assert git(repo, "log", "--format=%s") == "first"


def test_the_author_is_the_user_where_git_knows_one_and_us_where_it_does_not(repo):
    (repo / "ours/a").write_text("1")
    made = commit_workspace(repo / "ours", "one")
    who = ("show", "-s", "--format=%an <%ae> %cn")
    assert git(repo, *who, made) == "Holdfast <holdfast@localhost> Holdfast"
    subprocess.run(["git", "-C", repo, "config", "user.name", "Bob"], check=True)
    subprocess.run(["git", "-C", repo, "config", "user.email", "bob@example.org"], check=True)
    (repo / "ours/a").write_text("2")
    made = commit_workspace(repo / "ours", "two")
    assert git(repo, *who, made) == "Bob <bob@example.org> Bob"


def test_a_detached_head_moves_and_its_branch_does_not(repo):
    git(repo, "checkout", "-q", "--detach")
    before = git(repo, "rev-parse", "main")
    (repo / "ours/a").write_text("1")
    made = commit_workspace(repo / "ours", "detached")
    assert git(repo, "rev-parse", "HEAD") == made
    assert git(repo, "rev-parse", "main") == before
    assert git(repo, "status", "--porcelain") == ""


def test_the_first_commit_of_a_repository_leaves_what_was_staged(tmp_path):
    place = tmp_path / "fresh"
    (place / "ours").mkdir(parents=True)
    git(place, "init", "-q")
    assert commit_workspace(place / "ours", "nothing yet") is None
    (place / "theirs").write_text("1")
    git(place, "add", "theirs")
    (place / "ours/a").write_text("1")
    made = commit_workspace(place / "ours", "first")
    assert names(place, made) == {"ours/a"}
    assert git(place, "status", "--porcelain") == "A  theirs"


def test_no_hook_is_run(repo):
    for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
        path = repo / ".git/hooks" / hook
        path.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        path.chmod(0o755)
    (repo / "ours/a").write_text("1")
    assert commit_workspace(repo / "ours", "quietly") is not None
    assert not list(repo.rglob("ran"))


def conflicting(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "code.py").write_text("other\n")
    git(repo, "commit", "-q", "-a", "-m", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "code.py").write_text("main\n")
    git(repo, "commit", "-q", "-a", "-m", "main")


@pytest.mark.parametrize("what", ["merge", "rebase", "cherry-pick"])
def test_in_the_middle_of_something_it_refuses_and_changes_nothing(repo, what):
    conflicting(repo)
    git(repo, what, "other", check=False)
    before = git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain")
    (repo / "ours/plan.md").write_text("changed\n")
    with pytest.raises(BadInput, match=f"in the middle of a {what}"):
        commit_workspace(repo / "ours", "ours")
    (repo / "ours/plan.md").write_text("ours/plan.md\n")
    assert (git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain")) == before


def test_unresolved_conflicts_are_refused(repo):
    (repo / "code.py").write_text("stashed\n")
    git(repo, "stash")
    (repo / "code.py").write_text("main\n")
    git(repo, "commit", "-q", "-a", "-m", "main")
    git(repo, "stash", "pop", check=False)
    with pytest.raises(BadInput, match="conflicts that are not resolved"):
        commit_workspace(repo / "ours", "ours")


def test_without_a_repository_it_says_so_and_makes_one_only_if_asked(tmp_path):
    (tmp_path / "a").write_text("1")
    with pytest.raises(BadInput, match="in no git repository"):
        commit_workspace(tmp_path, "ours")
    assert not (tmp_path / ".git").exists()
    assert commit_workspace(tmp_path, "ours", init=True) is not None
    assert git(tmp_path, "status", "--porcelain") == ""


def test_a_commit_made_meanwhile_is_not_lost(repo, monkeypatch):
    (repo / "ours/a").write_text("1")
    index, others = ours._bring_up_to_date, ["theirs"]

    def slowly(*args):
        if others:
            git(repo, "commit", "-q", "--allow-empty", "-m", others.pop())
        index(*args)

    monkeypatch.setattr(ours, "_bring_up_to_date", slowly)
    made = commit_workspace(repo / "ours", "ours")
    assert git(repo, "log", "--format=%s", made).split() == ["ours", "theirs", "first"]
    assert git(repo, "status", "--porcelain") == ""


def test_many_that_commit_at_once_all_do(repo):
    def work(worker: int) -> None:
        for number in range(4):
            name = f"{worker}-{number}"
            (repo / name).write_text(name)
            commit_workspace(repo, name, [name])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    subjects = git(repo, "log", "--format=%s").splitlines()
    assert {f"{worker}-{number}" for worker in range(4) for number in range(4)} <= {*subjects}


def test_a_crash_before_the_branch_moves_is_mended_by_the_next_commit(repo, monkeypatch):
    (repo / "ours/a").write_text("1")
    run = ours._Git.run

    def die(self, *words, given=b""):
        if words[0] == "update-ref":
            raise KeyboardInterrupt
        return run(self, *words, given=given)

    monkeypatch.setattr(ours._Git, "run", die)
    with pytest.raises(KeyboardInterrupt):
        commit_workspace(repo / "ours", "ours")
    monkeypatch.undo()
    assert git(repo, "log", "--format=%s") == "first"
    made = commit_workspace(repo / "ours", "ours")
    assert names(repo, made) == {"ours/a"}
    assert git(repo, "status", "--porcelain") == ""


def test_a_repository_that_somebody_points_to_is_not_mistaken_for_ours(repo, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    (repo / "ours/a").write_text("1")
    made = commit_workspace(repo / "ours", "ours")
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git(repo, "rev-parse", "HEAD") == made


def test_names_that_are_no_text_are_committed(repo):
    name = b"caf\xe9 \n 1"
    with open(os.fsencode(repo / "ours") + b"/" + name, "w") as file:
        file.write("1")
    assert commit_workspace(repo / "ours", "odd") is not None
    assert git(repo, "status", "--porcelain") == ""


def test_without_git_it_says_what_is_missing(repo, monkeypatch):
    monkeypatch.setenv("PATH", str(repo))
    with pytest.raises(BadInput, match="git is not installed"):
        commit_workspace(repo / "ours", "ours")


def test_what_git_complains_of_is_told(repo):
    (repo / "ours/a").write_text("1")
    (repo / ".git/index.lock").touch()
    with pytest.raises(HoldfastError, match=r"git update-index failed: .*index\.lock"):
        commit_workspace(repo / "ours", "ours")
    assert git(repo, "log", "--format=%s") == "first"


def test_a_message_names_the_step(repo):
    (repo / "ours/a").write_text("1")
    made = commit_workspace(repo / "ours", step_message("nightly", "fetch", "1", "nightly:1:f:9"))
    trailers = git(repo, "show", "-s", "--format=%(trailers:only,unfold)", made)
    assert trailers.splitlines() == [
        "Holdfast-Task: nightly",
        "Holdfast-Path: 1",
        "Holdfast-Key: nightly:1:f:9",
    ]
