"""``python -m tuner``: the same as the command ``tuner``."""

from .cli import main

if __name__ == "__main__":
    main()
