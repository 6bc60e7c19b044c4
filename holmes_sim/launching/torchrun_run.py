"""Plans that `holmes-sim run` executes, in one launch of torchrun: a script and an environment for every host.

The ranks of islands are numbered island by island. torchrun's static rendezvous gives each host the ranks after those of the
hosts before it, so the ranks of a host must be consecutive, in the order of its devices (`fills_hosts`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from holmes_sim.launching import environment, hosts, offload
from holmes_sim.launching.environment import Environments
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host, Placed
from holmes_sim.launching.torch_launch import PORT
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan

HOW = """\
`pip install 'holmes-sim[torch]'` on all hosts, and this folder on all of them under one path. Then on every host:

```
bash FOLDER/launch/HOST.sh
```

with the host's own script; `--steps N` after it trains N {steps}. The first host, {first}, is the master, by its name
unless `MASTER_ADDR` says another; `MASTER_PORT` ({port} unless set) must be free on it. One launch has {ranks}.
It trains on random tokens, and measures{data}."""
NODE = "HOLMES_SIM_HOST"
"""Environment variable by which `holmes-sim run` knows the node of the plan that its host is."""
DATA = ": to train on data of your own, take a framework that launches islands"


def islands(plan: IslandsPlan, file: str) -> Launch:
    """A script and an environment for every host of all islands; `file` is the plan in the folder of the launch."""
    every = []
    for island in plan.islands:
        for host in hosts.of_plan(island):
            variables = environment.text(Environments(island).of_host(host))
            every.append((host, variables + offload.threads(island.config, str(len(host.ranks)))))
    words = {"steps": "outer periods", "ranks": "the ranks of all islands", "data": DATA}
    return _launch(every, file, words)


def whole(plan: Placed, file: str) -> Launch:
    """The same of a plan of one launch, of unlike pipelines or with two sets of ranks. Each script says which node of the plan
    its host is, so that a rank on another node is refused."""
    environments = Environments(plan)
    variables = ((host, environments.of_host(host) | {NODE: host.node}) for host in hosts.of_plan(plan))
    every = [(host, environment.text(own)) for host, own in variables]
    several = isinstance(plan, PipelinesPlan)
    ranks = "the ranks of all pipelines" if several else "the attention ranks, then the expert ranks"
    return _launch(every, file, {"steps": "steps", "ranks": ranks, "data": ""})


def fills_hosts(plan: Placed) -> bool:
    """Whether torchrun numbers the ranks of a plan as the plan does."""
    every = hosts.of_plan(plan)
    return hosts.in_order(every) and all(host.is_whole for host in every)


def _launch(every: Sequence[tuple[Host, str]], plan: str, words: dict[str, str]) -> Launch:
    found: dict[str, File] = {}
    for index, (host, text) in enumerate(every):
        found[f"env/{host.name}.env"] = File(text, "environment of one host")
        script = _script(index, [one for one, _ in every], plan)
        found[f"launch/{host.name}.sh"] = File(script, "starts the ranks of one host", executable=True)
    return Launch(found, HOW.format(first=every[0][0].name, port=PORT, **words), ())


def _script(index: int, every: list[Host], plan: str) -> str:
    host = every[index]
    return (
        "#!/usr/bin/env bash\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
        f'source "$here"/env/{shlex.quote(host.name)}.env\n'
        f"exec torchrun --nnodes={len(every)} --nproc-per-node={len(host.ranks)} --node-rank={index} "
        f'--master-addr="${{MASTER_ADDR:-{every[0].name}}}" --master-port="${{MASTER_PORT:-{PORT}}}" '
        f'-m holmes_sim.cli run "$here"/{plan} "$@"\n'
    )
