"""A plan of unlike pipelines: what all have in common, and the stages, microbatches and devices of each."""

from __future__ import annotations

from sim.formats.pipelinesfile import PipelinesFacts

NAME = "pipelines"
FORMAT = "holmes-sim/pipelines/1"
WRITTEN_BY = ("show PIPELINES --json",)
MODEL = PipelinesFacts
