"""Which plans exist: parallel layouts and the device slots that their stages take."""
