"""Entry point of `python -m holmes_sim.cli`."""

from holmes_sim.cli import main

if __name__ == "__main__":
    main()
