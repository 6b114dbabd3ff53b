#!/usr/bin/env bash
# Install a wheel into a fresh environment, without extras, and run the README's examples there: check_wheel.sh WHEEL [PYTHON]
# TORCH=torch==2.13.0 names the torch to install first, CONSTRAINTS=FILE the versions of all others:
# `python scripts/lowest.py > FILE` writes the lowest ones.
set -euo pipefail
wheel=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../README.md")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"${2:-python3}" -m venv "$folder/venv"
if [[ -n ${TORCH:-} ]]; then "$folder/venv/bin/pip" install --quiet "$TORCH"; fi
"$folder/venv/bin/pip" install --quiet ${CONSTRAINTS:+-c "$(realpath "$CONSTRAINTS")"} "$wheel"
"$folder/venv/bin/pip" list 2> /dev/null | grep -iE '^(torch|numpy|pandas|scikit-learn|scipy) '
cd "$folder"
cat > examples.py <<'PY'
import re, subprocess, sys
from pathlib import Path

text = Path(sys.argv[1]).read_text(encoding="utf-8")
for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
    print(f"check_wheel: example {number + 1}", flush=True)
    exec(block, {})
import subtractive

assert Path(sys.prefix) in Path(subtractive.__file__).parents, subtractive.__file__
subtractive.data.penguins().to_csv("penguins.csv", index=False)
for command in re.findall(r"^subtractive .+$", text, re.MULTILINE):
    print(f"check_wheel: {command}", flush=True)
    subprocess.run(f"{sys.prefix}/bin/{command}", shell=True, check=True, stdout=subprocess.DEVNULL)
PY
OMP_NUM_THREADS=1 venv/bin/python examples.py "$readme"
echo "check_wheel: the README's examples run from $(basename "$wheel")"
