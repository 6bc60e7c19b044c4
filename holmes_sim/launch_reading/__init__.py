"""What readers of launches need: the training job that is read, and the words of shell scripts."""
