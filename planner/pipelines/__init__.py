"""Plans of unlike pipelines (`sim.plan.pipelines`), by column generation.

A part is a number of nodes of each cluster (`parts`), a column a plan of alike replicas on the nodes of a part, with its
stages, tensor- and context-parallel degrees, layers and recomputation (`columns`). The master programme
(`planner.models.pipeline_master`) picks columns under the numbers of nodes (`solutions`); samples are divided so that all end
together (`assembly`); `search` alternates both and simulates the result, and `refinement` changes it."""
