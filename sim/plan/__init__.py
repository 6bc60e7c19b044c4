"""Plans: parallel degrees, stages, groups, placement of ranks, pipeline schedules and the actions of a rank's program."""
