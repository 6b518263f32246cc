"""A whole federation in one process, from the same code the roles run."""

from wardround.exports import exported

__getattr__, __dir__, __all__ = exported(__name__, __file__)
