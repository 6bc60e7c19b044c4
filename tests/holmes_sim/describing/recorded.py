"""What hosts print when they are probed: two nodes of eight H100, a login node without GPUs, and a host that is off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holmes_sim.describing.host_probe import Answer

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
LISTED = "".join(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index})\n" for index in range(8))
MEMORY = "name, memory.total [MiB]\n" + "NVIDIA H100 80GB HBM3, 81559 MiB\n" * 8


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def probed(name: str, smi: str = "", query: str = "", rocm: str = "", sys: str = "", memory: str = "") -> str:
    """The output of a probe of a host."""
    parts = (
        ("hostname", name + "\n"),
        ("nvidia-smi", smi),
        ("nvidia-smi --query-gpu", query),
        ("rocm-smi", rocm),
        ("/proc/meminfo", memory),
        ("/sys", sys),
    )
    return "".join(f"=== {title}\n{text}" for title, text in parts)


def dgx(name: str) -> str:
    """A node of eight H100, eight InfiniBand NICs, two RoCE NICs and an Ethernet NIC."""
    memory = "MemTotal:       2113462964 kB\n"
    return probed(name, LISTED + sample("nvidia_smi-h100-nics.txt"), MEMORY, sys=sample("sysfs-h100.txt"), memory=memory)


def rtx(name: str) -> str:
    """A node of four RTX 4090 with an Ethernet NIC, whose nvidia-smi has no topology."""
    query = "name, memory.total [MiB]\n" + "NVIDIA GeForce RTX 4090, 24564 MiB\n" * 4
    return probed(name, "error: topology is not supported\n", query, sys="/sys/class/net/eno1/speed:25000\n")


class Hosts:
    """Runs commands on recorded hosts: address -> output, or what ssh says. This host is the address `here`."""

    def __init__(self, **outputs: str | Answer):
        self.outputs, self.commands = outputs, list[tuple[str, ...]]()

    def __call__(self, command: Sequence[str], given: str) -> Answer:
        self.commands.append(tuple(command))
        assert "nvidia-smi topo -m" in given
        address = "here" if command[0] == "sh" else command[command.index("--") + 1].replace("@", "_at_")
        found = self.outputs[address]
        return found if isinstance(found, Answer) else Answer(0, found)
