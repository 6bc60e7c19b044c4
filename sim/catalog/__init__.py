"""Data: devices, links, NICs, models, stacks and profiles, one YAML file each (read by `sim.formats.catalog`)."""
