#!/bin/sh
# venv.sh - makes the virtual environment anew from pinned requirements.
# usage: venv.sh PYTHON FOLDER REQUIREMENTS DIGITS MPI
set -eu
python=$1 folder=$2 requirements=$3 digits=$4 mpi=$5

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "venv: $python is $("$python" -V 2>&1); the pinned packages need Python 3.11 or later."
    echo "venv: name another one: make PYTHON=/path/to/python3.11"
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "venv: $python comes without venv; on Debian: apt-get install python3-venv"
    exit 1
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "== installing PyTorch into $folder (the longest part, some minutes where the network is slow)"
"$python" -m venv --clear "$folder"
"$folder/bin/pip" install "$(grep '^torch==' "$requirements")"
echo "== installing what the examples and tests need"
"$folder/bin/pip" install -q -r "$requirements"
# The package of the 5,000 digits asks for much that reading them does not need.
"$folder/bin/pip" install -q --no-deps "$digits"
# An MPI with the standard interface of MPI 5. Apart, since mpi4py prefers one that lies beside it.
"$folder/bin/pip" install -q --prefix "$folder/mpi5" "$mpi"
