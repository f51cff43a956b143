"""What does a manifest stand for, and how is that called? Pure."""

from __future__ import annotations

from p2pqueue.errors import MisuseError
from p2pqueue.payload.manifest import FileManifest, FolderManifest, TreeManifest
from p2pqueue.payload.names import safe_name


def kind_of(manifest: FileManifest | FolderManifest | TreeManifest) -> str:
    """The word for it: file, folder, or set for several by their names."""
    return "file" if isinstance(manifest, FileManifest) else "folder" if isinstance(manifest, TreeManifest) else "set"


def single(manifest: FileManifest | FolderManifest | TreeManifest) -> FileManifest:
    """The manifest of one file. Raises `MisuseError` for another."""
    if isinstance(manifest, TreeManifest):
        raise MisuseError(f"This manifest is that of a folder of {manifest.count} files; save it as a whole")
    if isinstance(manifest, FolderManifest):
        raise MisuseError(f"This manifest lists {len(manifest.entries)} files; take one of them by its name")
    return manifest


def label_of(manifest: FileManifest) -> str:
    """How a file is called in messages."""
    return f"“{safe_name(manifest.name)}”"
