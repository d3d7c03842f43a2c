"""`python -m swiftfl` is `swiftfl`."""

from swiftfl.cli import main

if __name__ == "__main__":
    main()
