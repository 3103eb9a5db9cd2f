"""The files under deploy/ are what their tools can read, and say what the docs promise."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from holdfast.cli.root import root

DEPLOY = Path(__file__).parents[2] / "deploy"


def words_are_ours(words: list[str]) -> None:
    """A command line of ours parses: the command and its options are there."""
    command = root.commands[words[0]]
    command.make_context(words[0], words[1:], resilient_parsing=True)
    known = {opt for param in command.params for opt in param.opts}
    assert {word for word in words if word.startswith("--")} <= known, words


def test_the_image_is_built_in_stages_and_runs_as_nobody_in_particular():
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line]
    whole = re.sub(r"\\\n", " ", "\n".join(line for line in lines if not line.startswith("#")))
    steps = [line.split(maxsplit=1) for line in whole.splitlines()]
    known = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "STOPSIGNAL",
             "HEALTHCHECK", "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {step for step, _ in steps} <= known
    assert sum(step == "FROM" for step, _ in steps) == 2
    last = steps[max(n for n, (step, _) in enumerate(steps) if step == "FROM") :]
    (user,) = (rest for step, rest in last if step == "USER")
    assert not user.startswith(("0", "root"))
    (entry,) = (json.loads(rest) for step, rest in last if step == "ENTRYPOINT")
    (command,) = (json.loads(rest) for step, rest in last if step == "CMD")
    assert entry == ["holdfast"]
    words_are_ours(command)
    assert not any(step == "RUN" and "pip" in rest for step, rest in last)


def test_the_compose_file_names_services_that_there_are():
    compose: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"postgres", "migrate", "worker"}
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        if "build" in service:
            assert (DEPLOY.parent / service["build"]["dockerfile"]).exists()
            line = service["entrypoint"][-1].partition("exec holdfast ")[2]
            words_are_ours(shlex.split(line))
    assert "healthcheck" in services["postgres"]


def test_the_manifests_have_probes_and_time_to_drain():
    documents: list[Any] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [each["kind"] for each in documents] == ["Job", "Deployment", "PodDisruptionBudget"]
    job, deployment, _ = documents
    spec = deployment["spec"]["template"]["spec"]
    (worker,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    paths = {
        name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert paths["readiness"] == {"path": "/readyz", "port": "metrics"}
    assert paths["liveness"]["path"] == paths["startup"]["path"] == "/healthz"
    assert f"0.0.0.0:{ports['metrics']}" in worker["args"]
    assert spec["terminationGracePeriodSeconds"] >= 60
    assert spec["securityContext"]["runAsNonRoot"]
    words_are_ours(worker["args"])
    words_are_ours(job["spec"]["template"]["spec"]["containers"][0]["args"])
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_a_unit_drains_restarts_for_ever_and_has_no_rights_it_does_not_need(unit):
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(unit)
    service = parser["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "always"
    assert parser["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["User"] != "root" and service["NoNewPrivileges"] == "yes"
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/holdfast")
    words_are_ours(words)
