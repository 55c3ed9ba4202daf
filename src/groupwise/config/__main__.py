"""Write what is generated from the declarations of the settings.

python -m groupwise.config > docs/reference/config.md
python -m groupwise.config keywords > src/groupwise/config/flat_names.py
"""

import sys

from groupwise.config.reference import keywords_module, reference_page

if __name__ == "__main__":
    sys.stdout.write(keywords_module() if sys.argv[1:] == ["keywords"] else reference_page())
