"""How long after a rank was killed the others raise: python bench/faults.py [rounds]; needs horovodrun.

Four ranks reduce for ever; one kills itself with SIGKILL and notes the time, the others note when their
pending operation raised. Printed is the slowest survivor of each round, by transport and by who died.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).resolve().parent.parent / "test" / "launch" / "fault_worker.py"


def slowest_survivor(transport: str, victim: int) -> float:
    """Milliseconds from the death to the last exception."""
    command = ["horovodrun", "-np", "4", sys.executable, str(WORKER), "SIGKILL", str(victim)]
    environment = os.environ | {"HOROVOD_TRANSPORT": transport}
    output = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    ).stdout
    (died,) = re.findall(r"VICTIM ([\d.]+)", output)
    raised = re.findall(rf"RAISED ([\d.]+) .*\brank {victim}\b", output)
    assert len(raised) == 3, output
    return (max(map(float, raised)) - float(died)) * 1e3


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("transport  victim  median ms  slowest ms")
    for transport in ("shm", "tcp"):
        for victim in (0, 1, 3):
            times = [slowest_survivor(transport, victim) for _ in range(rounds)]
            print(f"{transport:9}  {victim:6}  {statistics.median(times):9.1f}  {max(times):10.1f}")


if __name__ == "__main__":
    main()
