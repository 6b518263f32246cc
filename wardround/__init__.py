"""The library and the door: `import wardround` is the analyst's client.

    with wardround.connect("ada.profile") as federation:
        print(federation.ask("SELECT diagnosis, AVG(sbp) FROM encounters GROUP BY diagnosis", epsilon=0.5))

Names are loaded when they are first used, so that a site agent, which imports this package for the shared
words, never loads the analyst's side.
"""

from wardround.exports import exported

__getattr__, __dir__, __all__ = exported(__name__, __file__)
