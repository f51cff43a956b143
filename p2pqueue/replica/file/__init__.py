"""How is the file of a replica opened, locked, written, made durable, copied and carried to a new version?"""
