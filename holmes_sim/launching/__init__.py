"""What a plan means for those who start it: the torch backend and the launch files of other programs. Needs no torch."""
