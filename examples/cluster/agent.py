"""The agent: looks something up, which fails at first, asks whether to publish it, and does so.

Nothing in it knows of an engine.
"""

import os
from pathlib import Path

from holdfast import Retry, ask, current, gather, step, task, tool

REPORT = "report-1"


@step(retry=Retry(attempts=5, delay_s=0.5))
def look_up(topic: str, source: str) -> str:
    """Ask a source. The harbour does not answer the first time."""
    if source == "harbour" and current().attempt == 1:
        raise ConnectionError("the harbour does not answer")
    return f"{topic}, says the {source}"


@tool(in_doubt="retry")  # the same file, written twice, is the same file
def publish(name: str, text: str) -> str:
    """Put a report where everybody finds it."""
    file = Path(os.environ.get("CLUSTER_FOLDER", "."), f"{name}.md")
    file.write_text(text, encoding="utf-8")
    return file.name


@task
def write_report(topic: str) -> str:
    """A report on a topic, published if a person says so."""
    found = gather(
        lambda: look_up(topic, "almanac"),
        lambda: look_up(topic, "harbour"),
        lambda: look_up(topic, "library"),
    )
    text = "\n".join(found)
    if not ask(f"Publish a report on {topic} from {len(found)} sources?", bool, id="publish"):
        return "kept back"
    return f"published as {publish(current().task_id, text)}"
