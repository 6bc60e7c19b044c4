"""Data of the catalogue: one YAML file per device, interconnect, NIC type, model, stack and profile (`sim.formats.catalog`)."""
