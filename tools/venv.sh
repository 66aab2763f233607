#!/bin/sh
# venv.sh - makes the virtual environment from pinned requirements, in three steps: anew with what builds the wheel,
# what the demo needs, and the rest.
# usage: venv.sh make PYTHON FOLDER REQUIREMENTS
#        venv.sh torch FOLDER REQUIREMENTS
#        venv.sh fill FOLDER REQUIREMENTS DIGITS MPI
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1
step=$1
shift

if [ "$step" = make ]; then
    python=$1 folder=$2 requirements=$3
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "venv: $python is $("$python" -V 2>&1); the pinned packages need Python 3.11 or later."
        echo "venv: name another one: make PYTHON=/path/to/python3.11"
        exit 1
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "venv: $python comes without venv; on Debian: apt-get install python3-venv"
        exit 1
    fi
    "$python" -m venv --clear "$folder"
    "$folder/bin/pip" install -q $(grep -E '^(scikit_build_core|packaging|pathspec|setuptools)==' "$requirements")
    exit
fi

folder=$1 requirements=$2
if [ "$step" = torch ]; then
    echo "== installing PyTorch into $folder (the longest part, some minutes where the network is slow)"
    "$folder/bin/pip" install --no-compile --constraint "$requirements" torch numpy cloudpickle matplotlib
    # Programs import a tenth of all these files; those are compiled here, once, and not by each rank.
    "$folder/bin/python" -c "import matplotlib.pyplot, torch._dynamo"
    exit
fi

digits=$3 mpi=$4
echo "== installing what the examples and tests need"
"$folder/bin/pip" install -q -r "$requirements"
# The package of the 5,000 digits asks for much that reading them does not need.
"$folder/bin/pip" install -q --no-deps "$digits"
# An MPI with the standard interface of MPI 5. Apart, since mpi4py prefers one that lies beside it.
"$folder/bin/pip" install -q --prefix "$folder/mpi5" "$mpi"
