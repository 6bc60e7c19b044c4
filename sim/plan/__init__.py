"""What runs where: degrees, stages, groups, the placement of ranks, the schedules and the program of each rank."""
