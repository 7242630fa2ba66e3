"""``python -m rooflinellm``: the command line."""

import sys

from rooflinellm.cli import main

if __name__ == "__main__":
    sys.exit(main())
