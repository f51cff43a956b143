"""How do writes, one's own or a peer's, get into the rows, and which of them win?"""
