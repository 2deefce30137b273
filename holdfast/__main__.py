"""`python -m holdfast` is the command line `holdfast`."""

from holdfast.cli.main import main

if __name__ == "__main__":
    main()
