"""The commands of `p2pqueue`, one module for each or for a few that belong together."""
