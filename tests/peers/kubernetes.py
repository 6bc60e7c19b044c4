"""Kubernetes' own descriptions read an exported JobSet.

The JobSet is checked against the schema of JobSet's own CRD, in which unknown keys are made errors (an API server would drop
them); JOBSET_CRD names that file (kubernetes-sigs/jobset, config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml). Where
kubectl is on the PATH, `kubectl kustomize` must give the same JobSet, with and without Kueue's component, and the ConfigMap.
`hosts` and `world_size`: every pod that the JobSet asks for runs what its container does, with a torchrun that tells what it
was called with; the ranks of the host of a pod are the rank table's.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

TORCHRUN = '#!/bin/sh\nprintf \'%s\\n\' "$HOLMES_HOST" "$@"\n'
FILES = ("node.sh", "holmes_launch.py", "ranks.json", "plan.json")


def versions() -> dict[str, str]:
    """The CRD by its content, and kubectl's version."""
    found = {"jobset CRD": hashlib.sha256(Path(os.environ["JOBSET_CRD"]).read_bytes()).hexdigest()[:12]}
    if shutil.which("kubectl"):
        client = json.loads(subprocess.check_output(["kubectl", "version", "--client", "-o", "json"], text=True))
        found |= {"kubectl": client["clientVersion"]["gitVersion"], "kustomize": client["kustomizeVersion"]}
    return found


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What the pods become; raises where the schema or kustomize refuses."""
    jobset = yaml.safe_load((folder / "jobset.yaml").read_text())
    jsonschema.validate(jobset, _schema(), jsonschema.Draft202012Validator)
    if shutil.which("kubectl"):
        _kustomized(folder, jobset)
    table = json.loads((folder / "ranks.json").read_text())
    ranks = {host["host"]: host["ranks"] for host in table["hosts"]}
    hosts: dict[str, str] = {}
    nodes = []
    for name, (host, *words) in _pods(folder, jobset):
        options = dict(word.split("=", 1) for word in words if "=" in word)
        if (options["--master-addr"] == name) != (options["--node-rank"] == "0"):
            raise ValueError(f"{name} is node {options['--node-rank']}; the master is {options['--master-addr']}")
        if int(options["--nproc-per-node"]) != len(ranks[host]):
            raise ValueError(f"{host} has {options['--nproc-per-node']} processes")
        nodes.append(int(options["--node-rank"]))
        hosts |= {str(rank): host for rank in ranks[host]}
    if sorted(nodes) != list(range(len(nodes))):
        raise ValueError(f"node ranks are {nodes}")
    return {"world_size": len(hosts), "hosts": hosts}


def _pods(folder: Path, jobset: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(name in the network, host and words that torchrun is called with) of every pod."""
    with tempfile.TemporaryDirectory() as scratch:
        stub = Path(scratch) / "torchrun"
        stub.write_text(TORCHRUN)
        stub.chmod(0o755)
        for job in jobset["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            (container,) = spec["template"]["spec"]["containers"]
            given = {entry["name"]: entry["value"] for entry in container["env"]}
            program, script = container["command"]
            for index in range(spec["completions"]):
                variables = given | {"JOB_COMPLETION_INDEX": str(index), "PATH": f"{scratch}:{os.environ['PATH']}"}
                words = [program, script.replace("/holmes", str(folder))]
                output = subprocess.check_output(words, env=variables, text=True).splitlines()
                yield f"{jobset['metadata']['name']}-{job['name']}-0-{index}.{jobset['metadata']['name']}", output


def _kustomized(folder: Path, jobset: dict[str, Any]) -> None:
    meant = copy.deepcopy(jobset)
    for job in meant["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/trainer:latest"
    config, seen = _built(folder)
    if seen != meant:
        raise ValueError("kubectl kustomize gives another JobSet")
    if config["data"] != {name: (folder / name).read_text() for name in FILES}:
        raise ValueError("kubectl kustomize gives another ConfigMap")
    with tempfile.TemporaryDirectory() as scratch:
        queued = Path(scratch) / "launch"
        shutil.copytree(folder, queued)
        kustomization = queued / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text().replace("# components", "components"))
        _, seen = _built(queued)
    jsonschema.validate(seen, _schema(), jsonschema.Draft202012Validator)
    if seen["metadata"]["labels"] != {"kueue.x-k8s.io/queue-name": "training"}:
        raise ValueError("Kueue's label is missing")


def _built(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """ConfigMap and JobSet as kustomize builds them."""
    result = subprocess.run(["kubectl", "kustomize", str(folder)], text=True, capture_output=True)
    if result.returncode:
        raise ValueError(f"kubectl kustomize: {result.stderr.strip()}")
    by_kind = {document["kind"]: document for document in yaml.safe_load_all(result.stdout)}
    return by_kind["ConfigMap"], by_kind["JobSet"]


@functools.cache
def _schema() -> dict[str, Any]:
    crd = yaml.load(Path(os.environ["JOBSET_CRD"]).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    version = next(one for one in crd["spec"]["versions"] if one["name"] == "v1alpha2")
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {
        "type": "object",
        "properties": {key: {"type": "object"} for key in ("labels", "annotations")} | {"name": {"type": "string"}},
        "required": ["name"],
    }
    return _closed(schema)


def _closed(schema: Any) -> Any:
    """The schema with unknown keys refused wherever it lists the known ones."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found
