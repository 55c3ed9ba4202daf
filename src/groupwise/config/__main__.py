"""`python -m groupwise.config > docs/reference/config.md` writes the reference page."""

import sys

from groupwise.config.reference import reference_page

if __name__ == "__main__":
    sys.stdout.write(reference_page())
