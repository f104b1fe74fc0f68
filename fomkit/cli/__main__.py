"""``python -m fomkit.cli`` does what the command ``fomkit`` does."""

from fomkit.cli import main

if __name__ == "__main__":
    main()
