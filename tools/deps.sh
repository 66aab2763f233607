#!/bin/sh
# deps.sh - installs the Debian packages that building and testing need. Quick when all are there; without root it
# only says which command to run. `deps.sh venv` is for making a virtual environment, `deps.sh build` for building the
# wheel, `deps.sh peers` for the libraries that benchmarks compare with, `deps.sh browser` for Chromium, `deps.sh spark`
# for Java, `deps.sh containers` for podman, and `deps.sh wheels` for the tests of wheels on other systems.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-all}
venv="python3 python3-venv"
build="$venv gcc libc6-dev cmake ninja-build patch libpython3-dev libuv1-dev libsodium-dev libxxhash-dev libyaml-dev"
packages="$build g++ libcmocka-dev clang-format clang-tidy spin openssh-client iproute2"
# Tests of several hosts and of metrics need them, and are skipped without. Where systemd would start them that is the
# user's choice.
test -d /run/systemd/system || packages="$packages openssh-server slurmd slurmctld slurm-client munge prometheus"
mpi="openmpi-bin libopenmpi-dev mpich libmpich-dev"
packages="$packages $mpi" # tests of the back end mpi, whose own build needs no headers
test "$kind" != peers || packages="$mpi iperf3 qperf"
test "$kind" != browser || packages=chromium
test "$kind" != spark || packages=openjdk-17-jre-headless
test "$kind" != venv || packages=$venv
podman="podman buildah runc catatonit netavark aardvark-dns iptables mmdebstrap"
test "$kind" != containers || packages="$podman openssh-client"
test "$kind" != build || packages=$build
test "$kind" != wheels || packages="mmdebstrap qemu-user-static debian-archive-keyring"

if ! command -v dpkg-query >/dev/null; then
    echo "deps: this is no Debian system; make sure that the equals of these are installed:" $packages
    exit 0
fi
exec 9<tools/deps.sh
flock 9 # targets of one make may need packages at the same time

# Installs those of the packages that are missing.
install() {
    missing=
    for package; do
        case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
        "install ok installed") ;;
        *) missing="$missing $package" ;;
        esac
    done
    test -n "$missing" || return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "deps: packages are missing. Run this, then make again:"
        echo "    sudo apt-get install --no-install-recommends$missing"
        exit 1
    fi
    echo "== installing Debian packages:$missing"
    export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
    mkdir -p build
    { apt-get -q update && apt-get -q -y --no-install-recommends install $missing; } >build/deps.log 2>&1 9>&- || {
        cat build/deps.log
        exit 1
    }
}

install $packages
case $kind in
all | build) # three C files of a package that brings node.js, which nothing here needs
    test -e /usr/share/llhttp/llhttp.c || test -e third_party/sources/llhttp ||
        python3 tools/bundle.py third_party/sources llhttp || install node-llhttp
    ;;
esac
