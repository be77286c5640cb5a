"""Follow symbolic links to a store's file."""

from pathlib import Path


def followed(path: Path) -> Path:
    """Return the file that a link leads to; a path that is no link stays as it is.

    The spool and other files are beside a store's file. Under the name of a link there would be
    others, and `forget` would replace the link and not the file.
    """
    return path.resolve() if path.is_symlink() else path
