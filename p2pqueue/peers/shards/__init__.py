"""How do shards pass between the devices that are linked, and to and from the origin?"""
