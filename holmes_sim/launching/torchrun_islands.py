"""Islands in one launch of torchrun, executed by `holmes-sim run`: a script and an environment for every host.

The ranks of all islands are numbered island by island. torchrun's static rendezvous gives each host the ranks after those of
the hosts before it, so the ranks of an island must be consecutive over its hosts."""

from __future__ import annotations

import shlex

from holmes_sim.launching import environment, hosts, islands_folder
from holmes_sim.launching.environment import Environments
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from holmes_sim.launching.torch_launch import PORT
from sim.plan.islands import IslandsPlan

HOW = """\
`pip install 'holmes-sim[torch]'` on all hosts, and this folder on all of them under one path. Then on every host:

```
bash FOLDER/launch/HOST.sh
```

with the host's own script; `--steps N` after it trains N outer periods. The first host, {first}, is the master, by its name
unless `MASTER_ADDR` says another; `MASTER_PORT` ({port} unless set) must be free on it. One launch has the ranks of all
islands. It trains on random tokens, and measures: to train on data of your own, take a framework that launches islands."""


def launch(plan: IslandsPlan) -> Launch:
    """A script and an environment for every host of all islands."""
    every = [(host, island) for island in plan.islands for host in hosts.of_plan(island)]
    found: dict[str, File] = {}
    for index, (host, island) in enumerate(every):
        variables = Environments(island).of_host(host)
        found[f"env/{host.name}.env"] = File(environment.text(variables), "environment of one host")
        script = _script(host, index, [one for one, _ in every])
        found[f"launch/{host.name}.sh"] = File(script, "starts the ranks of one host", executable=True)
    return Launch(found, HOW.format(first=every[0][0].name, port=PORT), ())


def _script(host: Host, index: int, every: list[Host]) -> str:
    return (
        "#!/usr/bin/env bash\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
        f'source "$here"/env/{shlex.quote(host.name)}.env\n'
        f"exec torchrun --nnodes={len(every)} --nproc-per-node={len(host.ranks)} --node-rank={index} "
        f'--master-addr="${{MASTER_ADDR:-{every[0].name}}}" --master-port="${{MASTER_PORT:-{PORT}}}" '
        f'-m holmes_sim.cli run "$here"/{islands_folder.PLAN} "$@"\n'
    )
