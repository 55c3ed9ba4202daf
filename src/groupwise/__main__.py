"""`python -m groupwise` is the `groupwise` command."""

from groupwise.cli import main

if __name__ == "__main__":
    main()
