"""The running process of a device: the only place where everything meets."""

from p2pqueue.node.node import Node, Ready

__all__ = ["Node", "Ready"]
