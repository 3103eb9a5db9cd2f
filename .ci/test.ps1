# The twin of `make test` for Windows, which has no make: the same environment, the same pins.
$ErrorActionPreference = "Stop"
Set-Location (Join-Path $PSScriptRoot "..")
if (-not (Test-Path .venv)) { python -m venv .venv }
$py = ".venv\Scripts\python.exe"
& $py -m pip install -qq --require-hashes -r requirements/run.txt
& $py -m pip install -qq pytest pytest-timeout pytest-xdist hypothesis hatchling editables
& $py -m pip install -qq --no-deps --no-build-isolation -e .
& $py -m pytest -n 3 tests/codec tests/core tests/stores/test_system.py `
  tests/stores/test_sqlite.py @args
exit $LASTEXITCODE
