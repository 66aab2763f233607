#!/bin/sh
# Builds the original Horovod, the last release, as a peer of the benchmarks: bench/original.sh FOLDER
# Into a virtual environment of its own that sees the packages of `python`, PyTorch among them; with Gloo, and with MPI where
# its headers are. About ten minutes on two cores. bench/compare.py takes it as a peer where it finds FOLDER.
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
version=0.28.1
sources=$folder/sources/horovod-$version

python -m venv "$folder"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/torch.pth"
pip="$folder/bin/python -m pip --disable-pip-version-check -q"
$pip install setuptools wheel cloudpickle packaging psutil pyyaml

mkdir -p "$folder/sources"
$pip download --no-deps --no-binary horovod --no-build-isolation -d "$folder/sources" "horovod==$version"
tar -xf "$folder/sources/horovod-$version.tar.gz" -C "$folder/sources"

# The headers of PyTorch 2.13 need C++20; the release sets C++14.
sed -i 's/set(CMAKE_CXX_STANDARD 1[47])/set(CMAKE_CXX_STANDARD 20)/' \
    "$sources/CMakeLists.txt" "$sources/horovod/torch/CMakeLists.txt"

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS=-j2
if command -v mpicxx >/dev/null; then
    export HOROVOD_WITH_MPI=1
else
    export HOROVOD_WITHOUT_MPI=1
fi
cd "$sources"
nice -n 19 $pip install --no-deps --no-build-isolation .
rm -rf "$folder/sources"
"$folder/bin/python" -c 'import horovod.torch as hvd; hvd.init(); print("original: built,", "MPI," * hvd.mpi_built(), "Gloo")'
