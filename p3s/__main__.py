"""Run the command line by ``python -m p3s``."""

from p3s.cli.main import main

if __name__ == "__main__":
    main()
