"""What runs on `python -m p2pqueue`? The same as the command `p2pqueue`."""

from p2pqueue.cli.main import main

if __name__ == "__main__":
    main()
