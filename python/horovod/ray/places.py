"""The places of a job's ranks on the nodes of a cluster. Nothing here calls Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Resources = Mapping[str, float]


def by_node(nodes: Sequence[str]) -> list[int]:
    """Returns the numbers of the workers so that those of each node follow one another.

    Args:
        nodes: the node of each worker.
    """
    order = list(dict.fromkeys(nodes))
    return sorted(range(len(nodes)), key=lambda worker: order.index(nodes[worker]))


def visible_devices(own: Sequence[Sequence[str]]) -> str:
    """Returns the devices of a node's workers so that the local rank is the index of a worker's first one."""
    return ",".join([*(each[0] for each in own), *(device for each in own for device in each[1:])])


def interface_list(nics: str | Iterable[str] | None) -> str:
    """Returns names of network interfaces as HOROVOD_NETWORK_INTERFACE has them."""
    return nics if isinstance(nics, str) else ",".join(nics or ())


def room(node: Resources, need: Resources) -> int:
    """Returns how many workers with these needs a node has room for."""
    return min((int(node.get(name, 0) // amount) for name, amount in need.items() if amount), default=0)


def listed_resources(resources: Resources) -> str:
    """Returns for instance ``CPU 2, GPU 1``."""
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items() if amount)


def shortage(
    bundles: int,
    per_bundle: int,
    need: Resources,
    spread: bool,
    nodes: Mapping[str, Resources],
    free: Resources,
) -> str:
    """Returns what was asked for and what the cluster has, for an error.

    Args:
        bundles: how many hosts, or workers if ``per_bundle`` is 1.
        per_bundle: workers on each host.
        need: of one worker.
        spread: each bundle needs a node of its own.
        nodes: all that each node has, by address.
        free: what no job uses now, on all nodes together.
    """
    found = {name: room(node, need) for name, node in nodes.items()}
    if spread:
        asked = f"{bundles} hosts with {per_bundle} workers each were asked for"
        has = f"{sum(count >= per_bundle for count in found.values())} such hosts"
    else:
        asked, has = f"{bundles * per_bundle} workers were asked for", f"room for {sum(found.values())}"
    listed = "; ".join(f"{name} has {listed_resources(nodes[name]) or 'nothing'}" for name in found)
    unused = listed_resources({name: free.get(name, 0) for name in need}) or "nothing"
    asked = f"{asked}, each with {listed_resources(need)}"
    return f"{asked}, and the cluster has {has}: {listed}; other jobs leave {unused}"


class Coordinator:
    """Knows which rank is on which node.

    Args:
        settings: those of the job.
    """

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings
        self.hostnames: set[str] = set()
        self.node_id_by_rank: dict[str, list[int]] = {}

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return sum(map(len, self.node_id_by_rank.values()))

    @property
    def node_id_string(self) -> str:
        """``node:ranks`` for each node, separated by commas."""
        return ",".join(f"{node}:{len(ranks)}" for node, ranks in self.node_id_by_rank.items())

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """Notes the node of a rank; the next rank of a node has the next local rank."""
        self.hostnames.add(hostname)
        self.node_id_by_rank.setdefault(node_id, []).append(world_rank)

    def finalize_registration(self) -> dict[int, dict[str, int]]:
        """Returns the variables that give each rank its place among the others."""
        found = {}
        for ranks in self.node_id_by_rank.values():
            for local, rank in enumerate(ranks):
                across = [others[local] for others in self.node_id_by_rank.values() if len(others) > local]
                found[rank] = {
                    "HOROVOD_LOCAL_RANK": local,
                    "HOROVOD_LOCAL_SIZE": len(ranks),
                    "HOROVOD_CROSS_RANK": across.index(rank),
                    "HOROVOD_CROSS_SIZE": len(across),
                }
        return found


def variables(
    nodes: Sequence[str],
    job: str,
    rendezvous: str,
    secret: str,
    timeout: float,
    interfaces: str = "",
) -> list[dict[str, str]]:
    """Returns the variables with which each rank joins the job.

    Ranks of one node are local to each other, also where several nodes run on one machine.

    Args:
        nodes: the id of each rank's node.
        job: the name of the job.
        rendezvous: where the ranks meet, ``address:port,…``.
        secret: what they prove to each other.
        timeout: the seconds for which ``init`` waits for all ranks.
        interfaces: the network interfaces that they use; "": any.
    """
    coordinator = Coordinator()
    for rank, node in enumerate(nodes):
        coordinator.register(node, node, rank)
    places = coordinator.finalize_registration()
    common: dict[str, Any] = {
        "HOROVOD_SIZE": len(nodes),
        "HOROVOD_JOB": job,
        "HOROVOD_RENDEZVOUS": rendezvous,
        "HOROVOD_SECRET": secret,
        "HOROVOD_START_TIMEOUT": timeout,
        "HOROVOD_NETWORK_INTERFACE": interfaces,
    }
    own = [
        {**common, **places[rank], "HOROVOD_RANK": rank, "HOROVOD_HOST_ID": node}
        for rank, node in enumerate(nodes)
    ]
    return [{name: str(value) for name, value in each.items()} for each in own]
