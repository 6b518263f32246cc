"""`python -m wardround` is the same command as `wardround`."""

from wardround.cli.main import main

if __name__ == "__main__":
    main()
