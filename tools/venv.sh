#!/bin/sh
# venv.sh - makes the virtual environment anew from pinned requirements.
# usage: venv.sh PYTHON FOLDER REQUIREMENTS DIGITS
set -eu
python=$1 folder=$2 requirements=$3 digits=$4

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "venv: $python is $("$python" -V 2>&1); the pinned packages need Python 3.11 or later."
    echo "venv: name another one: make PYTHON=/path/to/python3.11"
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "venv: $python comes without venv; on Debian: apt-get install python3-venv"
    exit 1
fi
echo "== installing PyTorch and the test tools into $folder (this is the longest part, some minutes)"
"$python" -m venv --clear "$folder"
"$folder/bin/pip" install --disable-pip-version-check -r "$requirements"
# The package of the 5,000 digits asks for much that reading them does not need.
"$folder/bin/pip" install --disable-pip-version-check -q --no-deps "$digits"
