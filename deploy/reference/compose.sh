# Read by up, test and down: finds the container engine and defines `compose`, which works on ../compose.yaml.
# ENGINE (docker or podman) and COMPOSE (such as docker-compose) replace what is found.
if [ -z "${ENGINE:-}" ]; then
    if docker info >/dev/null 2>&1; then
        ENGINE=docker
    elif command -v podman >/dev/null; then
        ENGINE=podman
    else
        echo "no container engine: Docker does not run, and podman is not installed" >&2
        exit 1
    fi
fi
if [ -z "${COMPOSE:-}" ]; then
    COMPOSE="$ENGINE compose"
    test "$ENGINE" != podman || COMPOSE=podman-compose
fi
compose() {
    $COMPOSE -f ../compose.yaml "$@"
}
