"""A stand-in for setuptools while pip downloads a source distribution: no setup.py is run.

pip asks the build backend of a source distribution for its name and version, and setuptools would run
setup.py for them, which may import torch. The file PKG-INFO of every source distribution has both.
"""
