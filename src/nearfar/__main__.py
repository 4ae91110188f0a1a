"""``python -m nearfar``: the command line."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working directory first: a file torch.py among data that lie there would run for torch
        sys.path.append(sys.path.pop(0))

    from .children import OWN_MODULES
    from .cli import main

    if os.environ.get(OWN_MODULES):
        sys.path.append(os.environ[OWN_MODULES])
    main()
