"""How does a claimed job run, in a warm process or in the node's own loop, and how do processes end?"""
