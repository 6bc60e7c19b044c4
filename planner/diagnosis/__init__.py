"""Why a layout lost or does not fit, and what would help."""
