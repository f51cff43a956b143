"""How do files come to this device: who is asked for what, by which lane, and where does it land?"""
