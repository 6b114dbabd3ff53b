#!/usr/bin/env bash
# Unpack a source archive and run a part of its own tests with a given Python: check_sdist.sh ARCHIVE PYTHON
set -euo pipefail
archive=$(realpath "$1")
python=$(realpath -s "$2")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
tar -xzf "$archive" -C "$folder" --strip-components 1
cd "$folder"
for file in docs/conf.py docs/index.md docs/examples/a_ring.py studies/__main__.py Makefile CITATION.cff; do
    [[ -e $file ]] || { echo "check_sdist: the archive lacks $file" >&2; exit 1; }
done
PYTHONPATH=. OMP_NUM_THREADS=1 "$python" -m pytest -q -p no:cacheprovider tests/regions tests/test_architecture.py tests/inputs/test_gaussian.py
echo "check_sdist: $(basename "$archive") tests itself"
