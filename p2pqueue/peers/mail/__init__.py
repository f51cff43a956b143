"""How do devices that are never there at the same time converge, by sealed mail in an origin?"""
