"""python -m fp4lab.check"""

import sys

from .command import main

sys.exit(main())
