"""`make dist`: the wheel and the sdist, checked, with their sums and a bill of materials.

    python .ci/dist.py PYTHON FOLDER

Both are built from what git tracks, by the pinned hatchling, without a network. `SHA256SUMS` has a line for
each; `sbom.json` (CycloneDX) names what an install brings, with the hashes that `requirements/run.txt` pins.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 2_000_000
_BUILD = (
    "import sys, hatchling.build as b; "
    "print(b.build_wheel(sys.argv[1])); print(b.build_sdist(sys.argv[1]))"
)


def build(python: str, folder: Path) -> list[Path]:
    """Build both into a folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("holdfast-*"):
        old.unlink()
    done = subprocess.run(
        [python, "-c", _BUILD, str(folder.resolve())],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [folder / name for name in done.stdout.split()[-2:]]


def names_in(path: Path) -> list[str]:
    """The files in a wheel or an sdist, without the folder that an sdist has around them."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as packed:
            return sorted(packed.namelist())
    with tarfile.open(path) as packed:
        return sorted(each.name.partition("/")[2] for each in packed.getmembers() if each.isfile())


def bill(version: str) -> dict[str, object]:
    """What an install of the core brings, as CycloneDX."""
    text = (ROOT / "requirements" / "run.txt").read_text()
    found = re.findall(
        r"^([\w.-]+)==([\w.]+)[^\n\\]*((?:\\\n\s+--hash=sha256:\w+\s*)+)", text, re.M
    )
    components = [
        {
            "type": "library",
            "name": name,
            "version": pinned,
            "purl": f"pkg:pypi/{name}@{pinned}",
            "hashes": [
                {"alg": "SHA-256", "content": each} for each in re.findall(r"sha256:(\w+)", hashes)
            ],
        }
        for name, pinned, hashes in found
    ]
    about = {"type": "library", "name": "holdfast", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**about, "purl": f"pkg:pypi/holdfast@{version}"}},
        "components": components,
    }


def main() -> None:
    python, folder = sys.argv[1], Path(sys.argv[2])
    made = build(python, folder)
    for path in made:
        size = path.stat().st_size
        if size > MOST_BYTES:
            sys.exit(f"{path.name} has {size:,} bytes, more than {MOST_BYTES:,}")
        print(f"{path.name}: {size:,} bytes, {len(names_in(path))} files")
    subprocess.run([python, "-m", "twine", "check", "--strict", *map(str, made)], check=True)
    version = made[0].name.split("-")[1]
    (folder / "sbom.json").write_text(json.dumps(bill(version), indent=2) + "\n")
    sums = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (folder / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
